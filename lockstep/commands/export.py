"""``lockstep export``: write the numbers of a commit for the dashboards of others."""

from __future__ import annotations

import argparse
import json
from typing import Any

from asv.commands import Command

from lockstep.commands.cli import UsageError
from lockstep.commands.results_options import add_location_options, check_locations, open_store
from lockstep.commands.verb import Verb
from lockstep.processes.exit_status import BROKEN, OK
from lockstep.record.quantity import Better


class Export(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Print results for github-action-benchmark or PyTorch's HUD.

    Print the numbers of a machine at a commit as JSON for the dashboard of another tool. Exit status: 3 if there are no
    numbers or the store cannot be used, 4 wrong usage.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        add_location_options(parser)
        parser.add_argument("format", choices=("customSmallerIsBetter", "customBiggerIsBetter", "pytorch-hud"))
        parser.add_argument("--machine", help="name of the machine (default: the only one)")
        parser.add_argument("--commit", metavar="HASH", help="beginning of the commit's hash (default: the newest)")

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Print the numbers and return the exit status."""
        from lockstep.history.dashboards_json import for_github_action_benchmark, for_pytorch_hud

        check_locations(args)
        results = open_store(args).current()
        machines = sorted(results.machines)
        machine = args.machine or (machines[0] if len(machines) == 1 else "")
        if machines and machine not in machines:
            raise UsageError(f"--machine {machine or 'NAME'}: name one of {', '.join(machines)}")
        commits = results.commits(machine) if machines else ()
        chosen = [commit.hash for commit in commits if commit.hash.startswith(args.commit or "")]
        if args.commit and len(chosen) != 1:
            raise UsageError(f"--commit {args.commit}: {len(chosen)} measured commits of {machine} begin with it")
        points = results.at(chosen[-1], machine) if chosen else []
        if args.format == "pytorch-hud":
            shown: Any = for_pytorch_hud(results, points)
        else:
            better: Better = "lower" if args.format == "customSmallerIsBetter" else "higher"
            shown = for_github_action_benchmark(results, points, better)
        print(json.dumps(shown, indent=1))
        return OK if shown else BROKEN
