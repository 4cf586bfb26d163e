"""Read from the results of one machine what an analysis needs of all its series."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lockstep.history.model import Benchmark, Commit, Floats, Series, Trend
from lockstep.history.snapshot import Results
from lockstep.record.series_name import SeriesName

#: The store has no series for checks: their results are columns of the points of latencies.
_CHECKS = ("check_error", "deterministic")


@dataclass(frozen=True, eq=False)
class MachineResults:
    """The results of one machine.

    Attributes:
        results: all results, for the runs and versions to which the trends refer.
        commits: the commits of the line that the machine measured, oldest first.
        trends: all trends, in the order of the series.
        names: the name of each series for alerts.
        numbers: see ``Results.numbers``.
        baselines: by Lockstep suite, the baseline that most of its series name at their newest point.
        checks: by latency of a Lockstep suite, the results of the checks at its points: errors, and 1 if deterministic
            or 0 if not; NaN if unknown.
    """

    results: Results
    name: str
    commits: Sequence[Commit]
    trends: Sequence[Trend]
    names: Mapping[Series, SeriesName]
    numbers: Mapping[Series, int]
    baselines: Mapping[str, str]
    checks: Mapping[Series, tuple[Floats, Floats]]


def read_machine(results: Results, machine: str) -> MachineResults:
    """Read the results of a machine."""
    series = results.series(machine=machine)
    order = {one: place for place, one in enumerate(series)}
    trends = sorted(results.trends(order), key=lambda trend: order[trend.series])
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    checks: dict[Series, tuple[Floats, Floats]] = {}
    if latencies := [one.series for one in trends if one.benchmark.ours and not one.benchmark.is_ratio]:
        newest, checked = results.columns(machine, ("baseline",)), results.columns(machine, _CHECKS, series=latencies)
        for rank, baseline in zip(newest["rank"].tolist(), newest["baseline"].tolist(), strict=True):
            benchmark = results.benchmarks[series[rank].benchmark]
            if benchmark.ours and baseline:
                votes[benchmark.suite][baseline] += 1
        ranks, starts = np.unique(checked["rank"], return_index=True)
        of_series = zip(*(np.split(checked[name], starts[1:]) for name in _CHECKS), strict=True)
        checks = {series[rank]: both for rank, both in zip(ranks.tolist(), of_series, strict=True)}
    baselines = {suite: count.most_common(1)[0][0] for suite, count in votes.items()}
    names = {one: name_of(one, results.benchmarks[one.benchmark]) for one in series}
    numbers = results.numbers(machine)
    return MachineResults(results, machine, results.commits(machine), trends, names, numbers, baselines, checks)


def name_of(series: Series, benchmark: Benchmark) -> SeriesName:
    """Return the name that alerts use for a series of the store.

    For another project's benchmark, the variant is the last part of the benchmark's name, the case consists of the
    parameters, and the quantity is the unit.
    """
    suite, family = benchmark.suite, benchmark.family
    if benchmark.of_suite:
        variant, case, l2 = (series.axis(axis) for axis in ("variant", "case", "l2"))
        return SeriesName(series.machine, family, suite, variant, case, l2, benchmark.quantity)
    return SeriesName(series.machine, family, suite, benchmark.quantity, series.text, "", benchmark.unit or "value")


def series_by_name(results: Results, machine: str) -> dict[SeriesName, Series]:
    """Return the series of a machine by the names that alerts use for them."""
    return {name_of(series, results.benchmarks[series.benchmark]): series for series in results.series(machine=machine)}
