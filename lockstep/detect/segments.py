"""Compute the mean of each segment of a series, from one change to the next, with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.detect.detector import Detector
from lockstep.detect.noise_estimate import CAUTION, MEDIAN_SQUARE
from lockstep.detect.run_lengths import Floats, Ints
from lockstep.detect.settings import GATE, MEMORY, SETTLES, WANDER

#: Normal quantile of a 95 % interval.
WIDE = 1.959964
#: Number of points that are processed together, so that they stay in the processor's cache.
_AT_ONCE = 131_072


@dataclass(frozen=True, eq=False)
class Segments:
    """The statistics of many segments, as arrays of equal length. A segment's values do not depend on other segments.

    Attributes:
        row: the series of each segment.
        start, stop: the segment's points are ``start <= index < stop``.
        mean: mean of the points without outliers, log units; NaN without points. For unsettled points, the median.
        low, high: 95 % interval of the mean; NaN while the noise is unknown. For unsettled points, the lowest and the
            highest point.
        error: standard error of the mean.
        count: total weight of the points in the mean; a usual point has the weight 1.
        unsettled: whether the points scatter too much to give one level.
    """

    row: Ints
    start: Ints
    stop: Ints
    mean: Floats
    low: Floats
    high: Floats
    error: Floats
    count: Floats
    unsettled: NDArray[np.bool_]


def segments_between_changes(detector: Detector, rows: Ints) -> Segments:
    """Return the segments between the reported changes of the series ``rows``, by series, oldest first."""
    edges = [
        [(0, False), *((shift.index, shift.unsettled) for shift in detector.reported(row))] for row in rows.tolist()
    ]
    edge_counts = np.array([len(row_edges) for row_edges in edges], dtype=np.int64)
    start = np.array([edge for row_edges in edges for edge, _ in row_edges], dtype=np.int64)
    unsettled = np.array([odd for row_edges in edges for _, odd in row_edges], dtype=np.bool_)
    stop = np.append(start[1:], 0)
    stop[np.cumsum(edge_counts) - 1] = detector.length[rows]
    return segments(detector, np.repeat(rows, edge_counts), start, stop, unsettled)


def segments(detector: Detector, row: Ints, start: Ints, stop: Ints, unsettled: NDArray[np.bool_]) -> Segments:
    """Return the statistics of segments, each of which holds the points ``start <= index < stop`` of a series ``row``.

    ``unsettled`` marks segments that are already known not to have a level.
    """
    mean, count, scale, fit = (np.full(row.size, np.nan) for _ in range(4))
    # Round each segment's width up to its own power of two. Sums over another width would round differently, and a
    # segment's values must not depend on other segments.
    width = 2 ** np.ceil(np.log2(np.maximum(stop - start, 8))).astype(np.int64)
    for wide in np.unique(width).tolist():
        indices = np.flatnonzero(width == wide)
        step = max(1, _AT_ONCE // wide)
        for first in range(0, indices.size, step):
            part = indices[first : first + step]
            mean[part], count[part], scale[part], fit[part] = _means(detector, row[part], start[part], stop[part], wide)
    points = np.where(count > 0, count, np.nan)
    error = scale * np.sqrt(1 / points + wandering(points))
    low, high = mean - WIDE * error, mean + WIDE * error
    # If most points of a short segment lie far off its mean, the mean is not a level.
    unsettled = unsettled | ((fit < 0.5) & (start > 0) & (stop - start < SETTLES))
    for place in np.flatnonzero(unsettled).tolist():
        y = np.sort(detector.values[row[place], start[place] : stop[place]])  # NaN last
        y = y[np.isfinite(y)]
        # Take one of the points as the median, even if their number is even.
        mean[place], low[place], high[place] = y[(y.size - 1) // 2], y[0], y[-1]
        error[place] = (high[place] - low[place]) / (2 * WIDE)
    return Segments(row, start, stop, mean, low, high, error, np.nan_to_num(count), unsettled)


def wandering(count: ArrayLike) -> Floats:
    """Return the variance that slow drift adds to a mean of ``count`` points, in units of the noise variance."""
    independent = (1 + MEMORY) / (1 - MEMORY) / np.maximum(count, 1.0)
    added: Floats = WANDER**2 * np.minimum(1.0, independent)
    return added


def limits(scale: Floats) -> Floats:
    """Return how far from the median a point becomes an outlier, log units; infinite while the noise is unknown."""
    distances: Floats = np.where(np.isfinite(scale), GATE * scale, np.inf)
    return distances


def _means(detector: Detector, row: Ints, start: Ints, stop: Ints, width: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the means of the segments and how certain they are, as four arrays with one number per segment.

    The arrays are: the mean without outliers; the weight of its points; the standard deviation of a usual point; the
    share of points within ``GATE`` of the mean, by the series' noise.
    """
    grid = start[:, None] + np.arange(width)
    inside = grid < stop[:, None]
    at = row[:, None], np.where(inside, grid, start[:, None])
    y = np.where(inside, detector.values[at], np.nan)
    weights = 1 / detector.weights[at]
    measured = np.isfinite(y)
    deviations = y - _medians(y, measured)[:, None]
    # Estimate the segment's own noise, in which the series' noise counts like a few more points.
    points = measured.sum(axis=1)
    variance = (
        _medians(deviations * deviations * weights, measured) / MEDIAN_SQUARE * points / np.maximum(points - 1, 1)
    )
    scale = np.sqrt((CAUTION * detector.noise.variance[row] + points * np.nan_to_num(variance)) / (CAUTION + points))
    inlier = measured & (np.abs(deviations) <= limits(scale[:, None] / np.sqrt(weights)))
    none = ~inlier.any(axis=1)
    inlier[none] = measured[none]
    inlier_weights = np.where(inlier, weights, 0.0)
    count = inlier_weights.sum(axis=1)
    total = (inlier_weights * np.where(inlier, y, 0.0)).sum(axis=1)
    mean = total / np.where(count > 0, count, np.nan)
    usual = np.sqrt(detector.noise.variance[row, None] / weights)
    fit = measured & (np.abs(y - mean[:, None]) <= limits(usual))
    return mean, count, scale, fit.sum(axis=1) / np.maximum(points, 1)


def _medians(y: Floats, measured: NDArray[np.bool_]) -> Floats:
    """Return the median of the measured points of each row; NaN for a row without any."""
    ordered = np.sort(y, axis=1)  # NaN last
    count, row_index = measured.sum(axis=1), np.arange(len(y))
    medians: Floats = (ordered[row_index, np.maximum(count - 1, 0) // 2] + ordered[row_index, count // 2]) / 2
    return medians
