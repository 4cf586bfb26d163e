"""Turn the detector's state into the results for callers: changes, levels and noise."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.constants import NEWEST_POINTS, NOVELTY, PLAIN_GAP, POINTS_BEFORE, PROMPT, SURE
from lockstep.detect.detector import Detector, threshold
from lockstep.detect.findings import Analysis, Change, Level, Measure, Noise
from lockstep.detect.level_means import WIDE, Segments, segments_between_changes, sizes, wandering
from lockstep.detect.noise import CAUTION
from lockstep.detect.plain_steps import plain_steps

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Normal quantile of a power of 80 %.
_POWER = 0.841621


def summarise(detector: Detector) -> list[Analysis]:
    """Return what was found in each series of a detector, with levels in the unit of the series' trend."""
    segments = segments_between_changes(detector)
    changes, unconfirmed = _changes(detector, segments), _unconfirmed(detector)
    ends = np.append(np.flatnonzero(segments.start == 0), segments.row.size).tolist()
    analyses = []
    for row in range(len(detector.count)):
        levels = slice(ends[row], ends[row + 1])
        ratio, newest = bool(detector.ratio[row]), ends[row + 1] - 1
        scale = float(np.sqrt(detector.variance[row]))
        known = math.isfinite(scale)
        count = float(segments.count[newest])
        step = smallest_step(scale, count, PROMPT + 1) if known else math.inf
        analyses.append(
            Analysis(
                changes=changes.get(row, ()),
                levels=_levels(detector, segments, levels),
                noise=Noise(scale, "ratio" if ratio else "difference"),
                mde=math.expm1(step) if ratio else step,
                unconfirmed=unconfirmed.get(row),
            )
        )
    return analyses


def smallest_step(scale: float, before: float, after: float) -> float:
    """Return the size of the smallest step that is reported with 80 % probability.

    The evidence for a step of size δ is about δ² n / 2σ², with n = before · after / (before + after). This evidence
    must reach the threshold of a report.

    Args:
        scale: standard deviation of a point.
        before: number of points at the current level; if it is 0, no step can be detected.
        after: number of points at the new level.
    """
    return scale * _smallest(before, after)


@lru_cache(maxsize=65_536)
def _smallest(before: float, after: float) -> float:
    """Return ``smallest_step`` in standard deviations of a point."""
    if before <= 0:
        return math.inf
    size = before * after / (before + after)
    bar = NOVELTY + threshold(before, after) + math.log(max(size, 1.0)) / 2
    margin = math.sqrt(2 * max(bar, 1.0) * (1 + CAUTION / before)) + _POWER
    return margin * math.sqrt(1 / size + float(wandering(before)) + float(wandering(after)))


def _levels(detector: Detector, segments: Segments, part: slice) -> tuple[Level, ...]:
    levels = []
    for at in range(part.start, part.stop):
        row, mean = int(segments.row[at]), float(segments.mean[at])
        if not math.isfinite(mean):
            continue
        value = math.exp(mean) if detector.ratio[row] else mean
        levels.append(Level(int(segments.start[at]), int(segments.stop[at]), value))
    return tuple(levels)


def _changes(detector: Detector, segments: Segments) -> dict[int, tuple[Change, ...]]:
    """Return the changes by series: one at the start of each level except the first. Some series have none."""
    right, size, error = sizes(segments)
    left = right - 1
    count = segments.count[left] * segments.count[right] / (segments.count[left] + segments.count[right])
    with np.errstate(divide="ignore", invalid="ignore"):
        evidence = np.where(error > 0, (size / error) ** 2 / 2, np.inf)
    odds = evidence - NOVELTY - np.log(np.maximum(1.0, count)) / 2
    ends = np.flatnonzero(np.append(segments.start[1:], 0) == 0)
    newest = ends[np.searchsorted(ends, right)]
    remains = np.where(newest == right, size, segments.last[newest] - segments.last[left])
    columns = (
        segments.row[right],
        size,
        size - WIDE * error,
        size + WIDE * error,
        1 / (1 + np.exp(-np.clip(odds, -700.0, 700.0))),
        remains,
    )
    changes: dict[int, list[Change]] = defaultdict(list)
    shifts = [segments.shifts[at] for at in right.tolist()]
    rows = zip(shifts, *(column.tolist() for column in columns), strict=True)
    for shift, row, step, low, high, confidence, left_over in rows:
        changes[row].append(
            Change(
                index=shift.index,
                earliest=shift.earliest,
                latest=shift.latest,
                size=step,
                low=low,
                high=high,
                confidence=confidence,
                reported_at=shift.reported_at,
                left=left_over,
                measure="ratio" if detector.ratio[row] else "difference",
            )
        )
    return {row: tuple(row_changes) for row, row_changes in changes.items()}


def _unconfirmed(detector: Detector) -> dict[int, Change]:
    """Return the steps of the newest points, by series. Their interval is that of the points' distances."""
    length = POINTS_BEFORE + NEWEST_POINTS
    last = [shifts[-1].index if shifts else 0 for shifts in detector.shifts]
    rows = np.flatnonzero(detector.count - last >= length)
    if not rows.size:
        return {}
    places = detector.count[rows, None] + np.arange(-length, 0)
    y = detector.values[rows[:, None], places]
    least = np.nan_to_num(detector.resolution[rows[:, None], places]).min(axis=1) / 2
    steps = plain_steps(y, least, NEWEST_POINTS, PLAIN_GAP, before=POINTS_BEFORE)
    changes = {}
    for place in np.flatnonzero(steps).tolist():
        old, new, newest = y[place, :POINTS_BEFORE], y[place, POINTS_BEFORE:], int(places[place, -1])
        size = float(np.median(new) - np.median(old))
        low, high = float(new.min() - old.max()), float(new.max() - old.min())
        index = newest - NEWEST_POINTS + 1
        measure: Measure = "ratio" if detector.ratio[rows[place]] else "difference"
        changes[int(rows[place])] = Change(
            index, index, index, size, low, high, SURE, reported_at=newest, left=size, measure=measure, confirmed=False
        )
    return changes
