"""Series that switch between a few levels, for example where each commit runs on one of several unequal machines.

If the series has switched between two levels before, switching explains a step between them. A step to a level that
the series never had is a change. After the change, the levels are expected at the same distances as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Number of switches after which a series of two or three levels counts as switching; four levels need one more. A
#: change that landed, was reverted and landed again goes back and forth three times. Two slowdowns and a repair of both
#: end at the first level.
SWITCHES = 4

#: Number of newest points in which modes are searched: enough to visit each of four modes a few times.
WINDOW = 120

#: Least distance of modes in their own standard deviations. Halves, thirds or quarters of one normal or uniform
#: distribution lie 2.5 to 3.5 apart, and seldom more than 4.5 in samples of a dozen.
_APART = 5.0
_MOST = 4
#: Least distance of two halves in a quick test. The means of two halves of a normal distribution lie 2.6 of their own
#: standard deviations apart, the means of real modes at least 3.4.
_HALVES = 3.0
#: Least distance of two halves in samples of a few dozen points, in which halves may lie further apart by chance.
_SIDES = 3.3
#: Least number of points in a mode, of which two must be neighbours at least once. Otherwise the points are outliers.
_FEWEST = 3
#: Among points that leave their mode, at most this share may be outliers.
_OUTLIERS = 0.2
#: A point belongs to a mode within this many standard deviations, but not beyond this share of the gap between modes.
_NEAR, _PART = 3.5, 0.35
#: 1, 2, 3, …
_COUNT = np.arange(1, WINDOW + 1)


@dataclass(frozen=True, eq=False)
class Modes:
    """The levels that a series switches between.

    Attributes:
        levels: log values, lowest first, at least two.
        spread: standard deviation of a point about its level.
    """

    levels: Floats
    spread: float

    @property
    def reach(self) -> float:
        """Largest distance between a point and its level, log units."""
        return float(min(_NEAR * self.spread, _PART * np.diff(self.levels).min()))

    def hold(self, y: Floats) -> bool:
        """Return whether the points, without outliers, lie at the levels."""
        off = np.abs(y[:, None] - self.levels).min(axis=1)
        return bool(np.count_nonzero(off > self.reach) <= _OUTLIERS * y.size)

    def hold_moved(self, y: Floats) -> bool:
        """Return whether the levels fit the points after a common shift."""
        return self.shift(y) is not None

    def shift(self, y: Floats) -> float | None:
        """Return the common shift of all levels, in log units, that fits the points; ``None`` if no shift fits."""
        if not y.size:
            return None
        shifts = (y[:, None] - self.levels).ravel()
        off = np.abs(y[:, None, None] - self.levels[:, None] - shifts).min(axis=1)
        best = int((np.minimum(off, self.reach) ** 2).sum(axis=0).argmin())
        if np.count_nonzero(off[:, best] > self.reach) > _OUTLIERS * y.size:
            return None
        rest = y[:, None] - self.levels - shifts[best]
        nearest = rest[np.arange(y.size), np.abs(rest).argmin(axis=1)]
        return float(shifts[best] + np.median(nearest[np.abs(nearest) <= self.reach]))


def modes(y: Floats) -> Modes | None:
    """Return the levels that a series switches between; ``None`` if it does not switch.

    Args:
        y: log values in commit order, none missing.
    """
    y = y[-WINDOW:]
    if not _may_switch(y):
        return None
    ordered = np.sort(y)
    # Prefer the most levels: two of three levels could pass for one level that scatters.
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
    """Return how far the levels of a switching series moved, and the standard error of the move.

    Each level is compared with itself. Plain means of both sides would also differ if the sides visit the levels with
    different frequency.

    Args:
        before, after: log values on both sides of the step, none missing.

    Returns:
        the step and its standard error, log units; ``None`` if the series does not switch before the step, or the
        shifted levels do not fit the points after the step.
    """
    found = modes(before)
    shift = None if found is None else found.shift(after)
    if found is None or shift is None:
        return None
    return shift, found.spread * float(np.sqrt(np.pi / 2 * (1 / before[-WINDOW:].size + 1 / after.size)))


def explained(y: Floats, edges: Sequence[int], index: int) -> int | None:
    """Return whether switching explains the step at ``index``, and which reported changes it explains as well.

    Args:
        y: log values in commit order up to now, none missing.
        edges: indices of the reported changes, oldest first, all before ``index``.
        index: first point of the new level.

    Returns:
        the number of newest reported changes that are switches as well; ``None`` if switching does not explain the
            step.
    """
    new = y[index:]
    edges = [edge for edge in edges if edge > y.size - WINDOW]
    starts = [max(y.size - WINDOW, 0), *edges]
    known = modes(y[starts[-1] : index])
    if known is not None and known.hold(new):
        return 0
    if _returns(y[starts[-1] :], index - starts[-1]):
        return 0
    # A step that moves all modes leads to new levels only, but their distances stay the same.
    for several, edge in enumerate(reversed(edges)):
        before = modes(y[starts[-2 - several] : edge])
        if before is not None and before.hold_moved(y[edge:]):
            return several
    # Changes may have been reported one by one, before enough of them showed that they are switches.
    for several in range(2, len(edges) + 1):
        start = starts[-1 - several]
        if _returns(y[start:], index - start):
            return several
    return None


def _returns(y: Floats, index: int) -> bool:
    """Return whether the points from ``index`` on are one more switch between levels that the series had before."""
    found = modes(y)
    if found is None or not found.hold(y[index:]):
        return False
    near = np.abs(y[:index, None] - found.levels).argmin(axis=1)
    there = {mode for mode in range(len(found.levels)) if np.count_nonzero(near == mode) >= _FEWEST}
    return {int(mode) for mode in np.abs(y[index:, None] - found.levels).argmin(axis=1)} <= there


def _may_switch(y: Floats) -> bool:
    """Return whether a series can switch between levels, in a tenth of the time of ``_partitions``.

    The best cut in two separates some levels from the others. Switches cross the cut, or stay on one side of it.
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
    """Count the crossings of the cut between stays of two points or more. ``ends`` holds the last point of each
    stay.
    """
    last = np.append(ends, above.size - 1)
    long = above[last[np.diff(last, prepend=-1) >= 2]]
    return int(np.count_nonzero(long[1:] != long[:-1]))


def _halves(ordered: Floats, apart: float = _HALVES) -> float | None:
    """Return the best cut of sorted values in two; ``None`` if the halves lie closer than ``apart``."""
    size = ordered.size
    if size < 2 * _FEWEST + 2:
        return None
    count = _COUNT[: size - 1]
    off = ordered - ordered[0]
    sums = off.cumsum()
    left, right = sums[:-1] / count, (sums[-1] - sums[:-1]) / (size - count)
    within = float(off @ off) - count * left**2 - (size - count) * right**2
    best = int(within[_FEWEST - 1 : size - _FEWEST].argmin()) + _FEWEST - 1
    gap = float(right[best] - left[best])
    return float(ordered[best]) if gap * gap * size > apart**2 * max(float(within[best]), 0.0) else None


def _partitions(ordered: Floats) -> list[NDArray[np.intp]]:
    """Return the cuts into two, three and four parts with the least scatter within the parts (Fisher 1958)."""
    size = ordered.size
    if size < 2 * _FEWEST + 2:
        return []
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    squares = np.concatenate([[0.0], np.cumsum(ordered**2)])
    start, stop = np.arange(size + 1)[:, None], np.arange(size + 1)[None, :]
    count = np.maximum(stop - start, 1)
    within = squares[None, :] - squares[:, None] - (sums[None, :] - sums[:, None]) ** 2 / count
    within = np.where(stop > start, within, np.inf)
    cost, cuts, found = within[0], [], []
    for parts in range(2, _MOST + 1):
        total = cost[:, None] + within
        cuts.append(total.argmin(axis=0))
        cost = total.min(axis=0)
        at, places = size, []
        for one in reversed(cuts):
            at = int(one[at])
            places.append(at)
        if len(set(places)) == parts - 1 and places[-1] > 0:
            found.append(np.array(places[::-1]))
    return found


def _switches(labels: NDArray[np.intp], count: int) -> int:
    """Count the switches between levels; 0 if the series never stays at some level for two points in a row."""
    ends = np.flatnonzero(np.append(np.diff(labels), 1))
    lengths = np.diff(ends, prepend=-1)
    stays = labels[ends][lengths >= 2]
    if len(set(stays.tolist())) < count:
        return 0
    return int(np.count_nonzero(np.diff(stays)))


def _spread(part: Floats) -> float:
    """Return the robust standard deviation of sorted values; the plain one for fewer than six values."""
    if part.size < 6:
        return float(part.std(ddof=1))
    return _median(np.sort(np.abs(part - _median(part)))) / 0.6745


def _median(ordered: Floats) -> float:
    """Return the median of sorted values. numpy's own takes 50 times as long on so few."""
    return float(ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2
