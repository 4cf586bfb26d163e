"""``lockstep tune FAMILY``: time a family's candidate configurations and write the fastest to this GPU's table.

Exit codes: 0 done, 3 nothing could be timed or a candidate hung, 4 wrong usage, 130 interrupted. The table is written
after each case, so that a run that ends early does not lose results.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv.commands import Command
from asv.console import log
from rich.table import Table

from lockstep.commands.shared_options import add_repeatable
from lockstep.commands.verb import Verb
from lockstep.processes.deadline import deadline
from lockstep.processes.exit_status import BROKEN, INTERRUPTED, UsageError
from lockstep.processes.import_torch import load_torch
from lockstep.processes.sigterm import sigterm_interrupts
from lockstep.record.console import plain_table, wide_console
from lockstep.record.json_output import print_json
from lockstep.suite.case import Case
from lockstep.suite.definition import CACHE_STATES, PROTOCOL_VERSION, Suite, SuiteError
from lockstep.suite.discovery import Workspace
from lockstep.suite.selection import match_cases, nearest

if TYPE_CHECKING:
    from lockstep.tuning.tune_case import Tuned

#: Seconds without progress after which a candidate counts as hung. A candidate's first call includes compilation.
LIMIT_S = 120.0


class Tune(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Time a family's candidates and write this GPU's table.

    Time a family's candidate configurations (tiles, dispatch), and write those that are faster by more than their
    interval to the family's table for this GPU. Measuring never tunes.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        parser.add_argument("family", help="a family, or one of its suites (grouped.mlp)")
        add_repeatable(parser, "--case", "M=8,K=4096", "cases with these axis values (default: all)")
        add_repeatable(parser, "--variant", "NAME", "only this variant")
        parser.add_argument("--l2", choices=CACHE_STATES, help="cache state (default: cold; warm on a CPU)")
        parser.add_argument(
            "--behind",
            action="store_true",
            help="rank by the geometric mean of the ratio in a chain of calls and of the ratio behind a fixed kernel",
        )
        parser.add_argument(
            "--budget",
            type=float,
            default=900.0,
            metavar="SECONDS",
            help="seconds after which no further case starts (default: %(default)g)",
        )
        parser.add_argument("--dry-run", action="store_true", help="time everything, but write nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object for each case")

    @classmethod
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace) -> int:
        """Tune case by case. Each result is written at once, so that an interrupted run does not lose it."""
        workspace = Workspace.of(conf)
        suites = workspace.pick([args.family])
        if not 0 <= args.budget < math.inf:
            raise UsageError(f"--budget {args.budget:g}: must be a number of seconds from 0 on")
        for suite in suites:
            for text in args.case:
                match_cases(suite, text)
        # The device is opened last, so that a typo is reported before torch is imported.
        load_torch()
        from lockstep.machine_code.targets import Target
        from lockstep.record.provenance import host_facts
        from lockstep.timing.device import open_device
        from lockstep.tuning.search_space import compile_all, search_space_of, table_of
        from lockstep.tuning.tune_case import tune

        device, facts = open_device(), host_facts()
        jobs = _jobs(suites, args, device.kind)
        if device.kind == "cuda":
            named = [(suite.name, variant, case.label) for suite, variant, case in jobs]
            compile_all(workspace.benchmark_dir, named, Target.of_host(facts))
        l2 = args.l2 or ("warm" if device.kind == "cpu" else "cold")
        header: dict[str, str | int] = {
            "date": datetime.now(UTC).date().isoformat(),
            "toolchain": ", ".join(
                f"{name} {facts[name]}" for name in ("torch", "triton", "driver") if facts.get(name)
            ),
            "protocol": PROTOCOL_VERSION,
            "source": "lockstep tune --behind" if args.behind else "lockstep tune",
        }
        console = wide_console()
        gpu = facts.get("gpu") or facts["cpu"]
        written: set[Path] = set()
        done: list[Tuned] = []
        settled: list[tuple[str, Mapping[str, int], Any]] = []
        interrupted = False
        limit_s = max(LIMIT_S, float(conf.default_benchmark_timeout))
        until = time.monotonic() + args.budget
        try:
            with sigterm_interrupts():
                for number, (suite, variant, case) in enumerate(jobs):
                    if time.monotonic() >= until:
                        left = len(jobs) - number
                        console.print(f"{args.budget:g} s are over: {left} of {len(jobs)} cases were not started")
                        break
                    table = table_of(suite)
                    space = search_space_of(suite, variant, case)
                    before = table.applied(gpu, space.choice, space.sizes)
                    with deadline(limit_s) as limit:
                        result = tune(device, suite, variant, case, l2, behind=args.behind, listener=limit.renew)
                    done.append(result)
                    if args.json:
                        print_json(_plain(result))
                    if result.won and not args.dry_run:
                        # A row also serves smaller sizes. Those that were tuned before keep their configurations.
                        kept = [row for row in settled if row[0] == result.choice]
                        path = table.save(gpu, header, [(result.choice, result.sizes, result.best), *kept])
                        written |= {path} if path else set()
                    if result.tried and (after := result.best if result.won else before) is not None:
                        settled.append((result.choice, result.sizes, after))
        except KeyboardInterrupt:
            if not done:
                raise
            interrupted = True
            log.error(f"interrupted: {len(jobs) - len(done)} of {len(jobs)} cases are missing")
        if not args.json:
            console.print(_table(done))
            for result in done:
                for line in [result.problem, *(f"{name}: {reason}" for name, reason in result.refused.items())]:
                    if line:
                        console.print(f"{result.suite} {result.variant} {result.case}: {line}")
            for path in sorted(written):
                console.print(f"wrote {path}")
        if not any(result.tried for result in done):
            log.error(f"nothing was timed: {done[0].problem if done else 'no case has a candidate for this machine'}")
            return BROKEN
        return INTERRUPTED if interrupted else 0


def _jobs(suites: Sequence[Suite], args: argparse.Namespace, device: str) -> list[tuple[Suite, str, Case]]:
    """Return the series to tune. Tiles come before dispatch, which depends on the tiles.

    Raises:
        SuiteError: a variant or case is unknown.
    """
    from lockstep.tuning.search_space import search_space_of, tunable

    tunable_variants = {suite.name: tunable(suite) for suite in suites}
    known = dict.fromkeys(name for names in tunable_variants.values() for name in names)
    for name in args.variant:
        if name not in known:
            raise SuiteError(f"{args.family}: variant {name!r} has no candidates{nearest(name, known)}")
    if not known:
        raise SuiteError(f"no variant of {args.family} has CANDIDATES, so there is nothing to tune")
    jobs: dict[tuple[Any, ...], tuple[Suite, str, Case]] = {}
    for suite in suites:
        cases = suite.quick if device == "cpu" else suite.cases
        if args.case:
            cases = tuple(case for text in args.case for case in match_cases(suite, text))
        for variant in sorted(tunable_variants[suite.name], key=lambda name: name == "best"):
            for case in cases if not args.variant or variant in args.variant else ():
                space = search_space_of(suite, variant, case)
                # Several cases are one job if the choice does not depend on anything that differs between the cases.
                if space.configs:
                    jobs.setdefault((space.choice, *sorted(space.sizes.items())), (suite, variant, case))
    return list(jobs.values())


def _table(done: Sequence[Tuned]) -> Table:
    from lockstep.tuning.search_space import name_of

    numbers = ("tried", "floor µs", "previous µs", "new µs", "ratio", "95 % interval")
    table = plain_table(("suite", "variant", "case"), numbers, ("best candidate",))
    for result in done:
        cells = [_micro(result.floor_s), _micro(result.previous_s), _micro(result.best_s)]
        ratio = result.ratio
        cells += [f"{ratio.value:.3f}×", f"{ratio.low:.4f} … {ratio.high:.4f}"] if ratio else ["", ""]
        verdict = f"{name_of(result.best)}{'' if result.won else ': not faster, not written'}" if ratio else "none"
        table.add_row(result.suite, result.variant, result.case, str(result.tried), *cells, verdict)
    return table


def _plain(result: Tuned) -> dict[str, Any]:
    """Return the result as an object for JSON; a configuration has its field names."""
    return {**asdict(result), "best": result.best._asdict() if hasattr(result.best, "_asdict") else result.best}


def _micro(seconds: float | None) -> str:
    return f"{seconds * 1e6:.2f}" if seconds else ""
