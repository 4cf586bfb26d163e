"""Choose the series in which the detector looks for changes, and split their points by benchmark version.

For a variant of a Lockstep suite, the paired speedup is followed, because it is far more certain than the latency. The
baseline has no speedup, so its latency is followed. If a machine becomes slower, its baselines therefore report it
once, and its other variants do not. The cost ``behind`` (time of a call that follows a fixed kernel) is also followed
as a ratio. Other costs, exact quantities and benchmarks of other projects are followed by their numbers.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lockstep.detect import Change
from lockstep.detect import Trend as Values
from lockstep.detect.exact_changes import ROUNDING, determinism_changes, error_changes, positive
from lockstep.history.model import STATES, Benchmark, Floats, Series, Trend
from lockstep.history.snapshot import Results
from lockstep.record.quantity import CHECKED, PAIRED, Better
from lockstep.record.series_name import SeriesName

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Followed:
    """A series under one benchmark version, as input of the detector, with the latencies that may explain its changes.

    Attributes:
        name: the name of the series.
        trend: the measurements of the benchmark version that have a number, oldest first.
        values: the numbers for the detector, one for each point of ``trend``.
        own, baseline: latencies of the variant and of its baseline at ``trend.commit``, in seconds, NaN if unknown;
            ``None`` for benchmarks of other projects.
        version: the index of the benchmark version, in the order of first appearance.
        copies: the points that copy the number of another commit with the same work; ``None`` if there are none.
        number: the number of the series, see ``Results.numbers``; 0 for the result of a check.
        noise: run-to-run noise that the detector found (standard deviation of the logarithm); NaN if unknown.
    """

    name: SeriesName
    trend: Trend
    values: Values
    own: Floats | None = None
    baseline: Floats | None = None
    version: int = 0
    copies: Trend | None = None
    number: int = 0
    noise: float = math.nan

    @property
    def better(self) -> Better:
        """The better direction of the numbers."""
        if self.name.quantity in CHECKED:
            return "higher" if self.name.quantity == "deterministic" else "lower"
        return self.trend.benchmark.better

    @property
    def exact(self) -> bool:
        """Whether the quantity is exact: it has no noise, so every difference is a change."""
        return self.trend.benchmark.exact or self.name.quantity in CHECKED


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


def followed(trends: list[Trend], numbers: Mapping[Series, int], baselines: Mapping[str, str]) -> list[Followed]:
    """Select the series to follow, and return an entry for each benchmark version of each.

    Of a measured time and its ratio to the baseline, only one is followed: the ratio if it has numbers, otherwise the
    time. A baseline is followed by its time. The entries of a series begin with its oldest benchmark version, because a
    change found under an old version stays valid.

    Args:
        trends: all trends of a machine.
        numbers: see ``Results.numbers``.
        baselines: the baseline of each Lockstep suite, by suite.
    """
    trend_of_name = {name_of(trend.series, trend.benchmark): trend for trend in trends if trend.benchmark.measured}
    pairs = {quantity: pair for pair in PAIRED.items() for quantity in pair}
    series = []
    for trend in trends:
        name = name_of(trend.series, trend.benchmark)
        own = base = None
        if name in trend_of_name and name.quantity in pairs:
            time, ratio = pairs[name.quantity]
            baseline = baselines.get(name.suite, "")
            ratios = trend_of_name.get(replace(name, quantity=ratio))
            paired = name.variant != baseline and ratios is not None and bool(np.isfinite(ratios.value).any())
            if paired != (name.quantity == ratio):
                continue
            own = trend_of_name.get(replace(name, quantity=time))
            base = trend_of_name.get(replace(name, quantity=time, variant=baseline)) if paired else None
        copied = trend.same_work_as != 0
        copies = select(trend, copied) if copied.any() else None
        for version, points in enumerate(by_version(trend, np.isfinite(trend.value) & ~copied)):
            times, number = (_at(own, points), _at(base, points)), numbers[trend.series]
            series.append(Followed(name, points, values_of(points), *times, version, copies, number))
    return series


def by_version(trend: Trend, chosen: Mask) -> list[Trend]:
    """Return one trend per benchmark version, ordered by first appearance, of only the chosen points."""
    versions = dict.fromkeys(trend.version[chosen].tolist())
    return [select(trend, chosen & (trend.version == version)) for version in versions]


def select(trend: Trend, mask: Mask) -> Trend:
    """Return the trend with only the points that the mask selects."""
    arrays = {
        field: getattr(trend, field)[mask]
        for field in Trend.__dataclass_fields__
        if field not in ("series", "benchmark")
    }
    return Trend(trend.series, trend.benchmark, **arrays)


def values_of(points: Trend) -> Values:
    """Return the numbers for the detector, with their errors: the paired ratios if every point has one.

    Otherwise only the plain values, such as asv's median of ratios, are usable for all points.
    """
    if points.benchmark.exact:
        return Values(positive(points.value), None)
    if points.benchmark.is_ratio and np.isfinite(points.log_ratio).all():
        return Values(np.exp(points.log_ratio), points.ratio_error)
    # The stored errors are those of logarithms, which a series with a zero or negative number does not have.
    ratio = not bool((points.value <= 0).any())
    return Values(points.value, points.error if ratio else np.full(len(points), np.nan))


def common_baselines(results: Results, machine: str) -> dict[str, str]:
    """Return the baseline that most series of a Lockstep suite name at their newest point, by suite."""
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    if any(benchmark.ours for benchmark in results.benchmarks.values()):
        columns, series = results.columns(machine, ("baseline",)), results.series(machine=machine)
        for rank, baseline in zip(columns["rank"].tolist(), columns["baseline"].tolist(), strict=True):
            benchmark = results.benchmarks[series[rank].benchmark]
            if benchmark.ours and baseline:
                votes[benchmark.suite][baseline] += 1
    return {suite: count.most_common(1)[0][0] for suite, count in votes.items()}


def _at(latency: Trend | None, points: Trend) -> Floats | None:
    """Return the numbers of ``latency`` at the commits of ``points``, in seconds; NaN where unknown."""
    if latency is None:
        return None
    known = dict(zip(latency.commit.tolist(), latency.value.tolist(), strict=True))
    return np.array([known.get(commit, np.nan) for commit in points.commit.tolist()])


#: The store has no series for checks: their results are columns of the points of latencies. All cache states of a case
#: share a check.
_CHECKS = ("check_error", "deterministic")


def follow_checks(results: Results, trends: Sequence[Trend]) -> list[tuple[Followed, Sequence[Change]]]:
    """Return the correctness checks of a machine that changed, each with its changes.

    Args:
        trends: all trends of the machine.
    """
    changed: list[tuple[Followed, Sequence[Change]]] = []
    for trend, error, same in _read_checks(results, _first_of_each_case(trends)):
        ok = (trend.state == STATES.index("ok")) & (trend.same_work_as == 0)
        for quantity, numbers in (("error", error), ("deterministic", same)):
            checked = replace(trend, value=numbers)
            for version, points in enumerate(by_version(checked, ok & np.isfinite(numbers))):
                if quantity == "error":
                    changes, values = error_changes(points.value), np.maximum(points.value, ROUNDING)
                else:
                    changes, values = determinism_changes(points.value), positive(points.value)
                if changes:
                    of = replace(name_of(points.series, points.benchmark), quantity=quantity)
                    changed.append((Followed(of, points, Values(values), version=version), changes))
    return changed


def _first_of_each_case(trends: Sequence[Trend]) -> list[Trend]:
    """Return one latency for each variant and case of Lockstep's suites."""
    first_trends: dict[SeriesName, Trend] = {}
    for trend in trends:
        if trend.benchmark.ours and not trend.benchmark.is_ratio:
            name = replace(name_of(trend.series, trend.benchmark), l2="")
            if name not in first_trends or trend.series.axis("l2") < first_trends[name].series.axis("l2"):
                first_trends[name] = trend
    return list(first_trends.values())


def _read_checks(results: Results, trends: Sequence[Trend]) -> list[tuple[Trend, Floats, Floats]]:
    """Return each trend with the results of the checks at its points: errors, and 1 if deterministic or 0 if not.

    A result is NaN if unknown.
    """
    series = [trend.series for trend in trends]
    columns = results.columns(series[0].machine, _CHECKS, series=series) if series else {}
    if not columns:
        return []
    machine_series = results.series(machine=series[0].machine)
    ranks, starts = np.unique(columns["rank"], return_index=True)
    error, same = (np.split(columns[name], starts[1:]) for name in _CHECKS)
    places = {machine_series[rank]: place for place, rank in enumerate(ranks.tolist())}
    return [(trend, error[places[trend.series]], same[places[trend.series]]) for trend in trends]
