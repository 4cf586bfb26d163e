"""Series that switch between a few levels, as where a fleet's machines differ and each commit draws one.

A step between two levels that the series has switched between before is explained by the switching. A step that takes
the series to a level where it never was is one, and after it the levels are expected to lie as they lay before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Switches from which on a series of two levels, or of three, is one that switches; one more for four. What landed, was
#: reverted and landed again goes back and forth three times; two slowdowns and a repair of both end where they began.
SWITCHES = 4

#: Points that modes are looked for in: as many as it takes to meet each of four a few times.
WINDOW = 120

#: Modes lie at least this many of their own standard deviations apart. The halves, thirds or quarters of one normal
#: or uniform distribution lie 2.5 to 3.5 apart, and seldom more than 4.5 in samples of a dozen.
_APART = 5.0
_MOST = 4
#: The means of two halves of a normal distribution lie 2.6 of their own standard deviations apart; of any modes, 3.4.
_HALVES = 3.0
#: The same of a few dozen points, of which two halves may lie further apart by chance.
_SIDES = 3.3
#: Points of a mode: fewer are outliers, and so are points of a mode that never follow one another.
_FEWEST = 3
#: Of the points that leave their mode, at most this share may be outliers.
_OUTLIERS = 0.2
#: A point belongs to a mode within this many of its standard deviations, but never beyond this part of a gap.
_NEAR, _PART = 3.5, 0.35
#: 1, 2, 3, …
_COUNT = np.arange(1, WINDOW + 1)


@dataclass(frozen=True, eq=False)
class Modes:
    """The levels that a series switches between.

    Attributes:
        levels: log values, lowest first, at least two.
        spread: standard deviation of a point about its level.
        switches: how often the series went from one to another, single points apart.
    """

    levels: Floats
    spread: float
    switches: int

    @property
    def reach(self) -> float:
        """How far from a level its points lie at most, log units."""
        return float(min(_NEAR * self.spread, _PART * np.diff(self.levels).min()))

    def hold(self, y: Floats, shift: float = 0.0) -> bool:
        """Whether the points, outliers apart, lie at the levels moved by ``shift``."""
        off = np.abs(y[:, None] - self.levels - shift).min(axis=1)
        return bool(np.count_nonzero(off > self.reach) <= _OUTLIERS * y.size)

    def hold_moved(self, y: Floats) -> bool:
        """Return whether the levels fit the points after some common shift."""
        return self.shift(y) is not None

    def shift(self, y: Floats) -> float | None:
        """How far all levels have moved if they hold the points then, log units; ``None`` if they do not."""
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
    """The levels that a series switches between; ``None`` where it has one, or goes from level to level for good.

    Args:
        y: log values in commit order, none missing.
    """
    y = y[-WINDOW:]
    if not _may_switch(y):
        return None
    ordered = np.sort(y)
    # The most levels that are apart: two of three could be taken for one that scatters.
    for cuts in reversed(_partitions(ordered)):
        parts = [part for part in np.split(ordered, cuts) if part.size >= _FEWEST]
        if len(parts) < 2 or sum(part.size for part in parts) < (1 - _OUTLIERS) * y.size:
            continue
        levels = np.array([_median(part) for part in parts])
        spread = max(float(np.sqrt(np.mean([_spread(part) ** 2 for part in parts]))), 1e-12)
        if np.diff(levels).min() > _APART * spread:
            switches = _switches(np.abs(y[:, None] - levels).argmin(axis=1), len(levels))
            return Modes(levels, spread, switches) if switches >= max(SWITCHES, len(levels) + 1) else None
    return None


def step_within(before: Floats, after: Floats) -> tuple[float, float] | None:
    """How far the levels of a series that switches moved, each compared with itself, and the standard error of that.

    Means of both sides differ as well where one side met another machine more often.

    Args:
        before, after: log values on both sides of the step, none missing.

    Returns:
        the step and its standard error, log units; ``None`` if the series does not switch before the step, or lies at
        other levels after it.
    """
    found = modes(before)
    shift = None if found is None else found.shift(after)
    if found is None or shift is None:
        return None
    return shift, found.spread * float(np.sqrt(np.pi / 2 * (1 / before[-WINDOW:].size + 1 / after.size)))


def explained(y: Floats, edges: Sequence[int], index: int) -> int | None:
    """Whether switching explains that the level changes at ``index``, and which reported changes with it.

    Args:
        y: log values in commit order up to now, none missing.
        edges: where the reported changes lie, oldest first, all before ``index``.
        index: first point of the new level.

    Returns:
        how many of the newest reported changes are switches as well; ``None`` where the change is none.
    """
    new = y[index:]
    edges = [edge for edge in edges if edge > y.size - WINDOW]
    starts = [max(y.size - WINDOW, 0), *edges]
    known = modes(y[starts[-1] : index])
    if known is not None and known.hold(new):
        return 0
    if _returns(y[starts[-1] :], index - starts[-1]):
        return 0
    # After a step of all modes each of them is a level that was never seen; they lie apart as they did before.
    for several, edge in enumerate(reversed(edges)):
        before = modes(y[starts[-2 - several] : edge])
        if before is not None and before.hold_moved(y[edge:]):
            return several
    # Reported one by one, before there were enough to see that they are switches.
    for several in range(2, len(edges) + 1):
        start = starts[-1 - several]
        if _returns(y[start:], index - start):
            return several
    return None


def _returns(y: Floats, index: int) -> bool:
    """Whether the points from ``index`` on make one switch more between levels that were there before."""
    found = modes(y)
    if found is None or not found.hold(y[index:]):
        return False
    near = np.abs(y[:index, None] - found.levels).argmin(axis=1)
    there = {mode for mode in range(len(found.levels)) if np.count_nonzero(near == mode) >= _FEWEST}
    return {int(mode) for mode in np.abs(y[index:, None] - found.levels).argmin(axis=1)} <= there


def _may_switch(y: Floats) -> bool:
    """Return whether a series can switch between levels, in a tenth of the time of ``_partitions``.

    The best cut in two separates some levels from the others. A series switches across it, or on one side of it.
    """
    cut = _halves(np.sort(y))
    if cut is None:
        return False
    above = y > cut
    ends = np.flatnonzero(above[1:] != above[:-1])
    # A step for good crosses the cut once, and an outlier twice.
    return (ends.size >= SWITCHES and _stays(above, ends) >= SWITCHES) or any(
        _halves(np.sort(y[side]), _SIDES) is not None for side in (above, ~above)
    )


def _stays(above: NDArray[np.bool_], ends: NDArray[np.intp]) -> int:
    """Count the crossings of the cut between stays of two points or more; ``ends``: last points of the stays."""
    last = np.append(ends, above.size - 1)
    long = above[last[np.diff(last, prepend=-1) >= 2]]
    return int(np.count_nonzero(long[1:] != long[:-1]))


def _halves(ordered: Floats, apart: float = _HALVES) -> float | None:
    """Return the best cut of sorted values in two; ``None`` where the halves are not ``apart``."""
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
    """Where to cut sorted values into two, three and four parts so that they scatter least within (Fisher 1958)."""
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
    """How often a series goes from one level to another, each visited for two points at once at some time."""
    ends = np.flatnonzero(np.append(np.diff(labels), 1))
    lengths = np.diff(ends, prepend=-1)
    stays = labels[ends][lengths >= 2]
    if len(set(stays.tolist())) < count:
        return 0
    return int(np.count_nonzero(np.diff(stays)))


def _spread(part: Floats) -> float:
    """Robust standard deviation of sorted values; the sample's own where they are too few for a median."""
    if part.size < 6:
        return float(part.std(ddof=1))
    return _median(np.sort(np.abs(part - _median(part)))) / 0.6745


def _median(ordered: Floats) -> float:
    """Median of sorted values: numpy's own takes 50 times as long on so few."""
    return float(ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2
