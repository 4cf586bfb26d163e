"""``lockstep noise``: how closely repeated runs agree, and how closely a kernel agrees with itself (A/A)."""

from __future__ import annotations

import argparse
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from asv.commands import Command
from asv.console import log
from rich.console import Console
from rich.table import Table

from lockstep.asv.client import Worker, WorkerDied, WorkerSpec
from lockstep.asv.record_compile_times import CompileCosts
from lockstep.asv.recorder import Key
from lockstep.commands.cli import UsageError, expect_folder
from lockstep.commands.costs_option import add_costs_option, requested_costs
from lockstep.processes.exit_status import BROKEN, INTERRUPTED
from lockstep.processes.sigterm import sigterm_interrupts
from lockstep.record.console import plain_table, wide_console
from lockstep.record.model import TWIN, Record
from lockstep.record.printed_table import reasons
from lockstep.record.quantity import COST_QUANTITIES, COSTS, PAIRED
from lockstep.suite.case import Case
from lockstep.suite.definition import CACHE_STATES, Suite, SuiteError
from lockstep.suite.discovery import load_suites, nearest, packages_folder, packages_under_test, pick_suites
from lockstep.suite.evaluate import in_history
from lockstep.timing.clocks.reference_clocks import ReferenceClocks

#: Suite, label of the case, and cache state.
Planned = tuple[Suite, str, str]


@dataclass(frozen=True)
class Agreement:
    """One series measured in several fresh runs.

    Attributes:
        suite, variant, case, l2: the series.
        latency_s, speedup: medians over the runs.
        latency_range, speedup_range: (max − min) / median over the runs.
        again_sd: standard deviation of the A/A ratio over the runs (true ratio 1); None without an A/A comparison.
        again_mean: mean of the A/A ratio over the runs, minus 1.
        costs_sd: standard deviation over the runs divided by their mean, of each cost that every run measured.
    """

    suite: str
    variant: str
    case: str
    l2: str
    latency_s: float
    latency_range: float
    speedup: float | None
    speedup_range: float | None
    again_sd: float | None
    again_mean: float | None
    costs_sd: Mapping[str, float] = field(default_factory=dict)


class Noise(Command):  # type: ignore[misc]  # asv has no types
    """Measure how far repeated measurements of the same code scatter."""

    @classmethod
    def setup_arguments(cls, subparsers: Any) -> argparse.ArgumentParser:
        """Add ``noise`` to the command line."""
        parser: argparse.ArgumentParser = subparsers.add_parser(
            "noise",
            help="Show how closely fresh runs agree",
            description="Measure the working tree in several processes, one variant of each case twice (A/A), "
            "and print how closely the processes agree.",
        )
        parser.add_argument("families", nargs="*", help="families or suites to measure (default: all)")
        parser.add_argument("--runs", type=int, default=5, help="number of runs, each in a new process (default: 5)")
        parser.add_argument(
            "--series",
            type=int,
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
        parser.add_argument("--quick", action="store_true", help="measure as briefly as possible, to find errors")
        parser.add_argument("--json", type=Path, metavar="FILE", help="also write each series' agreement to FILE")
        parser.set_defaults(func=cls.run_from_args)
        return parser

    @classmethod
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace) -> int:
        """Print how closely the runs agree, and return the exit status.

        The status is 2 if a series failed in any run, 3 if no series was measured in every run.
        """
        try:
            return cls._run(conf, args)
        except WorkerDied as died:  # only at the start; the recorder replaces workers that die later
            log.error(f"the worker does not start: {died.how}")
            return BROKEN

    @classmethod
    def _run(cls, conf: Any, args: argparse.Namespace) -> int:
        if args.runs < 1:
            raise UsageError(f"--runs {args.runs}: must be at least 1")
        if args.series < 1:
            raise UsageError(f"--series {args.series}: must be at least 1")
        expect_folder(args.json)
        suites_by_name = load_suites(Path(conf.benchmark_dir))
        suites = [suite for name in args.families or suites_by_name for suite in pick_suites(suites_by_name, name)]
        states = CACHE_STATES if args.l2 == "both" else (args.l2,)
        spec = WorkerSpec(
            packages_folder(conf, suites_by_name),
            packages_under_test(conf, suites_by_name),
            Path(conf.benchmark_dir).resolve(),
            quick=args.quick,
        )
        console = Console(stderr=True, highlight=False)
        measurement = _Measurement(
            spec=spec,
            silence_s=float(conf.default_benchmark_timeout),
            suites=suites,
            states=states,
            series=args.series,
            chosen=_chosen(suites, args.variants),
            costs=requested_costs(args.costs, ()),
            say=lambda line: console.print(line, markup=False),
        )
        runs: list[dict[Key, Record]] = []
        try:
            with sigterm_interrupts():
                for number in range(args.runs):
                    arms = measurement.run()
                    runs.append(arms)
                    cases = len(measurement.plan)
                    console.print(f"run {number + 1} of {args.runs}: {cases} cases, {len(arms)} arms", markup=False)
        except KeyboardInterrupt:
            if len(runs) < 2:
                raise
            console.print(f"interrupted: the table shows the {len(runs)} complete runs", markup=False)
        rows = agreements(runs)
        wide = wide_console()
        wide.print(_table(rows))
        if any(row.costs_sd for row in rows):
            wide.print(_costs_table(rows))
        for line in summary(rows):
            wide.print(line, markup=False, highlight=False)
        for line in _missing(runs):
            wide.print(line, markup=False, highlight=False)
        failed = [record for run in runs for record in run.values() if record.state == "failed"]
        for name in dict.fromkeys(record.suite for record in failed):
            for line in reasons([record for record in failed if record.suite == name]):
                wide.print(f"{name} {line}", markup=False, highlight=False)
        if args.json:
            args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
        if len(runs) < args.runs:
            return INTERRUPTED
        if not failed and not rows:
            log.error("no series was measured in every run")
            return BROKEN
        return 2 if failed else 0


@dataclass
class _Measurement:
    """Measures the same cases in one fresh worker after the other.

    Attributes:
        spec: the code to import, and the settings of the measurements.
        silence_s: seconds without an event after which a worker counts as hung.
        suites, states: suites and cache states to measure; a CPU has the state "warm" alone.
        series: number of speedups after which the first run ends.
        chosen: variants to measure of each suite, by its name.
        costs: costs to measure as well.
        say: function that reports a case that is left out.
        plan: the cases of the first run, which the others measure too.
        reference_clocks: the clocks of the first run, as those of a history's first commit.
    """

    spec: WorkerSpec
    silence_s: float
    suites: Sequence[Suite]
    states: Sequence[str]
    series: int
    chosen: Mapping[str, Sequence[str]]
    costs: Sequence[str]
    say: Callable[[str], None]
    plan: list[Planned] = field(default_factory=list)
    reference_clocks: ReferenceClocks = field(default_factory=ReferenceClocks)

    def run(self) -> dict[Key, Record]:
        """Measure the cases in a new worker, one variant of each twice, and return the records."""
        worker = Worker(self.spec, self.silence_s)
        compile_costs = CompileCosts(self.spec)
        arms: dict[Key, Record] = {}
        done: list[Planned] = []
        try:
            on_cpu = worker.host.get("device") == "cpu"
            states = ("warm",) if on_cpu else self.states
            for turn, planned in enumerate(self.plan or in_turn(self.suites, states, quick_only=on_cpu)):
                done.append(planned)
                suite, label, l2 = planned
                variants = self.chosen[suite.name]
                try:
                    records, _, _ = worker.measure(
                        suite.name,
                        label,
                        l2,
                        variants,
                        {},
                        twins=[_twin(suite, label, l2, turn, variants)],
                        reference_mhz=self.reference_clocks.of(suite.name, label, l2),
                        costs=self.costs,
                    )
                except WorkerDied as died:
                    self.say(f"{suite.name} {label} {l2} is left out: {died}")
                    worker.close()
                    worker = Worker(self.spec, self.silence_s)
                    continue
                self.reference_clocks.learn(records)
                if "compile" in self.costs:
                    records = compile_costs.added(worker.host, suite.name, label, records)
                arms |= {record.key: record for record in records}
                if not self.plan and _compared(arms.values()) >= self.series:
                    break
        finally:
            worker.close()
            compile_costs.close()
        self.plan = done
        return arms


def in_turn(suites: Sequence[Suite], states: Sequence[str], *, quick_only: bool) -> Iterator[Planned]:
    """Yield one case of each suite in turn until all are listed, starting in the middle of each suite's list.

    The first case of most suites is the smallest and the noisiest.
    """
    pools = [_middles(list(suite.quick if quick_only else suite.cases)) for suite in suites]
    for turn in itertools.zip_longest(*pools):
        for suite, case in zip(suites, turn, strict=True):
            if case is not None:
                yield from ((suite, case.label, l2) for l2 in states)


def _chosen(suites: Sequence[Suite], variants: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    """Return the variants to measure of each suite, by its name; the baseline is always measured.

    Raises:
        SuiteError: no suite has one of the variants.
    """
    known = dict.fromkeys(name for suite in suites for name in suite.variants())
    for name in variants or ():
        if name not in known:
            raise SuiteError(f"no suite has a variant {name!r}{nearest(name, known)}")
    return {
        suite.name: tuple(
            name for name in suite.variants() if not variants or name in variants or name == suite.baseline
        )
        for suite in suites
    }


def _twin(suite: Suite, label: str, l2: str, turn: int, chosen: Sequence[str]) -> str:
    """Return the variant to measure twice: the next of the chosen variants in turn.

    Measuring every variant twice would double the length of a round, and arms agree less in a longer round.
    """
    followed = [name for name in chosen if in_history(suite, name, suite.case(label), l2)] or [suite.baseline]
    return followed[turn % len(followed)]


def _middles(pool: Sequence[Case]) -> Iterator[Case]:
    """Yield all cases breadth first: the middle, the middle of each half, …"""
    stretches = deque([pool])
    while stretches:
        stretch = stretches.popleft()
        if stretch:
            middle = len(stretch) // 2
            yield stretch[middle]
            stretches += stretch[:middle], stretch[middle + 1 :]


def _compared(records: Iterable[Record]) -> int:
    """Return the number of series with a speedup, without the baseline, whose speedup is 1 by definition."""
    return sum(
        record.speedup is not None and record.variant != record.baseline and not record.variant.endswith(TWIN)
        for record in records
    )


def agreements(runs: Sequence[dict[Key, Record]]) -> list[Agreement]:
    """Return one row for each series that every run measured."""
    rows = []
    for key, first in runs[0].items():
        suite, variant, case, l2 = key
        records = [run[key] for run in runs if key in run and run[key].latency is not None]
        if variant.endswith(TWIN) or first.state != "ok" or len(records) < len(runs):
            continue
        latencies = [record.latency.value for record in records if record.latency]
        speedups = [record.speedup.value for record in records if record.speedup]
        again = [
            twin.speedup.value for run in runs if (twin := run.get((suite, variant + TWIN, case, l2))) and twin.speedup
        ]
        rows.append(
            Agreement(
                suite=suite,
                variant=variant,
                case=case,
                l2=l2,
                latency_s=median(latencies),
                latency_range=_range(latencies),
                speedup=median(speedups) if speedups else None,
                speedup_range=_range(speedups) if speedups else None,
                again_sd=stdev(again) if len(again) > 1 else None,
                again_mean=fmean(again) - 1 if again else None,
                costs_sd=_costs_sd(records),
            )
        )
    return rows


def summary(rows: Sequence[Agreement]) -> Iterator[str]:
    """Yield lines on how closely the runs agree. The baseline's speedup is 1 by definition and is left out."""
    speedups = [row.speedup_range for row in rows if row.speedup_range is not None and row.speedup != 1.0]
    yield _share("speedup", speedups, 0.003, "max − min over median")
    yield _share("latency", [row.latency_range for row in rows], 0.025, "max − min over median")
    yield _share("A/A", [row.again_sd for row in rows if row.again_sd is not None], 0.0005, "standard deviation")

    for quantity in COST_QUANTITIES:
        # The baseline's ratio to itself does not scatter.
        shown = [row for row in rows if quantity not in PAIRED.values() or row.speedup != 1.0]
        scatter = [row.costs_sd[quantity] for row in shown if quantity in row.costs_sd]
        if scatter:
            yield (
                f"{quantity}: {len(scatter)} series; standard deviation: "
                f"median {median(scatter):.2%}, worst {max(scatter):.2%}"
            )


def _costs_sd(records: Sequence[Record]) -> dict[str, float]:
    """Return each cost's standard deviation over the runs, divided by the mean; a cost that a run lacks is left out."""
    values = {
        name: [record.costs[name].value for record in records if name in record.costs] for name in COST_QUANTITIES
    }
    return {
        name: stdev(numbers) / fmean(numbers)
        for name, numbers in values.items()
        if len(numbers) == len(records) > 1 and fmean(numbers)
    }


def _missing(runs: Sequence[dict[Key, Record]]) -> Iterator[str]:
    """Yield each reason why costs are missing, with the series that it concerns."""
    series: dict[str, dict[str, None]] = {}
    for record in (record for run in runs for record in run.values() if not record.variant.endswith(TWIN)):
        for reason in record.note.split("; "):
            if reason.startswith(tuple(f"no {cost}:" for cost in COSTS)):
                series.setdefault(reason, {})[f"{record.suite} {record.variant} {record.case}"] = None
    for reason, names in series.items():
        yield f"{reason} ({next(iter(names))}{f' and {len(names) - 1} more series' if len(names) > 1 else ''})"


def _share(name: str, values: Sequence[float], bar: float, criterion: str) -> str:
    if not values:
        return f"{name}: no values"
    inside = sum(value <= bar for value in values)
    return (
        f"{name}: {inside} of {len(values)} series ({inside / len(values):.0%}) within {bar:.2%} ({criterion}); "
        f"median {median(values):.3%}, worst {max(values):.2%}"
    )


def _range(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / median(values)


def _table(rows: Sequence[Agreement]) -> Table:
    numbers = ("µs", "range", "speedup", "range", "A/A − 1", "A/A sd")
    table = plain_table(("suite", "variant", "case", "L2"), numbers)
    for row in rows:
        table.add_row(
            row.suite,
            row.variant,
            row.case,
            row.l2,
            f"{row.latency_s * 1e6:.2f}",
            f"{row.latency_range:.2%}",
            f"{row.speedup:.4f}" if row.speedup is not None else "",
            f"{row.speedup_range:.3%}" if row.speedup_range is not None else "",
            f"{row.again_mean:+.3%}" if row.again_mean is not None else "",
            f"{row.again_sd:.3%}" if row.again_sd is not None else "",
        )
    return table


def _costs_table(rows: Sequence[Agreement]) -> Table:
    """Return a table of the costs' standard deviations, for the series that have any."""
    shown = [name for name in COST_QUANTITIES if any(name in row.costs_sd for row in rows)]
    table = plain_table(("suite", "variant", "case", "L2"), [f"{name} sd" for name in shown])
    for row in rows:
        if row.costs_sd:
            cells = (f"{row.costs_sd[name]:.2%}" if name in row.costs_sd else "" for name in shown)
            table.add_row(row.suite, row.variant, row.case, row.l2, *cells)
    return table
