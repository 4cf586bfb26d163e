"""Turn the detector's state into the results for callers: changes, levels and noise."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.detect.detector import LARGEST, Detector
from lockstep.detect.findings import Analysis, Change, Level, Measure, Noise, sense_of
from lockstep.detect.level_shift import Shift
from lockstep.detect.modes import modes, step_within
from lockstep.detect.noise_estimate import CAUTION
from lockstep.detect.run_lengths import Floats, Ints
from lockstep.detect.segments import WIDE, Segments, segments_between_changes, wandering
from lockstep.detect.settings import EVIDENCE, GATE, NOVELTY, PATIENCE, PROMPT, RUN
from lockstep.detect.step_or_drift import autocorrelation
from lockstep.detect.trend import Better

Mask = NDArray[np.bool_]

#: Normal quantile of a power of 80 %.
_POWER = 0.841621
#: A level counts as drifting if the correlation of neighbours, or its slope in standard errors, exceeds these numbers.
_LINKED, _SLOPING = 0.35, 5.0
#: Maximum number of repeated measurements to recommend. More would not be practical.
_MOST = 1000


def changes_of(
    detector: Detector, rows: Sequence[int], better: Sequence[Better], ratio: Mask
) -> dict[int, tuple[Change, ...]]:
    """Return the changes by series, for those of the series ``rows`` that have changes.

    Args:
        better: the better direction of every series of the detector.
        ratio: whether the changes of every series of the detector are ratios.
    """
    changed = [row for row in rows if any(True for _ in detector.reported(row))]
    return _changes(detector, segments_between_changes(detector, np.array(changed, dtype=np.int64)), better, ratio)


def summarise(detector: Detector, rows: Sequence[int], better: Sequence[Better], ratio: Mask) -> list[Analysis]:
    """Return what was found in each of the series ``rows``, with levels in the unit of the series' trend.

    Args:
        better: the better direction of every series of the detector.
        ratio: whether the changes of every series of the detector are ratios.
    """
    segments = segments_between_changes(detector, np.array(rows, dtype=np.int64))
    changes = _changes(detector, segments, better, ratio)
    starts = np.flatnonzero(segments.start == 0).tolist()
    row_slices = [slice(first, after) for first, after in itertools.pairwise([*starts, segments.row.size])]
    present = np.array([row_slice.stop - 1 for row_slice in row_slices], dtype=np.int64)
    scale = np.sqrt(detector.noise.variance[segments.row[present]])
    mde = smallest_step(scale, segments.count[present], PROMPT + 1)
    mde = np.expm1(mde, where=ratio[list(rows)], out=mde.copy())
    repeats = _repeats(scale, segments.count[present])
    levels = _levels(segments, ratio)
    analyses = []
    for place, (row, row_slice) in enumerate(zip(rows, row_slices, strict=True)):
        noise = _noise(detector, row, _residuals(detector, segments, row_slice.stop - 1), _measure(ratio[row]))
        known = noise.kind != "short"
        analyses.append(
            Analysis(
                changes=changes.get(row, ()),
                revisions=tuple(detector.revisions[row]),
                levels=tuple(level for level in levels[row_slice] if math.isfinite(level.value)),
                noise=noise,
                mde=float(mde[place]) if known else math.inf,
                repeats_for_1_percent=int(repeats[place]) if known and ratio[row] and repeats[place] <= _MOST else None,
            )
        )
    return analyses


def smallest_step(scale: ArrayLike, before: ArrayLike, after: ArrayLike) -> Floats:
    """Return the size (log) of the smallest step that is reported with 80 % probability.

    The evidence for a step of size δ is about δ² n / 2σ², with n = before · after / (before + after). This evidence
    must reach the threshold of a report.

    Args:
        scale: standard deviation of a point, log units.
        before: number of points at the current level; if it is 0, no step can be detected.
        after: number of points at the new level.
    """
    scale, before, after = (np.asarray(argument, dtype=np.float64) for argument in (scale, before, after))
    with np.errstate(divide="ignore", invalid="ignore"):
        size = before * after / (before + after)
        lowered = PATIENCE * np.log(np.clip(size, 1.0, LARGEST) / RUN)
        bar = NOVELTY + EVIDENCE - lowered + np.log(np.maximum(size, 1.0)) / 2
        margin = np.sqrt(2 * np.maximum(bar, 1.0) * (1 + CAUTION / before)) + _POWER
        steps = scale * margin * np.sqrt(1 / size + wandering(before) + wandering(after))
    return np.where(before > 0, steps, np.inf)


def _repeats(scale: Floats, before: Floats) -> Ints:
    """Return how many points at the new level are needed before a step of 1 % is reported.

    A number above ``_MOST`` means that no number of points is enough.
    """
    low, high = np.full(scale.size, RUN), np.full(scale.size, _MOST + 1)
    while (open_ := low < high).any():
        middle = (low + high) // 2
        sufficient = smallest_step(scale, before, middle) <= math.log1p(0.01)
        high, low = np.where(open_ & sufficient, middle, high), np.where(open_ & ~sufficient, middle + 1, low)
    return low


def _levels(segments: Segments, ratio: Mask) -> list[Level]:
    log = ratio[segments.row]
    columns = (
        segments.start,
        segments.stop,
        *(np.exp(column, where=log, out=column.copy()) for column in (segments.mean, segments.low, segments.high)),
        segments.unsettled,
    )
    return list(map(Level, *(column.tolist() for column in columns)))


def _residuals(detector: Detector, segments: Segments, at: int) -> Floats:
    """Return the distances of a segment's points from the segment's mean, log units."""
    y = detector.values[segments.row[at], segments.start[at] : segments.stop[at]]
    residuals: Floats = y[np.isfinite(y)] - segments.mean[at]
    return residuals


def _changes(
    detector: Detector, segments: Segments, better: Sequence[Better], ratio: Mask
) -> dict[int, tuple[Change, ...]]:
    """Return the changes by series: one at the start of each segment except the first. Some series have none."""
    right = np.flatnonzero(segments.start > 0)
    left = right - 1
    size = segments.mean[right] - segments.mean[left]
    error = np.hypot(segments.error[left], segments.error[right])
    # Unsettled points scatter widely, but this does not make it less certain that the series left its old level.
    open_ = segments.unsettled[left] | segments.unsettled[right]
    error = np.where(open_, np.sqrt(2 * detector.noise.variance[segments.row[right]]), error)
    with np.errstate(divide="ignore", invalid="ignore"):
        count = segments.count[left] * segments.count[right] / (segments.count[left] + segments.count[right])
        evidence = np.where(error > 0, (size / error) ** 2 / 2, np.inf)
    odds = evidence - NOVELTY - np.log(np.maximum(1.0, count)) / 2
    ends = np.flatnonzero(np.append(segments.start[1:], 0) == 0)
    newest = ends[np.searchsorted(ends, right)]
    columns = (
        segments.row[right],
        size,
        *_interval(segments, left, right, size, error),
        1 / (1 + np.exp(-np.clip(odds, -700.0, 700.0))),
        segments.mean[newest] - segments.mean[left],
        segments.unsettled[right],
    )
    shifts: dict[int, Iterator[Shift]] = {}
    changes: dict[int, list[Change]] = defaultdict(list)
    for row, log_size, low, high, confidence, remains, unsettled in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        if row not in shifts:
            shifts[row] = detector.reported(row)
        shift = next(shifts[row])
        within_modes = _within_modes(detector, row, shift.index)
        if within_modes is not None:
            remains = within_modes[0] if remains == log_size else remains
            log_size, low, high = (
                within_modes[0],
                within_modes[0] - WIDE * within_modes[1],
                within_modes[0] + WIDE * within_modes[1],
            )
        changes[row].append(
            Change(
                index=shift.index,
                last_before=_last_measured(detector, row, shift.index),
                earliest=min(shift.earliest, shift.index),
                latest=max(shift.latest, shift.index),
                size=log_size,
                low=low,
                high=high,
                confidence=confidence,
                reported_at=shift.reported_at,
                sense=sense_of(log_size, better[row]),
                left=remains,
                unsettled=unsettled,
                measure=_measure(ratio[row]),
            )
        )
    return {row: tuple(row_changes) for row, row_changes in changes.items()}


def _interval(segments: Segments, left: Ints, right: Ints, size: Floats, error: Floats) -> tuple[Floats, Floats]:
    """Return the intervals of the sizes. Next to unsettled points, an interval reaches to the extreme points."""
    low, high = size - WIDE * error, size + WIDE * error
    open_ = segments.unsettled[left] | segments.unsettled[right]
    return (
        np.where(open_, segments.low[right] - segments.high[left], low),
        np.where(open_, segments.high[right] - segments.low[left], high),
    )


def _within_modes(detector: Detector, row: int, index: int) -> tuple[float, float] | None:
    """Return the step at ``index`` and its standard error if the series switches between levels; otherwise ``None``.

    Each level after the step is compared with the same level before it.
    """
    if not any(shift.silent == "modes" for shift in detector.shifts[row]):
        return None
    edges = [0, *(shift.index for shift in detector.reported(row)), int(detector.length[row])]
    at = edges.index(index)
    before, after = (detector.values[row, edges[at + side] : edges[at + side + 1]] for side in (-1, 0))
    return step_within(_measured(before), _measured(after))


def _last_measured(detector: Detector, row: int, before: int) -> int:
    at = before - 1
    while math.isnan(detector.values[row, at]):
        at -= 1
    return at


def _measure(ratio: bool) -> Measure:
    return "ratio" if ratio else "difference"


def _measured(series: Floats) -> Floats:
    return series[np.isfinite(series)]


def _noise(detector: Detector, row: int, residuals: Floats, measure: Measure) -> Noise:
    """Return the noise of a series. ``residuals`` holds the deviations of the newest points from the current level."""
    scale = float(np.sqrt(detector.noise.variance[row]))
    if not math.isfinite(scale):
        return Noise(math.nan, "short", measure)
    series = detector.values[row, : detector.length[row]]
    since = max((shift.index for shift in detector.reported(row)), default=0)
    # Search for modes since the last change, and then in the whole series. Without a change, these are the same.
    starts = dict.fromkeys((since, 0))
    if any(modes(_measured(series[start:])) is not None for start in starts):
        return Noise(scale, "multimodal", measure)
    residuals = np.clip(residuals, -GATE * scale, GATE * scale)
    if residuals.size < 12:
        return Noise(scale, "steady", measure)
    position = np.arange(residuals.size) - (residuals.size - 1) / 2
    slope = float(position @ residuals / (position @ position))
    if abs(slope) * math.sqrt(float(position @ position)) > _SLOPING * scale or autocorrelation(residuals) > _LINKED:
        return Noise(scale, "drifting", measure)
    return Noise(scale, "steady", measure)
