"""Options that several verbs share, and what they mean."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from lockstep.processes.toolchain import INSTALLED
from lockstep.record.console import wide_console
from lockstep.record.quantity import COSTS
from lockstep.timing.tuners.choices import NAME

#: The file of ``--json -``.
STDOUT = Path("-")

#: The possible forms of a toolchain, for the help of options.
FORMS = (
    "exact versions (triton==3.6.0; several joined by commas), the path of a wheel, the folder of a Python environment "
    f'or "{INSTALLED.name}"'
)


def add_repeatable(parser: argparse.ArgumentParser, option: str, metavar: str, what: str) -> None:
    """Add an option that may be given several times; the parsed value is a list. ``what`` is its help."""
    parser.add_argument(option, action="append", default=[], metavar=metavar, help=f"{what}; may repeat")


def add_costs_option(parser: argparse.ArgumentParser, also_measured: str = "") -> None:
    """Add the option ``--costs``. ``also_measured``, a phrase of its help, states the costs always measured."""
    of_a_call = " ".join(filter(None, ("also measure these costs of a call", also_measured)))
    parser.add_argument(
        "--costs",
        nargs="*",
        choices=COSTS,
        metavar="NAME",
        help=f"{of_a_call}, or all costs if none is named: {', '.join(COSTS)}",
    )


def requested_costs(option: Sequence[str] | None, otherwise: Sequence[str]) -> Sequence[str]:
    """Return the named costs, all costs for an option without a name, or ``otherwise`` without the option."""
    return otherwise if option is None else option or tuple(COSTS)


def add_retune_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--retune``."""
    parser.add_argument(
        "--retune",
        action="store_true",
        help="let autotuned kernels choose for themselves (default: equal kernels take one stored choice)",
    )


def tuned_file(conf: Any) -> Path:
    """Return the file with the choices of tuners."""
    return Path(conf.results_dir).resolve() / NAME


def add_toolchain(parser: argparse.ArgumentParser) -> None:
    """Add the option for the toolchain that compiles."""
    parser.add_argument(
        "--toolchain", default=INSTALLED.name, metavar="triton==3.6.0", help=f"compile with {FORMS} (default)"
    )


def add_json_file_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option ``--json [FILE]``, for verbs that print a table as well. ``what`` is its help."""
    words = f"{what}; without FILE, or with -, to standard output, where the table is then left out"
    parser.add_argument("--json", nargs="?", const=STDOUT, type=Path, metavar="FILE", help=words)


def table_console(json_file: Path | None) -> Console:
    """Return the console for a verb's table: standard error if standard output takes the JSON."""
    return wide_console(sys.stderr if json_file == STDOUT else None)


def write_json_file(json_file: Path | None, text: str) -> None:
    """Write JSON, which ends with a newline, to the file of ``--json``, if it was given."""
    if json_file == STDOUT:
        print(text, end="", flush=True)
    elif json_file:
        json_file.write_text(text, encoding="utf-8")


def say(line: str) -> None:
    """Print a line of progress."""
    # A single write: two trees are traced in two threads, and print writes the end of a line separately.
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
