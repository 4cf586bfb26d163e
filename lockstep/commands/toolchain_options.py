"""Options that choose the versions of Triton, or of other packages, for the processes that compile and measure."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lockstep.processes.toolchain import INSTALLED, Toolchain, toolchain_of

#: The possible forms of a toolchain, for the help of options.
FORMS = (
    "exact versions (triton==3.6.0; several joined by commas), the path of a wheel, the folder of a Python environment "
    f'or "{INSTALLED.name}"'
)


def add_toolchain(parser: argparse.ArgumentParser) -> None:
    """Add options for the toolchain that compiles, and for the folder from which it is installed."""
    parser.add_argument(
        "--toolchain", default=INSTALLED.name, metavar="triton==3.6.0", help=f"compile with {FORMS} (default)"
    )
    add_find_links(parser)


def add_find_links(parser: argparse.ArgumentParser) -> None:
    """Add an option for a folder of wheels from which toolchains may be installed."""
    parser.add_argument(
        "--find-links",
        type=Path,
        metavar="FOLDER",
        help="install toolchains from this folder of wheels; PIP_… variables apply too",
    )


def chosen_toolchain(text: str, args: argparse.Namespace) -> Toolchain:
    """Return the toolchain that ``text`` names; install the toolchain first if necessary.

    Raises:
        UnknownToolchain: the text is not a toolchain.
        ToolchainError: pip cannot install the toolchain.
    """
    return toolchain_of(text, find_links=args.find_links, say=say)


def say(line: str) -> None:
    """Print a line of progress."""
    # A single write: two trees are traced in two threads, and print writes the end of a line separately.
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
