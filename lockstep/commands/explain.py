"""``lockstep explain``: say what a report of the gate means and what to do next."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from asv.commands import Command
from rich.console import Console

from lockstep.commands.cli import UsageError
from lockstep.gate.report.report import EXIT
from lockstep.gate.report.terminal import show
from lockstep.gate.report.untrusted_report import Unreadable, from_json


class Explain(Command):  # type: ignore[misc]  # asv has no types
    """Print a report in words, with the next commands."""

    @classmethod
    def setup_arguments(cls, subparsers: Any) -> argparse.ArgumentParser:
        """Add ``explain`` to the command line."""
        parser: argparse.ArgumentParser = subparsers.add_parser(
            "explain",
            help="Say what a gate's report means, and what to do next",
            description="Print the report that `lockstep gate --json FILE` wrote, with the commands that it calls for. "
            "Nothing is measured. Exit status: that of the gate; 4 if the file is not a report.",
        )
        parser.add_argument("report", type=Path, metavar="FILE", help="report of lockstep gate --json FILE")
        parser.set_defaults(func=cls.run_from_args)
        return parser

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Print the report, and return the exit status of the gate."""
        try:
            report = from_json(args.report.read_bytes())
        except (OSError, Unreadable) as error:
            raise UsageError(f"{args.report} cannot be read: {error}") from error
        show(report, Console())
        return EXIT[report.state]
