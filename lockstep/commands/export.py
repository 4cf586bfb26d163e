"""``lockstep export``: write the numbers of a commit for the dashboards of others."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from asv.commands import Command
from asv.console import log

from lockstep.commands.results_options import add_location_options, check_locations, open_store
from lockstep.commands.verb import Verb
from lockstep.processes.exit_status import BROKEN, OK, UsageError
from lockstep.record.json_output import print_json

if TYPE_CHECKING:
    from lockstep.history.model import Benchmark, Point

#: A point that has a number, and its benchmark.
Number = tuple["Point", "Benchmark"]


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
        # A file of github-action-benchmark has one better direction.
        better = {"customSmallerIsBetter": "lower", "customBiggerIsBetter": "higher"}.get(args.format)
        numbers = [
            (point, benchmark)
            for point in points
            if point.value is not None and math.isfinite(point.value)
            if (benchmark := results.benchmarks[point.series.benchmark]).better == better or better is None
        ]
        shown = list(_for_hud(numbers) if better is None else _for_action(numbers))
        print_json(shown, indent=1)
        if not shown:
            log.error(f"there are no numbers for {args.format}{f' of {machine}' if machine else ''}")
        return OK if shown else BROKEN


def _for_action(numbers: Iterable[Number]) -> Iterator[dict[str, Any]]:
    """Yield what github-action-benchmark reads with the tool ``customSmallerIsBetter`` or its opposite.

    Source: "Use custom benchmark solutions" in the README of benchmark-action/github-action-benchmark.
    """
    for point, benchmark in numbers:
        known = point.low is not None and point.high is not None
        yield {
            "name": " ".join(filter(None, (benchmark.name, point.series.text))),
            "unit": benchmark.unit,
            "value": point.value,
            **({"range": f"{point.low:.6g} … {point.high:.6g}"} if known else {}),
        }


def _for_hud(numbers: Iterable[Number]) -> Iterator[dict[str, Any]]:
    """Yield the metrics that PyTorch's HUD takes, one for each number.

    Source: "Benchmark results format" on the page "PyTorch OSS benchmark infra" of pytorch's wiki.
    """
    for point, benchmark in numbers:
        gpu = point.run.host.get("gpu")
        yield {
            "benchmark": {"name": benchmark.suite, "extra_info": {"unit": benchmark.unit}},
            "model": {"name": point.series.text or benchmark.name, "type": "kernel"},
            "metric": {"name": benchmark.quantity, "benchmark_values": [point.value]},
            "runners": [{"name": point.series.machine, **({"type": gpu} if gpu else {})}],
            "dependencies": {name: {"version": version} for name, version in point.run.toolchain.items()},
        }
