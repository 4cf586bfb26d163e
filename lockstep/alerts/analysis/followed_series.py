"""Choose the series in which the detector looks for changes, and split their points by benchmark version.

For a variant of a Lockstep suite, the paired speedup is followed, because it is far more certain than the latency. The
baseline has no speedup, so its latency is followed. If a machine becomes slower, its baselines therefore report it
once, and its other variants do not. The cost ``behind`` (time of a call that follows a fixed kernel) is also followed
as a ratio. Other costs, exact quantities and benchmarks of other projects are followed by their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lockstep.alerts.analysis.machine_results import MachineResults
from lockstep.detect import Change
from lockstep.detect import Trend as Values
from lockstep.detect.exact_changes import determinism_changes, error_changes, exact_changes, positive
from lockstep.history.model import STATES, Floats, Trend
from lockstep.record.quantity import CHECKED, PAIRED, Better
from lockstep.record.series_name import BEST, SeriesName

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Followed:
    """A series under one benchmark version, as input of the detector, with the latencies that may explain its changes.

    Attributes:
        trend: the measurements of the benchmark version that have a number, oldest first.
        values: the numbers for the detector, one for each point of ``trend``.
        own, baseline: latencies of the variant and of its baseline at ``trend.commit``, in seconds, NaN if unknown;
            ``None`` for benchmarks of other projects.
        best: the numbers of the suite's variant ``best`` at ``trend.commit``, NaN if unknown; ``None`` without it.
        version: the index of the benchmark version, in the order of first appearance.
        copies: the points that copy the number of another commit with the same work; ``None`` if there are none.
        number: the number of the series, see ``Results.numbers``; 0 for the result of a check.
        noise: run-to-run noise that the detector found, see ``lockstep.detect.Noise``; NaN if unknown.
    """

    name: SeriesName
    trend: Trend
    values: Values
    own: Floats | None = None
    baseline: Floats | None = None
    best: Floats | None = None
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
    def changes(self) -> Sequence[Change]:
        """The changes of an exact quantity. Later points do not move them."""
        if self.name.quantity == "error":
            return error_changes(self.trend.value)
        same = self.name.quantity == "deterministic"
        return determinism_changes(self.trend.value) if same else exact_changes(self.values.values)

    @property
    def exact(self) -> bool:
        """Whether the quantity is exact: it has no noise, so every difference is a change."""
        return self.trend.benchmark.exact or self.name.quantity in CHECKED


def followed(machine: MachineResults) -> list[Followed]:
    """Return the series of a machine to follow, and its correctness checks: an entry for each benchmark version.

    Of a measured time and its ratio to the baseline, only one is followed: the ratio if it has numbers, otherwise the
    time. A baseline is followed by its time. The entries of a series begin with its oldest benchmark version, because a
    change found under an old version stays valid.
    """
    named = {machine.names[trend.series]: trend for trend in machine.trends}
    pairs = {quantity: pair for pair in PAIRED.items() for quantity in pair}
    series = []
    for trend in machine.trends:
        name = machine.names[trend.series]
        own = base = best = None
        if trend.benchmark.measured and name.quantity in pairs:
            time, ratio = pairs[name.quantity]
            baseline = machine.baselines.get(name.suite, "")
            ratios = named.get(replace(name, quantity=ratio))
            paired = name.variant != baseline and ratios is not None and bool(np.isfinite(ratios.value).any())
            if paired != (name.quantity == ratio):
                continue
            own = named.get(replace(name, quantity=time))
            base = named.get(replace(name, quantity=time, variant=baseline)) if paired else None
            if trend.benchmark.ours and name.variant != BEST:
                best = named.get(replace(name, variant=BEST))
        copied = trend.same_work_as != 0
        copies = select(trend, copied) if copied.any() else None
        for version, points in enumerate(by_version(trend, np.isfinite(trend.value) & ~copied)):
            times = _at(own, points), _at(base, points), _at(best, points)
            number = machine.numbers[trend.series]
            series.append(Followed(name, points, values_of(points), *times, version, copies, number))
    return [*series, *_checks(machine)]


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


def _at(latency: Trend | None, points: Trend) -> Floats | None:
    """Return the numbers of another series at the commits of ``points``; NaN where unknown."""
    if latency is None:
        return None
    known = dict(zip(latency.commit.tolist(), latency.value.tolist(), strict=True))
    return np.array([known.get(commit, np.nan) for commit in points.commit.tolist()])


def _checks(machine: MachineResults) -> Iterator[Followed]:
    """Yield the correctness checks of a machine. All cache states of a case share a check, so only the first counts."""
    first: dict[SeriesName, Trend] = {}
    for trend in machine.trends:
        if trend.series in machine.checks:
            name = machine.names[trend.series]
            of_case = replace(name, l2="")
            if of_case not in first or name.l2 < machine.names[first[of_case].series].l2:
                first[of_case] = trend
    for trend in first.values():
        ok = (trend.state == STATES.index("ok")) & (trend.same_work_as == 0)
        for quantity, numbers in zip(("error", "deterministic"), machine.checks[trend.series], strict=True):
            name, checked = replace(machine.names[trend.series], quantity=quantity), replace(trend, value=numbers)
            for version, points in enumerate(by_version(checked, ok & np.isfinite(numbers))):
                yield Followed(name, points, Values(points.value), version=version)
