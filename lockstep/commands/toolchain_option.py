"""The option that chooses the versions of Triton, or of other packages, for the processes that compile."""

from __future__ import annotations

import argparse
import sys

from lockstep.processes.toolchain import INSTALLED

#: The possible forms of a toolchain, for the help of options.
FORMS = (
    "exact versions (triton==3.6.0; several joined by commas), the path of a wheel, the folder of a Python environment "
    f'or "{INSTALLED.name}"'
)


def add_toolchain(parser: argparse.ArgumentParser) -> None:
    """Add the option for the toolchain that compiles."""
    parser.add_argument(
        "--toolchain", default=INSTALLED.name, metavar="triton==3.6.0", help=f"compile with {FORMS} (default)"
    )


def say(line: str) -> None:
    """Print a line of progress."""
    # A single write: two trees are traced in two threads, and print writes the end of a line separately.
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
