"""``lockstep measure``: measure the working tree, without a commit and without asv."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

from asv.commands import Command
from asv.console import log
from rich.console import Console

from lockstep.asv.coordinator import CommitWorker
from lockstep.asv.worker_client import WorkerSpec
from lockstep.commands.script_option import add_script_option, measure_script
from lockstep.commands.shared_options import (
    add_costs_option,
    add_repeatable,
    add_retune_option,
    requested_costs,
    tuned_file,
)
from lockstep.commands.verb import Verb
from lockstep.gpu.nvml import find_gpu
from lockstep.processes.exit_status import BROKEN, INTERRUPTED, UsageError
from lockstep.processes.sigterm import sigterm_interrupts
from lockstep.record.console import line_console, wide_console
from lockstep.record.counted import counted
from lockstep.record.file import newest_harness
from lockstep.record.json_output import print_json
from lockstep.record.model import Record
from lockstep.record.printed_table import CPU_NOTE, costs_table, reasons, records_table
from lockstep.suite.case import Case
from lockstep.suite.changed_text import changed_texts
from lockstep.suite.definition import CACHE_STATES, Suite
from lockstep.suite.discovery import Workspace
from lockstep.suite.selection import expect_variants, match_cases

#: Exit status if a series failed.
FAILED = 2

#: Seconds that a check may take. A check compiles kernels, each of which takes up to a minute on a busy machine.
CHECK_S = 120.0


#: A case to measure, of a suite and in a cache state.
Planned = tuple[Suite, Case, str]


class Measure(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Measure families of the working tree.

    Check every variant of each family of the working tree, then time all of them in turn.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        parser.add_argument("families", nargs="*", metavar="FAMILY", help="families, or suites of them (default: all)")
        add_repeatable(parser, "--case", "M=8,K=4096", "cases with these axis values")
        parser.add_argument(
            "--variants",
            nargs="+",
            metavar="NAME",
            help="only these variants and the baseline, names separated by spaces",
        )
        parser.add_argument("--l2", choices=[*CACHE_STATES, "both"], help="cache state (default: cold; warm on a CPU)")
        parser.add_argument("--quick", "-q", action="store_true", help="measure as briefly as possible, to find errors")
        parser.add_argument("--all", action="store_true", help="measure every case (default: the first eight)")
        parser.add_argument("--again", action="store_true", help="measure each variant twice, as an A/A comparison")
        parser.add_argument(
            "--seed",
            type=int,
            help="seed of inputs, buffer placement and order (default: random inputs, placement as in a history)",
        )
        add_costs_option(parser)
        add_retune_option(parser)
        add_script_option(parser)
        parser.add_argument("--json", action="store_true", help="print records as JSON, one on each line")

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> Any:
        """Measure a script, which needs no asv.conf.json, or suites."""
        if not args.script:
            return super().run_from_args(args)
        with sigterm_interrupts():
            return measure_script(args)

    @classmethod
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace) -> int:
        """Measure the family and print the records. Return 2 if a series failed, 3 if none was measured."""
        workspace = Workspace.of(conf)
        suites = workspace.pick(args.families)
        for suite in suites:
            expect_variants(args.variants or (), [suite])
        if args.seed is not None and not 0 <= args.seed < 2**32:
            raise UsageError(f"--seed {args.seed}: must be a number from 0 to {2**32 - 1}")
        console, errors = wide_console(), line_console(stderr=True)
        for warning in changed_texts(suites, newest_harness(Path(conf.results_dir))):
            errors.print(warning)
        started, planned = time.monotonic(), _planned(suites, args, "cpu" if find_gpu() is None else "cuda")
        cases = counted(len(planned), "case")
        packages = ", ".join(workspace.packages)
        errors.print(f"measuring {cases} of {', '.join(args.families) or 'all suites'}: importing {packages}")
        told: list[str] = []

        def say(line: str) -> None:
            told[:] = [line]
            errors.print(line)

        shown: list[Record] = []
        states: set[str] = set()
        done = 0
        try:
            with sigterm_interrupts(), closing(_worker(workspace, args, say)) as worker:
                device = worker.host["device"]
                planned = _planned(suites, args, device)
                errors.print(f"the worker is ready after {time.monotonic() - started:.0f} s")
                for suite, of_suite in groupby(planned, lambda one: one[0]):
                    shown, of_table = [], list(of_suite)
                    try:
                        for _, case, l2 in of_table:
                            variants = args.variants or list(suite.variants())
                            twins = [suite.baseline, *variants] if args.again else []
                            version, costs = suite.benchmark_version, requested_costs(args.costs, suite.quantities)
                            records = worker.measure(suite.name, case.label, l2, variants, version, twins, costs)
                            told.clear()
                            _show(records, suite, of_table, args, console, first=not shown)
                            shown += records
                            done += 1
                    finally:
                        states |= {record.state for record in shown}
                        if not args.json and any(record.costs for record in shown):
                            console.print(costs_table(shown))
                        for line in reasons(shown) if not args.json else ():
                            console.print(line)
            if device == "cpu" and "ok" in states and not args.json:
                console.print(CPU_NOTE)
        except KeyboardInterrupt:
            last = f"; the last step was: {told[0]}" if told else ""
            seconds = f"{time.monotonic() - started:.0f} s"
            log.error(f"interrupted after {seconds}: {done} of {len(planned)} cases were measured{last}")
            return INTERRUPTED
        if "failed" in states:
            return FAILED
        if "ok" not in states:
            log.error("nothing was measured")
            return BROKEN
        return 0


def _planned(suites: Sequence[Suite], args: argparse.Namespace, device: str) -> list[Planned]:
    """Return the requested cases and cache states."""
    planned: list[Planned] = []
    for suite in suites:
        chosen = [case for text in args.case for case in match_cases(suite, text)]
        if not args.case:
            chosen = list(suite.cases_on(device))[: None if args.all else 8]
        states = CACHE_STATES if args.l2 == "both" else (args.l2 or ("warm" if device == "cpu" else "cold"),)
        planned += [(suite, case, l2) for case in dict.fromkeys(chosen) for l2 in states]
    return planned


def _show(
    records: Sequence[Record],
    suite: Suite,
    planned: Sequence[Planned],
    args: argparse.Namespace,
    console: Console,
    *,
    first: bool,
) -> None:
    """Print the records of a case as soon as they are known, as JSON or as the next rows of the suite's table."""
    if args.json:
        for record in records:
            print_json(record)
        return
    names = [*(args.variants or suite.variants()), *(record.variant for record in records)]
    cases = [case.label for _, case, _ in planned]
    title = f"{suite.name}: baseline {suite.baseline}"
    console.print(records_table(records, title, names=names, cases=cases, head=first))


def _worker(workspace: Workspace, args: argparse.Namespace, say: Callable[[str], None]) -> CommitWorker:
    """Return what measures the working tree."""
    spec = WorkerSpec(
        workspace.folder,
        workspace.packages,
        workspace.benchmark_dir,
        quick=args.quick,
        history=False,
        seed=args.seed,
        check_s=CHECK_S,
        tuned=tuned_file(workspace.conf),
        retune=args.retune,
    )
    return CommitWorker("the working tree", spec, float(workspace.conf.default_benchmark_timeout), say=say)
