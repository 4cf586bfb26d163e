"""Estimate how the points of a series scatter: the noise, a slope, and the rounding of the numbers.

All functions take many series at once, as arrays [series, points]. A step or an outlier changes few differences between
neighbours, so robust estimates from differences need no knowledge of the steps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.constants import BURN_IN, GATE, NOVELTY, RUN
from lockstep.detect.forward_costs import final_costs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: How cautiously an estimate from few points is used, as a number of points. Such an estimate is often too small, which
#: causes false alarms.
CAUTION = 8.0
#: Smallest noise as a share of the numbers: smaller noise is rounding in the arithmetic.
FLOOR = 1e-6
#: The median and the third quartile of a squared standard normal.
MEDIAN_SQUARE, _THIRD_SQUARE = 0.4549, 1.3233
#: Number of points in which the noise may differ from that of the series, and how clearly, in standard errors: for more
#: noise, and for another noise of the newest level.
_NEARBY, _CLEARLY, _OWN = 20, 3.0, 6.0
#: Number of points from which a slope is estimated.
_SLOPING = 12
#: Number of outliers that a series may have before others cost less.
_FEW_OUTLIERS = 3.0
#: A slope is tried if it exceeds this many standard deviations from the first to the last point.
_STEEP = 4.0
#: Range of the first guess of the scatter between runs, in standard errors of one run. The 50 unchanged series recorded
#: on an H200 scatter by 0.4 to 4.6 standard errors, with a median of 1.6.
_BEYOND = 1.5, 4.0


class NoiseOfPoints(NamedTuple):
    """The noise of many series.

    Attributes:
        variance: variance of each point [series, points], with caution for few points.
        usual: variance of a usual point [series].
        outlier: what a point costs at most [series], see ``forward_costs``: less where outliers are frequent.
        slope: change of the level from one point to the next [series]; 0 where a level explains the points as well.
    """

    variance: Floats
    usual: Floats
    outlier: Floats
    slope: Floats


def noise_of(
    y: Floats, errors: Floats, squares: Floats, resolution: Floats, floor: Floats, level: Ints, known: int
) -> NoiseOfPoints:
    """Estimate the noise from the first ``known`` points of each series, and apply it to all points.

    Args:
        y: the points [series, points]; NaN behind the last point of a series.
        errors: standard errors of the points [series, points]; NaN where unknown.
        squares: squared distances of the known points from their forecasts [series, points].
        resolution: unit in which each point is written [series, points], see ``resolution_of``.
        floor: smallest standard deviation [series].
        level: number of reported changes before each point [series, points].
        known: number of points that the estimate may use, at least 3.
    """
    past = y[:, :known]
    # Where the numbers vary, a difference of one rounding unit is no step: the variance is at least twice that of
    # rounding. A single difference may be a step between constants.
    same = _same_level(level[:, :known], 1)
    varies = ((np.diff(past) != 0) & same).sum(axis=1) > 1
    unit = np.where(varies, resolution[:, :known].min(axis=1), 0.0)
    least = np.maximum(unit / math.sqrt(6), floor) ** 2
    usual = np.maximum(spread(np.diff(past) ** 2 / 2), least)
    slope = _slopes(past, level, usual * (1 + CAUTION / known)) if known >= _SLOPING else np.zeros(len(y))
    has_errors = np.isfinite(errors[:, :known]).all(axis=1)
    outlier = np.full(len(y), GATE**2)
    if known >= BURN_IN:
        usual = np.maximum(spread(squares), least)
        outlier = _outlier_costs(squares / usual[:, None], level[:, :known])
    elif has_errors.any():
        error_variance = np.exp(2 * np.log(errors[has_errors, :known]).mean(axis=1))
        usual[has_errors] = np.clip(
            usual[has_errors], _BEYOND[0] ** 2 * error_variance, _BEYOND[1] ** 2 * error_variance
        )
    usual = _of_newest_level(past, level[:, :known], usual, least)
    caution = np.where(has_errors, max(known, BURN_IN), known)
    variance = np.repeat((usual * (1 + CAUTION / caution))[:, None], y.shape[1], axis=1)
    if known >= _NEARBY:
        variance = np.maximum(variance, _nearby(y - slope[:, None] * np.arange(y.shape[1]), usual, known))
    return NoiseOfPoints(variance * _weights(errors, known), usual, outlier, slope)


def spread(squares: Floats) -> Floats:
    """Return the variance [series] from squared deviations [series, points], without points beyond ``GATE``.

    The first estimate is the third quartile, so up to a quarter of the points may be outliers.
    """
    count = squares.shape[1]
    variance: Floats = np.partition(squares, 3 * (count - 1) // 4, axis=1)[:, 3 * (count - 1) // 4] / _THIRD_SQUARE
    for _ in range(4):
        inside = squares < GATE**2 * variance[:, None]
        variance = np.where(inside, squares, 0.0).sum(axis=1) / np.maximum(inside.sum(axis=1), 1)
    return variance


def resolution_of(values: Floats) -> Floats:
    """Return the power of ten in which each number is written: 0.01 for 3.25, 1 for 12 and for 1200.

    Read from the shortest decimal form of the number, so a number computed in floating point has a tiny unit.
    """
    size = np.abs(values)
    decimals = np.full(size.shape, 18)
    for place in range(18, -1, -1):
        scaled = size * 10.0**place
        whole = np.round(scaled)
        decimals = np.where((np.abs(whole - scaled) <= 1e-9 * scaled) & (whole > 0), place, decimals)
    unit: Floats = np.where(size > 0, 10.0**-decimals, np.inf)
    return unit


def _outlier_costs(squares: Floats, level: Ints) -> Floats:
    """Return what a point costs at most: less where points beyond ``GATE`` are frequent.

    Points at the beginning of a level that was reported do not count.
    """
    count = squares.shape[1]
    old = level[:, -count:] == np.pad(level, ((0, 0), (RUN, 0)), mode="edge")[:, level.shape[1] - count : -RUN]
    beyond = ((squares > GATE**2) & old).sum(axis=1)
    rate = np.maximum(beyond - _FEW_OUTLIERS, 0.0) / count
    with np.errstate(divide="ignore"):
        cost: Floats = np.minimum(GATE**2, -2 * np.log(rate))
    return cost


def _slopes(y: Floats, level: Ints, variance: Floats) -> Floats:
    """Return the slope of each series if levels about a slope explain it better than levels alone; otherwise 0.

    Slope and steps are fitted together: the same penalised levels are fitted with and without the slope.
    """
    count = y.shape[1]
    lags = {max(4, count // 4), min(8, count // 2)}
    slopes = [medians(y[:, lag:] - y[:, :-lag], _same_level(level[:, :count], lag)) / lag for lag in lags]
    best = np.zeros(len(y))
    steep = np.flatnonzero(np.abs(slopes).max(axis=0) * count > _STEEP * np.sqrt(variance))
    if not steep.size:
        return best
    cost = final_costs(y[steep], variance[steep]) - 2 * NOVELTY
    for slope in slopes:
        sloped = final_costs(y[steep] - slope[steep, None] * np.arange(count), variance[steep])
        best[steep] = np.where(sloped < cost, slope[steep], best[steep])
        cost = np.minimum(cost, sloped)
    return best


def _of_newest_level(y: Floats, level: Ints, usual: Floats, least: Floats) -> Floats:
    """Return the variance of the newest level where it has its own clearly, otherwise ``usual`` [series]."""
    newest = (level[:, 1:] == level[:, -1:]) & _same_level(level, 1)
    count = np.where(level[:, -1] > 0, newest.sum(axis=1), 0)
    # Up to a quarter of the points may lie elsewhere, as in ``spread``.
    own = np.maximum(_third_quartiles(np.diff(y) ** 2 / 2, newest) / _THIRD_SQUARE, least)
    clear = np.abs(np.log(own / usual)) > _OWN * np.sqrt(5 / np.maximum(count, 1))
    return np.where(clear & (count >= BURN_IN), own, usual)


def _same_level(level: Ints, lag: int) -> NDArray[np.bool_]:
    """Return whether no change is reported between each point and the one ``lag`` points later."""
    same: NDArray[np.bool_] = level[:, lag:] == level[:, :-lag]
    return same


def medians(y: Floats, among: NDArray[np.bool_]) -> Floats:
    """Return the median of the chosen points of each row; 0 for a row without any."""
    ordered = np.sort(np.where(among, y, np.inf), axis=1)
    count, row = among.sum(axis=1), np.arange(len(y))
    middle: Floats = (
        ordered[row, np.maximum(count - 1, 0) // 2] + ordered[row, np.minimum(count // 2, y.shape[1] - 1)]
    ) / 2
    return np.where(count > 0, middle, 0.0)


def _third_quartiles(y: Floats, among: NDArray[np.bool_]) -> Floats:
    """Return the third quartile of the chosen points of each row; infinite for a row without any."""
    ordered = np.sort(np.where(among, y, np.inf), axis=1)
    quartiles: Floats = ordered[np.arange(len(y)), np.maximum(3 * (among.sum(axis=1) - 1) // 4, 0)]
    return quartiles


def _nearby(y: Floats, usual: Floats, known: int) -> Floats:
    """Return the variance of the differences around each point where it clearly exceeds the usual one, otherwise 0.

    The differences of ``_NEARBY`` points around a point count, or before it if it is not among the ``known`` points.
    """
    squares = np.diff(y, prepend=y[:, :1]) ** 2 / 2
    bar = np.exp(_CLEARLY * np.sqrt(5 / _NEARBY)) * usual
    variance = np.zeros_like(y)
    for point in range(0, y.shape[1], 4):
        stop = min(max(point + _NEARBY // 2, _NEARBY), known) if point < known else point + 1
        local = np.median(squares[:, max(0, stop - _NEARBY) : stop], axis=1) / MEDIAN_SQUARE
        local = np.where(local > bar, local * (1 + CAUTION / _NEARBY), 0.0)
        variance[:, point : point + 4] = local[:, None]
    return variance


def _weights(errors: Floats, known: int) -> Floats:
    """Return the variance of each point relative to a usual point [series, points].

    Half of the variance follows the point's own standard error, and the other half is constant.
    """
    weights = np.ones_like(errors)
    finite = np.isfinite(errors)
    if finite.any():
        logs = np.where(finite, np.log(np.where(finite, errors, 1.0)), 0.0)
        # Average the logarithm, so that one huge error does not make all others look small.
        count = np.maximum(finite[:, :known].sum(axis=1), 1)
        usual = logs[:, :known].sum(axis=1) / count
        weights = np.where(finite, 0.5 + 0.5 * np.exp(2 * (logs - usual[:, None])), 1.0)
    return weights
