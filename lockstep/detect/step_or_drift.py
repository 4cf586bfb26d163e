"""Test whether a slope or noise explains points that look like a step.

``lockstep.detect.modes`` tests the third explanation: switches between a few levels.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.settings import GATE

Floats = NDArray[np.float64]

#: A slope must be cheaper than a step by this many cost units, because slopes are rarer.
_LEAD = 2.0
#: Lengths of a slope that are tested, in commits; infinite for a slope without an end.
_RAMPS = (np.inf, 64.0, 32.0, 16.0)
#: Minimum number of points for an estimate of the correlation of neighbours, and the exponent that undoes its
#: shrinkage.
_SHORTEST, _SHRUNK = 8, 1.6
#: Numbers of points before and after a step by which the noise around the step is estimated, and the number of points
#: that the noise of the whole series counts as in this estimate.
_BEFORE, _AFTER, _PRIOR = 6, 12, 4.0
#: Maximum square that one point contributes to this estimate, and the ratio above which the noise counts as larger.
_LARGEST_SQUARE, _CLEARLY = 9.0, 1.3
#: If the noise exceeds the estimate by a multiple, a step needs this many cost units beyond the threshold per multiple.
_COST_OF_EXCESS = 19.0
#: Noise does not explain a step that is larger than this many standard deviations of the noise around the step.
_BEYOND_NOISE = 5.0


def median(y: Floats) -> float:
    """Return the median of the points that are not NaN; NaN without points.

    For a few points, numpy's own function takes twenty times as long.
    """
    ordered = np.sort(y)  # NaN last
    count = int(np.count_nonzero(~np.isnan(ordered)))
    return float(ordered[(count - 1) // 2] + ordered[count // 2]) / 2 if count else float("nan")


def robust_mean(y: Floats, noise: float) -> float:
    """Return the mean of the points within ``GATE · noise`` of the median."""
    middle = median(y)
    inliers = y[np.abs(y - middle) <= GATE * noise]
    return float(inliers.mean()) if inliers.size else middle


def slopes(y: Floats, split: int, noise: float) -> bool:
    """Return whether a slope explains the points better than a step.

    The slope may be endless or lie between two levels. The beginning of the slope and the position of the step are both
    chosen so that they fit best. An outlier costs at most ``GATE²``.

    Args:
        y: log values of the segments before and after the step, none missing.
        split: position of the first point after the step, as reported.
        noise: standard deviation of a point.
    """
    after = y.size - split
    if after < 5 or split < 5:
        return False
    step = np.concatenate([y[:split] - robust_mean(y[:split], noise), y[split:] - robust_mean(y[split:], noise)])
    inlier = np.abs(step) < GATE * noise
    if not inlier.any():
        return False
    cap = (GATE * noise) ** 2
    position = np.arange(y.size, dtype=np.float64)
    latest = split + after // 2
    bends = _bends(latest)
    ramps = np.clip(position - bends[:, None, None], 0.0, np.array(_RAMPS)[:, None]).reshape(-1, y.size)
    weights = inlier.astype(np.float64)
    total = weights.sum()
    ramps -= (ramps @ weights / total)[:, None]
    deviations = y - (y @ weights) / total
    slope = (ramps @ (deviations * weights)) / np.maximum(ramps**2 @ weights, 1e-300)
    residuals = deviations - slope[:, None] * ramps
    lead = _LEAD * noise * noise
    return bool(np.minimum(residuals * residuals, cap).sum(axis=1).min() + lead < np.minimum(step * step, cap).sum())


@functools.lru_cache(maxsize=1024)
def _bends(latest: int) -> NDArray[np.int_]:
    """Return the positions at which a tested slope begins, up to ``latest``: dense near ``latest``, sparse before."""
    return np.unique(latest - np.geomspace(1, latest, 16).astype(int))


def autocorrelation(residuals: Floats) -> float:
    """Return the correlation of neighbouring deviations from a level; 0 if it is below twice its standard error."""
    correlation = _neighbours(residuals) if residuals.size >= 12 else 0.0
    return min(correlation, 0.95) if correlation > 2 / np.sqrt(residuals.size) else 0.0


def correlated(residuals: Floats) -> float:
    """Return the factor by which correlated points carry less evidence than independent points, at least 1.

    A mean of many points with autocorrelation r has (1 + r) / (1 - r) times the variance. r is shrunk as by James and
    Stein (1961), which makes r 0 below its standard error. ``_SHRUNK`` undoes the rest of the shrinkage.

    Args:
        residuals: deviations from the level in standard deviations, in commit order.
    """
    correlation = _neighbours(np.clip(residuals, -GATE, GATE)) if residuals.size >= _SHORTEST else 0.0
    if correlation * np.sqrt(residuals.size) <= 1:
        return 1.0
    linked = min(correlation - 1 / (residuals.size * correlation), 0.95)
    return float(((1 + linked) / (1 - linked)) ** _SHRUNK)


def louder(before: Floats, after: Floats) -> float:
    """Return how many times larger the variance around a step is than the series' variance; 1 unless clearly larger.

    The largest deviation is left out, because every series has single outliers that do not show its noise.

    Args:
        before: residuals before the step in standard deviations, in commit order.
        after: deviations of the points after the step from their own median, in the same unit.
    """
    if after.size > _AFTER:
        return 1.0
    squares = np.sort(np.concatenate([before[-_BEFORE:], after]) ** 2)
    if squares[-1] > GATE**2:
        squares = squares[:-1]
    squares = np.minimum(squares, _LARGEST_SQUARE)
    ratio = float((_PRIOR + squares.sum()) / (_PRIOR + squares.size - 1))
    return ratio if ratio > _CLEARLY else 1.0


def explained_by_noise(before: Floats, after: Floats, deviation: float, excess: float) -> bool:
    """Return whether noise explains a step, because it is correlated or larger around the step than elsewhere.

    Args:
        before: residuals before the step in standard deviations, in commit order.
        after: points from the step on, as log units from the level before the step, none missing.
        deviation: standard deviation of the series' noise, log units.
        excess: cost units by which the step exceeds the threshold for independent noise.
    """
    size = median(after)
    residuals = (after - size) / deviation
    variance_factor = correlated(np.append(before, residuals)) * louder(before, residuals)
    if excess >= _COST_OF_EXCESS * (variance_factor - 1):
        return False
    return abs(size) < _BEYOND_NOISE * math.sqrt(variance_factor) * deviation


def _neighbours(residuals: Floats) -> float:
    squares = float(residuals @ residuals)
    return float(residuals[1:] @ residuals[:-1]) / squares if squares > 0 else 0.0
