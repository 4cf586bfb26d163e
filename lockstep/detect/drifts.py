"""Test whether a slope or noise explains points that look like a step. ``modes`` tests the third explanation."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: How much cheaper a slope must be than a step: slopes are the rarer.
_LEAD = 2.0
#: Commits after which a slope ends, or never.
_RAMPS = (np.inf, 64.0, 32.0, 16.0)
#: Points from which on the correlation of neighbours is estimated, and the exponent that makes up for its shrinkage.
_SHORTEST, _SHRUNK = 8, 1.6
#: Points before and after a step that show how noisy the series is there, and how many points the series' noise counts.
_BEFORE, _AFTER, _PRIOR = 6, 12, 4.0
#: Largest square that one point contributes, and the ratio from which on the noise is larger.
_LARGEST_SQUARE, _CLEARLY = 9.0, 1.3
#: Cost units that a step needs beyond the threshold for each time that the noise exceeds the estimate.
_DOUBTED = 19.0
#: Standard deviations, of the noise that the points around a step show, from which on noise does not explain it.
_BEYOND_NOISE = 5.0


def median(y: Floats) -> float:
    """Median of the points that are there; NaN for none. numpy's own takes twenty times as long on so few."""
    ordered = np.sort(y)  # NaN last
    count = int(np.count_nonzero(~np.isnan(ordered)))
    return float(ordered[(count - 1) // 2] + ordered[count // 2]) / 2 if count else float("nan")


def robust_mean(y: Floats, noise: float, gate: float) -> float:
    """Mean of the points within ``gate · noise`` of the median."""
    middle = median(y)
    near = y[np.abs(y - middle) <= gate * noise]
    return float(near.mean()) if near.size else middle


def slopes(y: Floats, split: int, noise: float, gate: float) -> bool:
    """Whether a slope, without an end or between two levels, explains the points better than a step at ``split``.

    Where it bends is chosen as freely as where the step lies. An outlier costs ``gate²`` at most.

    Args:
        y: log values of the segment before the step and the one after, none missing.
        split: position of the first point after the step.
        noise: standard deviation of a point.
        gate: see ``Settings``.
    """
    after = y.size - split
    if after < 5 or split < 5:
        return False
    step = np.concatenate(
        [y[:split] - robust_mean(y[:split], noise, gate), y[split:] - robust_mean(y[split:], noise, gate)]
    )
    near = np.abs(step) < gate * noise
    if not near.any():
        return False
    cap = (gate * noise) ** 2
    where = np.arange(y.size, dtype=np.float64)
    latest = split + after // 2
    bends = np.unique(latest - np.geomspace(1, latest, 16).astype(int))
    ramps = np.clip(where - bends[:, None, None], 0.0, np.array(_RAMPS)[:, None]).reshape(-1, y.size)
    weights = near.astype(np.float64)
    total = weights.sum()
    ramps -= (ramps @ weights / total)[:, None]
    off = y - (y @ weights) / total
    slope = (ramps @ (off * weights)) / np.maximum(ramps**2 @ weights, 1e-300)
    rest = off - slope[:, None] * ramps
    lead = _LEAD * noise * noise
    return bool(np.minimum(rest * rest, cap).sum(axis=1).min() + lead < np.minimum(step * step, cap).sum())


def autocorrelation(rest: Floats) -> float:
    """Return the correlation of neighbours in ``rest``, deviations from a level; 0 unless twice its standard error."""
    found = _neighbours(rest) if rest.size >= 12 else 0.0
    return min(found, 0.95) if found > 2 / np.sqrt(rest.size) else 0.0


def correlated(residuals: Floats, gate: float) -> float:
    """Return how many times less evidence correlated points carry than independent ones, at least 1.

    A mean of many points with autocorrelation r has (1 + r) / (1 - r) times the variance. r is shrunk as by James and
    Stein (1961), which makes it 0 below its standard error; ``_SHRUNK`` makes up for the rest of the shrinkage.

    Args:
        residuals: deviations from the level in standard deviations, in commit order.
        gate: see ``Settings``.
    """
    found = _neighbours(np.clip(residuals, -gate, gate)) if residuals.size >= _SHORTEST else 0.0
    if found * np.sqrt(residuals.size) <= 1:
        return 1.0
    linked = min(found - 1 / (residuals.size * found), 0.95)
    return float(((1 + linked) / (1 - linked)) ** _SHRUNK)


def louder(before: Floats, after: Floats, gate: float) -> float:
    """Return the variance of the points around a step over that of the series; 1 unless it is clearly larger.

    The largest outlier is left out: the series has single ones, which say nothing of the noise.

    Args:
        before: residuals before the step in standard deviations, in commit order.
        after: deviations of the points after the step from their own median, in the same unit.
        gate: see ``Settings``.
    """
    if after.size > _AFTER:
        return 1.0
    squares = np.sort(np.concatenate([before[-_BEFORE:], after]) ** 2)
    if squares[-1] > gate**2:
        squares = squares[:-1]
    squares = np.minimum(squares, _LARGEST_SQUARE)
    ratio = float((_PRIOR + squares.sum()) / (_PRIOR + squares.size - 1))
    return ratio if ratio > _CLEARLY else 1.0


def explained_by_noise(before: Floats, after: Floats, deviation: float, excess: float, gate: float) -> bool:
    """Return whether noise that is correlated, or larger around a step, explains the step.

    Args:
        before: residuals before the step in standard deviations, in commit order.
        after: points from the step on, as log units from the level before it, none missing.
        deviation: standard deviation of the series' noise, log units.
        excess: cost units by which the step exceeds the threshold for independent noise.
        gate: see ``Settings``.
    """
    size = median(after)
    rest = (after - size) / deviation
    more = correlated(np.append(before, rest), gate) * louder(before, rest, gate)
    if excess >= _DOUBTED * (more - 1):
        return False
    return abs(size) < _BEYOND_NOISE * math.sqrt(more) * deviation


def _neighbours(rest: Floats) -> float:
    squares = float(rest @ rest)
    return float(rest[1:] @ rest[:-1]) / squares if squares > 0 else 0.0
