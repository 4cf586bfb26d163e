"""Find series that switch between a few levels ("modes"), for example because the machine differs from run to run.

If a series has switched between two levels before, a step between them is not a change. A step to a level that the
series never had is a change. After it, all levels are expected at the same distances from one another as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Number of switches after which a series of two or three levels counts as switching. Four levels need one more. Real
#: changes cause fewer: a change that landed, was reverted and landed again makes three steps, and so do two slowdowns
#: and a repair of both.
SWITCHES = 4

#: Number of newest points in which modes are searched. They suffice for a few visits to each of four modes.
WINDOW = 120

#: Minimum distance of modes in their own standard deviations. The halves, thirds or quarters of a single normal or
#: uniform distribution are 2.5 to 3.5 apart, and seldom more than 4.5 in samples of a dozen points.
_APART = 5.0
_MOST = 4
#: Minimum distance of two halves in a quick test. The means of the two halves of a normal distribution are 2.6 of their
#: own standard deviations apart, and the means of real modes at least 3.4.
_HALVES = 3.0
#: Minimum distance of two halves in samples of a few dozen points, in which halves may be farther apart by chance.
_SIDES = 3.3
#: Minimum number of points in a mode, of which two must be neighbours at least once. Otherwise they are outliers.
_FEWEST = 3
#: Maximum share of the points that may lie off all modes as outliers.
_OUTLIERS = 0.2
#: A point belongs to a mode if it is within this many standard deviations, and within this share of the gap between
#: modes.
_NEAR, _PART = 3.5, 0.35
#: 1, 2, 3, …
_COUNT = np.arange(1, WINDOW + 1)


@dataclass(frozen=True, eq=False)
class Modes:
    """The levels between which a series switches.

    Attributes:
        levels: log values, lowest first, at least two.
        spread: standard deviation of a point about its level.
    """

    levels: Floats
    spread: float

    @property
    def reach(self) -> float:
        """Maximum distance at which a point still counts as lying at a level, in log units."""
        return float(min(_NEAR * self.spread, _PART * np.diff(self.levels).min()))

    def hold(self, y: Floats) -> bool:
        """Return whether all points except a few outliers lie at the levels."""
        distances = np.abs(y[:, None] - self.levels).min(axis=1)
        return bool(np.count_nonzero(distances > self.reach) <= _OUTLIERS * y.size)

    def shift(self, y: Floats) -> float | None:
        """Return by how much all levels must be shifted to fit the points, in log units; ``None`` if no shift fits."""
        if not y.size:
            return None
        shifts = (y[:, None] - self.levels).ravel()
        distances = np.abs(y[:, None, None] - self.levels[:, None] - shifts).min(axis=1)
        best = int((np.minimum(distances, self.reach) ** 2).sum(axis=0).argmin())
        if np.count_nonzero(distances[:, best] > self.reach) > _OUTLIERS * y.size:
            return None
        residuals = y[:, None] - self.levels - shifts[best]
        nearest = residuals[np.arange(y.size), np.abs(residuals).argmin(axis=1)]
        return float(shifts[best] + np.median(nearest[np.abs(nearest) <= self.reach]))


def modes(y: Floats) -> Modes | None:
    """Return the levels between which a series switches; ``None`` if it does not switch.

    Args:
        y: log values in commit order, none missing.
    """
    y = y[-WINDOW:]
    if not _may_switch(y):
        return None
    ordered = np.sort(y)
    # Try the most levels first, because two of three levels could look like one level that scatters.
    for cuts in reversed(_partitions(ordered)):
        parts = [part for part in np.split(ordered, cuts) if part.size >= _FEWEST]
        if len(parts) < 2 or sum(part.size for part in parts) < (1 - _OUTLIERS) * y.size:
            continue
        levels = np.array([_median(part) for part in parts])
        spread = max(float(np.sqrt(np.mean([_spread(part) ** 2 for part in parts]))), 1e-12)
        if np.diff(levels).min() > _APART * spread:
            switches = _switches(np.abs(y[:, None] - levels).argmin(axis=1), len(levels))
            return Modes(levels, spread) if switches >= max(SWITCHES, len(levels) + 1) else None
    return None


def step_within(before: Floats, after: Floats) -> tuple[float, float] | None:
    """Return how far the levels of a switching series moved at a step, and the standard error of the move.

    Each level after the step is compared with the same level before it. The plain means of the two sides would also
    differ if one side visits a level more often than the other.

    Args:
        before, after: log values on both sides of the step, none missing.

    Returns:
        the step and its standard error, log units; ``None`` if the series does not switch before the step, or the
        shifted levels do not fit the points after the step.
    """
    series_modes = modes(before)
    shift = None if series_modes is None else series_modes.shift(after)
    if series_modes is None or shift is None:
        return None
    return shift, series_modes.spread * float(np.sqrt(np.pi / 2 * (1 / before[-WINDOW:].size + 1 / after.size)))


def explained(y: Floats, edges: Sequence[int], index: int) -> int | None:
    """Return how many reported changes turn out to be switches together with the step at ``index``.

    Args:
        y: log values in commit order up to now, none missing.
        edges: indices of the reported changes, oldest first, all before ``index``.
        index: first point of the new level.

    Returns:
        the number of newest reported changes that are switches; ``None`` if the step at ``index`` is not a switch.
    """
    new = y[index:]
    edges = [edge for edge in edges if edge > y.size - WINDOW]
    starts = [max(y.size - WINDOW, 0), *edges]
    known = modes(y[starts[-1] : index])
    if known is not None and known.hold(new):
        return 0
    if _returns(y[starts[-1] :], index - starts[-1]):
        return 0
    # If a change moves all modes, the series has only new levels after it, but at the same distances.
    for skipped_edges, edge in enumerate(reversed(edges)):
        before = modes(y[starts[-2 - skipped_edges] : edge])
        if before is not None and before.shift(y[edge:]) is not None:
            return skipped_edges
    # Switches may have been reported as changes before there were enough of them to recognise.
    for skipped_edges in range(2, len(edges) + 1):
        start = starts[-1 - skipped_edges]
        if _returns(y[start:], index - start):
            return skipped_edges
    return None


def _returns(y: Floats, index: int) -> bool:
    """Return whether the points from ``index`` on lie at a level to which the series has switched before."""
    series_modes = modes(y)
    if series_modes is None or not series_modes.hold(y[index:]):
        return False
    nearest_mode = np.abs(y[:index, None] - series_modes.levels).argmin(axis=1)
    visited_modes = {
        mode for mode in range(len(series_modes.levels)) if np.count_nonzero(nearest_mode == mode) >= _FEWEST
    }
    return {int(mode) for mode in np.abs(y[index:, None] - series_modes.levels).argmin(axis=1)} <= visited_modes


def _may_switch(y: Floats) -> bool:
    """Return whether a series may switch between levels: a quick test before the ten times slower ``_partitions``.

    The best cut in two separates some levels from the others. The series either switches across the cut, or between
    levels on the same side of it.
    """
    cut = _halves(np.sort(y))
    if cut is None:
        return False
    above = y > cut
    ends = np.flatnonzero(above[1:] != above[:-1])
    # A permanent step crosses the cut once, and an outlier twice.
    return (ends.size >= SWITCHES and _stays(above, ends) >= SWITCHES) or any(
        _halves(np.sort(y[side]), _SIDES) is not None for side in (above, ~above)
    )


def _stays(above: NDArray[np.bool_], ends: NDArray[np.intp]) -> int:
    """Count how often a series crosses a cut value between two stays of at least two points on one side of the value.

    ``above`` states which points lie above the value. ``ends`` holds the last point of each stay except the last stay.
    """
    last = np.append(ends, above.size - 1)
    long = above[last[np.diff(last, prepend=-1) >= 2]]
    return int(np.count_nonzero(long[1:] != long[:-1]))


def _halves(ordered: Floats, least_distance: float = _HALVES) -> float | None:
    """Return the value that best halves sorted values; ``None`` if the halves are closer than ``least_distance``."""
    size = ordered.size
    if size < 2 * _FEWEST + 2:
        return None
    count = _COUNT[: size - 1]
    offsets = ordered - ordered[0]
    sums = offsets.cumsum()
    left, right = sums[:-1] / count, (sums[-1] - sums[:-1]) / (size - count)
    scatter = float(offsets @ offsets) - count * left**2 - (size - count) * right**2
    best = int(scatter[_FEWEST - 1 : size - _FEWEST].argmin()) + _FEWEST - 1
    gap = float(right[best] - left[best])
    return float(ordered[best]) if gap * gap * size > least_distance**2 * max(float(scatter[best]), 0.0) else None


def _partitions(ordered: Floats) -> list[NDArray[np.intp]]:
    """Return how sorted values are best cut into two, three and four parts: with the least scatter within the parts.

    The method is that of Fisher (1958).
    """
    size = ordered.size
    if size < 2 * _FEWEST + 2:
        return []
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    squares = np.concatenate([[0.0], np.cumsum(ordered**2)])
    start, stop = np.arange(size + 1)[:, None], np.arange(size + 1)[None, :]
    count = np.maximum(stop - start, 1)
    scatter = squares[None, :] - squares[:, None] - (sums[None, :] - sums[:, None]) ** 2 / count
    scatter = np.where(stop > start, scatter, np.inf)
    cost, cuts, partitions = scatter[0], [], []
    for parts in range(2, _MOST + 1):
        total = cost[:, None] + scatter
        cuts.append(total.argmin(axis=0))
        cost = total.min(axis=0)
        at, places = size, []
        for cut in reversed(cuts):
            at = int(cut[at])
            places.append(at)
        if len(set(places)) == parts - 1 and places[-1] > 0:
            partitions.append(np.array(places[::-1]))
    return partitions


def _switches(labels: NDArray[np.intp], count: int) -> int:
    """Count the switches between levels; 0 if there is a level at which the series never stays for two points."""
    ends = np.flatnonzero(np.append(np.diff(labels), 1))
    lengths = np.diff(ends, prepend=-1)
    stays = labels[ends][lengths >= 2]
    if len(set(stays.tolist())) < count:
        return 0
    return int(np.count_nonzero(np.diff(stays)))


def _spread(part: Floats) -> float:
    """Return a robust standard deviation of sorted values; for fewer than six values, the plain one."""
    if part.size < 6:
        return float(part.std(ddof=1))
    return _median(np.sort(np.abs(part - _median(part)))) / 0.6745


def _median(ordered: Floats) -> float:
    """Return the median of sorted values. For so few values, numpy's own function takes 50 times as long."""
    return float(ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2
