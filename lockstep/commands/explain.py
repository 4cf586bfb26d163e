"""``lockstep explain``: say what a report of the gate means and what to do next."""

from __future__ import annotations

import argparse
from pathlib import Path

from asv.commands import Command

from lockstep.commands.verb import Verb
from lockstep.gate.report.report import EXIT
from lockstep.gate.report.terminal import show
from lockstep.gate.report.untrusted_report import Unreadable, from_json
from lockstep.processes.exit_status import UsageError
from lockstep.processes.trouble import reason_of
from lockstep.record.console import wide_console


class Explain(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Say what a gate's report means, and what to do next.

    Print the report that `lockstep gate --json FILE` wrote, with the commands that it calls for. Nothing is measured.
    Exit status: that of the gate; 4 if the file is not a report.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        parser.add_argument("report", type=Path, metavar="FILE", help="report of lockstep gate --json FILE")

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Print the report, and return the exit status of the gate."""
        try:
            report = from_json(args.report.read_bytes())
        except (OSError, Unreadable) as error:
            raise UsageError(f"{args.report} cannot be read: {reason_of(error)}") from error
        show(report, wide_console())
        return EXIT[report.state]
