"""``lockstep noise``: how closely repeated runs agree, and how closely a kernel agrees with itself (A/A)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from asv.commands import Command
from asv.commands.common_args import positive_int
from asv.console import log

from lockstep.asv.fresh_runs import FreshRuns
from lockstep.asv.worker_client import WorkerSpec
from lockstep.commands.cli import expect_folder
from lockstep.commands.shared_options import (
    add_costs_option,
    add_json_file_option,
    add_retune_option,
    requested_costs,
    table_console,
    tuned_file,
    write_json_file,
)
from lockstep.commands.verb import Verb
from lockstep.processes.exit_status import BROKEN, INTERRUPTED
from lockstep.processes.sigterm import sigterm_interrupts
from lockstep.record.console import line_console
from lockstep.record.json_output import json_text
from lockstep.record.printed_table import reasons
from lockstep.record.run_agreement import Run, agreement_table, agreements, missing_costs, summary
from lockstep.suite.definition import CACHE_STATES, Suite
from lockstep.suite.discovery import Workspace
from lockstep.suite.selection import expect_variants


class Noise(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Show how closely fresh runs agree.

    Measure the working tree in several processes, one variant of each case twice (A/A), and print how closely the
    processes agree.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        parser.add_argument("families", nargs="*", help="families or suites to measure (default: all)")
        parser.add_argument("--runs", type=positive_int, default=5, help="runs, each in a new process (default: 5)")
        parser.add_argument(
            "--series",
            type=positive_int,
            default=60,
            help="measure at least this many speedups, where possible (default: 60)",
        )
        parser.add_argument(
            "--l2",
            choices=[*CACHE_STATES, "both"],
            default="cold",
            help="cache state (default: cold; a CPU has only warm)",
        )
        parser.add_argument(
            "--variants",
            nargs="+",
            metavar="NAME",
            help="only these variants and the baselines, names separated by spaces",
        )
        add_costs_option(parser)
        add_retune_option(parser)
        parser.add_argument("--quick", action="store_true", help="measure as briefly as possible, to find errors")
        add_json_file_option(parser, "also write each series' agreement to FILE")

    @classmethod
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace) -> int:
        """Print how closely the runs agree, and return the exit status.

        The status is 2 if a series failed in any run, 3 if no series was measured in every run.
        """
        expect_folder(args.json)
        workspace = Workspace.of(conf)
        suites = workspace.pick(args.families)
        states = CACHE_STATES if args.l2 == "both" else (args.l2,)
        spec = WorkerSpec(
            workspace.folder,
            workspace.packages,
            workspace.benchmark_dir,
            quick=args.quick,
            tuned=tuned_file(conf),
            retune=args.retune,
        )
        console = line_console(stderr=True)
        console.print(f"measuring {len(suites)} suites in {args.runs} new processes, one after another")
        measurement = FreshRuns(
            spec=spec,
            silence_s=float(conf.default_benchmark_timeout),
            suites=suites,
            states=states,
            series=args.series,
            chosen=_chosen(suites, args.variants),
            costs=requested_costs(args.costs, ()),
            say=console.print,
        )
        runs: list[Run] = []
        try:
            with sigterm_interrupts():
                for number in range(args.runs):
                    arms = measurement.run()
                    runs.append(arms)
                    cases = len(measurement.plan)
                    console.print(f"run {number + 1} of {args.runs}: {cases} cases, {len(arms)} arms")
        except KeyboardInterrupt:
            if len(runs) < 2:
                raise
            console.print(f"interrupted: the table shows the {len(runs)} complete runs")
        rows = agreements(runs)
        wide = table_console(args.json)
        wide.print(agreement_table(rows))
        for line in (*summary(rows), *missing_costs(runs)):
            wide.print(line)
        failed = [record for run in runs for record in run.values() if record.state == "failed"]
        for name in dict.fromkeys(record.suite for record in failed):
            for line in reasons([record for record in failed if record.suite == name]):
                wide.print(f"{name} {line}")
        write_json_file(args.json, json_text(rows, indent=1) + "\n")
        if len(runs) < args.runs:
            return INTERRUPTED
        if not failed and not rows:
            log.error("no series was measured in every run, so nothing can be compared")
            return BROKEN
        return 2 if failed else 0


def _chosen(suites: Sequence[Suite], variants: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    """Return the variants to measure of each suite, by its name; the baseline is always measured.

    Raises:
        SuiteError: no suite has one of the variants.
    """
    expect_variants(variants or (), suites)
    return {
        suite.name: tuple(
            name for name in suite.variants() if not variants or name in variants or name == suite.baseline
        )
        for suite in suites
    }
