"""Find the changes that are larger than the noise explains, before the detector has confirmed them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockstep.compare.rows import VALUE, Key, Row, key_of, part_of, suite_of
from lockstep.compare.since_commit import Difference
from lockstep.compare.verdict import Change
from lockstep.detect.noise import CAUTION
from lockstep.history.snapshot import Results

#: Commits whose points say what is usual for a series.
RECENT = 24

#: Points up to the earlier commit whose median is the level there: two odd ones do not move it.
BEFORE = 5


@dataclass(frozen=True, slots=True)
class Look:
    """A series' newest row and what it did since an earlier commit.

    Attributes:
        row: the newest.
        difference: with the noise from run to run in its interval; that noise is known.
        confidence: of the interval, and of all looks together.
        place: of the newest row's commit among the machine's.
    """

    row: Row
    difference: Difference
    confidence: float
    place: int


def beyond_noise(results: Results, machine: str, first: int, looks: Sequence[Look], compared: int) -> frozenset[Key]:
    """Return the series whose change is larger than the noise explains among all that a reader looks at.

    The confidence holds for all looks together (Bonferroni): of 500 intervals at 99 % five leave out zero by chance.
    The newest point must also be that far from the series' level before it, and from that at the earlier commit: an odd
    point there would make all later ones look changed. These levels are medians of the points since the earlier commit
    and of the last ``BEFORE`` points up to it.

    Args:
        results: of all machines.
        machine: of the looks.
        first: place of the earlier commit among the machine's.
        looks: at series whose noise is known.
        compared: number of series that were compared, known noise or not.
    """
    # Noise that is estimated from few commits is often too small.
    doubt = math.sqrt(1 + CAUTION / len(results.commits(machine)))
    needed = {one.row.key: _needed(one, max(compared, 1), doubt) for one in looks}
    far = {one.row.key: one for one in looks if abs(one.difference.worse or 0.0) > needed[one.row.key]}
    moved = _from_usual(results, machine, first, far)
    # Of a series with no other point there is nothing more to ask.
    return frozenset(
        key
        for key, one in far.items()
        if moved.get(key, one.difference.worse or 0.0) * math.copysign(1, one.difference.worse or 0.0) > needed[key]
    )


def _needed(one: Look, compared: int, doubt: float) -> float:
    """Return the log of the smallest factor that is beyond the noise; infinite where the difference is not sure."""
    told = one.difference
    if told.verdict not in ("slower", "faster") or told.worse is None or told.high is None:
        return math.inf
    error = (told.high - told.worse) / Change(0.0, 1.0).half(one.confidence)
    half = Change(0.0, doubt * error).half(1 - (1 - one.confidence) / compared)
    return max(half, math.log1p(one.row.mde or 0.0))


def _from_usual(results: Results, machine: str, first: int, far: Mapping[Key, Look]) -> dict[Key, float]:
    """Return by how much the newest point is worse than the nearer of two levels before it, as a log of a factor."""
    series = {}
    for one in results.series(machine=machine) if far else ():
        benchmark = results.benchmarks[one.benchmark]
        key = key_of(one, suite_of(benchmark))
        if key in far and part_of(benchmark) == far[key].difference.quantity:
            series[one] = far[key]
    moved = {}
    for trend in results.trends(series, last=RECENT + BEFORE):
        look = series[trend.series]
        here = trend.value > 0
        now = here & (trend.commit == look.place)
        if not now.any():
            continue
        same = here & (trend.version == trend.version[now][-1])
        since = np.log(trend.value[same & (trend.commit >= first) & (trend.commit < look.place)])[-RECENT:]
        before = np.log(trend.value[same & (trend.commit <= first)])[-BEFORE:]
        quantity = look.difference.quantity
        better = quantity == "speedup" or (quantity == VALUE and look.row.higher_is_better)
        sign = -1.0 if better else 1.0
        newest = math.log(trend.value[now][-1])
        grown = [sign * (newest - level) for some in (since, before) for level in _levels(some)]
        if grown:
            # A point that equals either level has not left it.
            moved[look.row.key] = min(grown, key=abs)
    return moved


def _levels(values: NDArray[np.float64]) -> list[float]:
    """Return the middle values: of an even number two, since either may be the odd one."""
    ordered = np.sort(values)
    count = len(ordered)
    return [float(ordered[at]) for at in {(count - 1) // 2, count // 2}] if count else []
