"""What the state of a replay says about one series, for the person reading."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dashboard.changes.doubts import autocorrelation, median, two_modes
from dashboard.changes.findings import Analysis, Change, Level, Noise, Seen, Sense
from dashboard.changes.hindsight import Sight
from dashboard.changes.hypotheses import NEARBY, Floats
from dashboard.changes.replay import LARGEST, LOOK_BACK, Replay, Shift
from dashboard.changes.scatter import CAUTION
from dashboard.changes.settings import Settings
from dashboard.changes.trend import Better

#: Normal quantiles: of a 95 % interval, and of a power of 80 %.
_WIDE, _POWER = 1.959964, 0.841621
#: Correlation of neighbours, and standard errors of a slope, from which on a level is said to drift.
_LINKED, _SLOPING = 0.35, 5.0
#: Repeats beyond this many are no plan.
_MOST = 1000


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Points between two changes: where, their mean in log units, its standard error, and how many count."""

    start: int
    stop: int
    mean: float
    error: float
    count: float
    odd: tuple[int, ...]
    rest: Floats


def summarise(replay: Replay, row: int, better: Better, sights: Sequence[Sight]) -> Analysis:
    """The analysis of series ``row``, in the trend's own unit. ``sights``: what it shows in hindsight."""
    settings = replay.settings
    shifts = list(replay.reported(row))
    scale = float(np.sqrt(replay.scatter.variance[row]))
    stretches = _stretches(replay, row, [shift.index for shift in shifts], scale)
    changes = tuple(
        _change(replay, row, shift, left, right, better)
        for shift, left, right in zip(shifts, stretches[:-1], stretches[1:], strict=True)
    )
    noise = _noise(replay, row, stretches[-1], scale)
    known = noise.kind != "short"
    return Analysis(
        changes=changes,
        revisions=tuple(replay.revisions[row]),
        levels=tuple(_level(stretch) for stretch in stretches if math.isfinite(stretch.mean)),
        in_hindsight=_seen(replay, row, sights, scale, better),
        noise=noise,
        outliers=tuple(index for stretch in stretches for index in stretch.odd),
        mde=math.expm1(smallest_step(scale, stretches[-1].count, settings.prompt + 1, settings)) if known else math.inf,
        repeats_for_1_percent=_repeats(scale, stretches[-1].count, settings) if known else None,
    )


def smallest_step(scale: float, before: float, after: int, settings: Settings) -> float:
    """The log step that is reported with 80 % probability from that many points before and after it.

    The evidence for a step of size δ is about δ² n / 2σ², with n = before · after / (before + after), with a spread
    of its square root of one half in each direction: set against what ``Settings`` asks for.

    Args:
        scale: standard deviation of a point, log units.
        before: points at the present level.
        after: points at the new level.
        settings: the detector's.
    """
    if before <= 0:
        return math.inf
    size = before * after / (before + after)
    lowered = settings.patience * math.log(min(max(size, 1.0), LARGEST) / settings.run)
    bar = settings.novelty + settings.evidence - lowered + math.log(max(size, 1.0)) / 2
    sure = math.sqrt(2 * max(bar, 1.0) * (1 + CAUTION / before)) + _POWER
    return scale * sure * math.sqrt(1 / size + _wandering(before, settings) + _wandering(after, settings))


def _repeats(scale: float, before: float, settings: Settings) -> int | None:
    target = math.log1p(0.01)
    low, high = settings.run, _MOST
    if smallest_step(scale, before, high, settings) > target:
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if smallest_step(scale, before, middle, settings) <= target else (middle + 1, high)
    return low


def _wandering(count: float, settings: Settings) -> float:
    """What slow wandering adds to the variance of a mean of ``count`` points, in units of the noise variance."""
    memory = settings.memory
    return settings.wander**2 * min(1.0, (1 + memory) / (1 - memory) / max(count, 1.0))


def _stretches(replay: Replay, row: int, edges: Sequence[int], scale: float) -> list[_Stretch]:
    whole = [0, *edges, int(replay.length[row])]
    return [_stretch(replay, row, start, stop, scale) for start, stop in itertools.pairwise(whole)]


def _stretch(replay: Replay, row: int, start: int, stop: int, scale: float) -> _Stretch:
    y = replay.values[row, start:stop]
    index = np.flatnonzero(np.isfinite(y))
    if not index.size:
        return _Stretch(start, stop, math.nan, math.nan, 0.0, (), y[index])
    y = y[index]
    weights = 1 / replay.weights[row, start:stop][index]
    spread = scale if math.isfinite(scale) else 0.0
    limit = replay.settings.gate * spread / np.sqrt(weights)
    near = np.abs(y - median(y)) <= limit if spread else np.ones(y.size, dtype=bool)
    if not near.any():
        near[:] = True
    count = float(weights[near].sum())
    mean = float(weights[near] @ y[near]) / count
    rest = y - mean
    odd = tuple((start + index[np.abs(rest) > limit]).tolist()) if spread else ()
    error = scale * math.sqrt(1 / count + _wandering(count, replay.settings))
    return _Stretch(start, stop, mean, error, count, odd, rest)


def _level(stretch: _Stretch) -> Level:
    known = math.isfinite(stretch.error)
    low, high = (
        (math.exp(stretch.mean + side * _WIDE * stretch.error) for side in (-1, 1)) if known else (math.nan, math.nan)
    )
    return Level(stretch.start, stretch.stop, math.exp(stretch.mean), low, high)


def _change(replay: Replay, row: int, shift: Shift, left: _Stretch, right: _Stretch, better: Better) -> Change:
    settings = replay.settings
    size = right.mean - left.mean
    error = math.hypot(left.error, right.error)
    evidence = (size / error) ** 2 / 2 if error > 0 else math.inf
    odds = evidence - settings.novelty - math.log(max(1.0, left.count * right.count / (left.count + right.count))) / 2
    earlier = np.flatnonzero(np.isfinite(replay.values[row, : shift.index]))
    return Change(
        index=shift.index,
        last_before=int(earlier[-1]),
        earliest=min(shift.earliest, shift.index),
        latest=max(shift.latest, shift.index),
        size=size,
        low=size - _WIDE * error,
        high=size + _WIDE * error,
        confidence=1 / (1 + math.exp(-max(min(odds, 700.0), -700.0))),
        reported_at=shift.reported_at,
        sense=_sense(size, better),
    )


def _sense(size: float, better: Better) -> Sense:
    return "worse" if (size > 0) == (better == "lower") else "better"


def _seen(replay: Replay, row: int, sights: Sequence[Sight], scale: float, better: Better) -> tuple[Seen, ...]:
    if not sights:
        return ()
    stretches = _stretches(replay, row, [sight.index for sight in sights], scale)
    told: dict[int, int] = {}
    for shift in replay.reported(row):
        near = [
            sight.index
            for sight in sights
            if sight.index not in told
            and sight.earliest - NEARBY <= shift.latest
            and shift.earliest <= sight.latest + NEARBY
        ]
        if near:
            told[min(near, key=lambda index: abs(index - shift.index))] = shift.reported_at
    sizes = [right.mean - left.mean for left, right in itertools.pairwise(stretches)]
    return tuple(
        Seen(
            sight.index,
            sight.earliest,
            sight.latest,
            size=size,
            confidence=sight.share,
            reported_at=told.get(sight.index),
            sense=_sense(size, better),
        )
        for sight, size in zip(sights, sizes, strict=True)
    )


def _noise(replay: Replay, row: int, present: _Stretch, scale: float) -> Noise:
    if not math.isfinite(scale):
        return Noise(math.nan, "short")
    recent = replay.values[row, max(0, int(replay.length[row]) - LOOK_BACK) : replay.length[row]]
    modes = two_modes(recent[np.isfinite(recent)])
    if modes is not None:
        return Noise(scale, "bimodal", modes=modes)
    rest = np.clip(present.rest, -replay.settings.gate * scale, replay.settings.gate * scale)
    if rest.size < 12:
        return Noise(scale, "steady")
    where = np.arange(rest.size) - (rest.size - 1) / 2
    slope = float(where @ rest / (where @ where))
    if abs(slope) * math.sqrt(float(where @ where)) > _SLOPING * scale or autocorrelation(rest) > _LINKED:
        return Noise(scale, "drifting", slope=slope)
    return Noise(scale, "steady")
