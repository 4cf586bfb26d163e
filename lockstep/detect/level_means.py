"""Compute the mean of each level of a series, from one change to the next, with its interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.detect.constants import GATE, MEMORY, WANDER, WINDOW
from lockstep.detect.detector import Detector
from lockstep.detect.noise import CAUTION, FLOOR, MEDIAN_SQUARE, medians
from lockstep.detect.series_state import Shift

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Stands for the beginning of a series among the changes at which its levels start.
FIRST = Shift(index=0, earliest=0, latest=0, reported_at=0, reported_as=0, plain=False)
#: Normal quantile of a 95 % interval.
WIDE = 1.959964
#: Error of a slope from ``n`` points, in standard deviations of a point over half of ``n`` to the power 1.5: √12 / 2
#: for least squares, taken twice because the slope is a median.
_SLANT = 3.5
#: Number of points that are processed together, so that they stay in the processor's cache.
_AT_ONCE = 131_072


@dataclass(frozen=True, eq=False)
class Segments:
    """The statistics of many levels, as arrays of equal length. A level's values do not depend on other levels.

    Attributes:
        row: the series of each level.
        shifts: the change at the start of each level; the first level of a series has ``FIRST``.
        start, stop: the level's points are ``start <= position < stop``.
        mean: mean of the points without outliers; NaN without points.
        first, last: the level at its first and at its last point, which differ if the series has a slope.
        error: standard error of the mean; NaN while the noise is unknown.
        count: total weight of the points in the mean; a usual point has the weight 1.
    """

    row: Ints
    shifts: Sequence[Shift]
    start: Ints
    stop: Ints
    mean: Floats
    first: Floats
    last: Floats
    error: Floats
    count: Floats


def segments_between_changes(detector: Detector) -> Segments:
    """Return the levels between the listed changes of each series, by series, oldest first.

    A reported change is listed if the interval of its size, from the points on both sides, does not contain zero. A
    plain step is always listed: where a slope explains it, the series has no slope.
    """
    rows = np.arange(len(detector.shifts))
    listed = dict(enumerate(map(list, detector.shifts)))
    slope = detector.slope.copy()
    segments = checked = _segments(detector, rows, listed, slope)
    while unclear := _least_clear(checked, slope):
        for row, shift in unclear.items():
            if shift.plain:
                slope[row] = 0.0
            else:
                listed[row].remove(shift)
        checked = _segments(detector, np.array(list(unclear)), listed, slope)
    return segments if checked is segments else _segments(detector, rows, listed, slope)


def sizes(segments: Segments) -> tuple[Ints, Floats, Floats]:
    """Return the levels behind a change, and the size of each change with its standard error."""
    right = np.flatnonzero(segments.start > 0)
    size = segments.first[right] - segments.last[right - 1]
    return right, size, np.hypot(segments.error[right - 1], segments.error[right])


def _least_clear(segments: Segments, slope: Floats) -> dict[int, Shift]:
    """Return the least clear change of each series in which the interval of a size contains zero.

    Plain steps of a series without a ``slope`` are left out.
    """
    right, size, error = sizes(segments)
    with np.errstate(invalid="ignore", divide="ignore"):
        clarity = np.abs(size) / error
    least: dict[int, Shift] = {}
    # The least clear change of a series comes last and stays.
    for at in sorted(np.flatnonzero(clarity < WIDE).tolist(), key=lambda at: -clarity[at]):
        row, shift = int(segments.row[right[at]]), segments.shifts[right[at]]
        if slope[row] or not shift.plain:
            least[row] = shift
    return least


def _segments(detector: Detector, rows: Ints, listed: Mapping[int, Sequence[Shift]], slopes: Floats) -> Segments:
    shifts: list[Shift] = []
    for of_row in rows.tolist():
        shifts += [FIRST, *listed[of_row]]
    edge_counts = np.array([1 + len(listed[of_row]) for of_row in rows.tolist()], dtype=np.int64)
    start = np.array([shift.index for shift in shifts], dtype=np.int64)
    stop = np.append(start[1:], 0)
    stop[np.cumsum(edge_counts) - 1] = detector.count[rows]
    row = np.repeat(rows, edge_counts)
    # The slope is that of the newest points.
    slope = np.where(stop > detector.count[row] - WINDOW, slopes[row], 0.0)
    own = _for_each(
        stop - start, lambda part, wide: _own_variance(_points(detector, row, start, stop, slope, part, wide))
    )
    usual = _pooled(own[0], np.maximum(stop - start - 1, 0), detector.variance, row)
    # Estimate the level's own noise, in which that of all levels counts like a few more points.
    scale = np.sqrt((CAUTION * usual + (stop - start) * own[0]) / (CAUTION + stop - start))
    mean, count = _for_each(
        stop - start, lambda part, wide: _means(_points(detector, row, start, stop, slope, part, wide), scale[part])
    )
    points = np.where(count > 0, count, np.nan)
    half = slope * np.maximum(stop - start - 1, 0) / 2
    # More points make up neither for rounding, where a level varies at all, nor for the slope's error at its ends.
    unit = np.nanmin(detector.resolution[rows], axis=1, initial=np.inf)
    unit = np.repeat(np.where(np.isfinite(unit), unit, 0.0), edge_counts)
    rounding = np.where(usual > 0, np.maximum(unit / np.sqrt(12), FLOOR), FLOOR)
    slanting = np.where(slope != 0, _SLANT * scale * (stop - start) / np.minimum(detector.count[row], WINDOW) ** 1.5, 0)
    error = np.sqrt(scale**2 * (1 / points + wandering(points)) + rounding**2 + slanting**2)
    return Segments(row, shifts, start, stop, mean, mean - half, mean + half, error, np.nan_to_num(count))


def wandering(count: ArrayLike) -> Floats:
    """Return the variance that slow wandering adds to a mean of ``count`` points, in units of the noise variance."""
    independent = (1 + MEMORY) / (1 - MEMORY) / np.maximum(count, 1.0)
    added: Floats = WANDER**2 * np.minimum(1.0, independent)
    return added


def _for_each(count: Ints, compute: Callable[[Ints, int], tuple[Floats, ...]]) -> list[Floats]:
    """Compute numbers of each level, for many levels of a similar number of points at a time.

    ``compute`` takes the indices of the levels and a width that no level exceeds.
    """
    # Round each level's width up to its own power of two. Sums over another width would round differently, and the
    # values of a level must not depend on other levels.
    width = 2 ** np.ceil(np.log2(np.maximum(count, 8))).astype(np.int64)
    columns: list[Floats] = []
    for wide in np.unique(width).tolist():
        indices = np.flatnonzero(width == wide)
        step = max(1, _AT_ONCE // wide)
        for first in range(0, indices.size, step):
            part = indices[first : first + step]
            numbers = compute(part, wide)
            columns = columns or [np.full(count.size, np.nan) for _ in numbers]
            for column, of_part in zip(columns, numbers, strict=True):
                column[part] = of_part
    return columns or [np.zeros(0), np.zeros(0)]


def _points(
    detector: Detector, row: Ints, start: Ints, stop: Ints, slope: Floats, part: Ints, width: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the points of some levels without their slope [levels, width], and which of them are measured."""
    row, start, stop, slope = row[part], start[part], stop[part], slope[part]
    grid = start[:, None] + np.arange(width)
    measured = grid < stop[:, None]
    y = detector.values[row[:, None], np.where(measured, grid, start[:, None])]
    return y - slope[:, None] * (grid - ((start + stop - 1) / 2)[:, None]), measured


def _own_variance(points: tuple[Floats, NDArray[np.bool_]]) -> tuple[Floats]:
    """Return the variance of the points about their median; 0 for a single point."""
    y, measured = points
    count = measured.sum(axis=1)
    deviations = y - medians(y, measured)[:, None]
    return (medians(deviations**2, measured) / MEDIAN_SQUARE * count / np.maximum(count - 1, 1),)


def _pooled(variance: Floats, weight: Ints, usual: Floats, row: Ints) -> Floats:
    """Return the variance within the levels of the series of each level; ``usual`` where no level has two points."""
    total, points = np.zeros(usual.size), np.zeros(usual.size)
    np.add.at(total, row, variance * weight)
    np.add.at(points, row, weight)
    known = np.isfinite(usual) & (points > 0)
    pooled: Floats = np.where(known, total / np.maximum(points, 1.0), usual)[row]
    return pooled


def _means(points: tuple[Floats, NDArray[np.bool_]], scale: Floats) -> tuple[Floats, Floats]:
    """Return the means of the points without outliers, and the number of these points."""
    y, measured = points
    deviations = np.abs(y - medians(y, measured)[:, None])
    inlier = measured & (deviations <= np.where(np.isfinite(scale), GATE * scale, np.inf)[:, None])
    none = ~inlier.any(axis=1)
    inlier[none] = measured[none]
    count = inlier.sum(axis=1).astype(np.float64)
    return np.where(inlier, y, 0.0).sum(axis=1) / np.where(count > 0, count, np.nan), count
