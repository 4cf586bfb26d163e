"""Compute, point by point, what each hypothesis about the beginning of the current level costs.

A hypothesis names the point at which the current level began. It holds a Kalman filter with two states: the constant
level, and slow wandering about it (an autoregression of order one). A point beyond ``GATE`` costs a fixed amount and
does not update the filter: the bounded loss of Fearnhead and Rigaill ("Changepoint detection in the presence of
outliers", JASA 114, 2019). A new hypothesis continues the cheapest one so far: optimal partitioning (Jackson et al.
2005; Killick et al., "PELT", JASA 107, 2012). So one pass gives the best levels of every first part of the series.

Costs are minus twice a log likelihood.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.settings import GATE, MEMORY, NOVELTY, WANDER

Floats = NDArray[np.float64]


def forward_costs(y: Floats, variance: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Yield for each point the costs of all hypotheses, and how far the point lies from the cheapest one's forecast.

    Args:
        y: the points [series, points]; NaN behind the last point of a series.
        variance: variance of each point [series, points].

    Yields:
        the cost of all points so far [series, hypotheses], where hypothesis ``s`` begins at point ``s``. The array is
            overwritten by the next step. And the squared distance of the point from the forecast of the cheapest
            hypothesis, scaled as if the forecast were certain [series].
    """
    rows = np.arange(len(y))
    level, wandering, var_level, covariance, var_wandering = np.zeros((5, *y.shape))
    cost = np.full(y.shape, np.inf)
    wander, decay = WANDER**2, MEMORY
    best = np.zeros(len(y), dtype=np.int64)
    cheapest, squares = np.zeros(len(y)), np.zeros(len(y))
    for point in range(y.shape[1]):
        own = variance[:, point]
        if point:
            past = slice(0, point)
            drift, shared = wandering[:, past] * decay, covariance[:, past] * decay
            spread = var_wandering[:, past] * decay**2 + (wander * (1 - decay**2) * own)[:, None]
            to_level = var_level[:, past] + shared
            to_wandering = shared + spread
            total = to_level + to_wandering + own[:, None]
            error = y[:, point, None] - level[:, past] - drift
            distance = error * error / total
            inside = distance < GATE**2
            squares = distance[rows, best] * own
            cost[:, past] += np.where(inside, distance + np.log(total / own[:, None]), GATE**2)
            inverse = inside / total
            gain = to_level * inverse
            level[:, past] += gain * error
            var_level[:, past] -= gain * to_level
            covariance[:, past] = shared - gain * to_wandering
            gain = to_wandering * inverse
            wandering[:, past] = drift + gain * error
            var_wandering[:, past] = spread - gain * to_wandering
        cost[:, point] = cheapest + 2 * NOVELTY * (point > 0)
        level[:, point] = y[:, point]
        var_level[:, point], covariance[:, point], var_wandering[:, point] = (
            own * (1 + wander),
            -wander * own,
            wander * own,
        )
        so_far = cost[:, : point + 1]
        best = so_far.argmin(axis=1)
        cheapest = so_far[rows, best]
        yield so_far, squares


def final_costs(y: Floats, variance: Floats) -> Floats:
    """Return the cost of the best levels of each series [series]. ``variance`` is that of every point [series]."""
    cost = np.zeros(len(y))
    for costs, _ in forward_costs(y, np.repeat(variance[:, None], y.shape[1], axis=1)):
        cost = costs.min(axis=1)
    return cost


def innovations(y: Floats, variance: Floats) -> Floats:
    """Return the squared distance of each point from its forecast [series, points]."""
    steps = forward_costs(y, np.repeat(variance[:, None], y.shape[1], axis=1))
    return np.stack([squares for _, squares in steps], axis=1)
