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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.constants import GATE, MEMORY, NOVELTY, WANDER, WIDTH

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Hypotheses(NamedTuple):
    """The hypotheses about the beginning of the present level of each series, after a point.

    Attributes:
        cost: the cost of all points so far [series, hypotheses].
        start: where each hypothesis begins [series, hypotheses].
        best, cheapest: where the cheapest hypothesis begins, and its cost [series].
        squares: squared distance of the point from the cheapest hypothesis' forecast, as if that were certain [series].
    """

    cost: Floats
    start: Ints
    best: Ints
    cheapest: Floats
    squares: Floats


def forward_costs(
    y: Floats, variance: Floats, keep: Ints | None = None, outlier: Floats | None = None
) -> Iterator[Hypotheses]:
    """Yield the hypotheses after each point. The arrays are overwritten by the next step.

    Args:
        y: the points [series, points]; NaN behind the last point of a series.
        variance: variance of each point [series, points].
        keep: beginning of the hypothesis that stays although others are cheaper [series]; may change between steps.
        outlier: largest cost of a point [series]; by default the square of ``GATE``.
    """
    rows, width = np.arange(len(y)), min(WIDTH, y.shape[1])
    level, wandering, var_level, covariance, var_wandering = np.zeros((5, len(y), width))
    cost, start = np.full((len(y), width), np.inf), np.full((len(y), width), -1)
    wander, decay = WANDER**2, MEMORY
    best = np.zeros(len(y), dtype=np.int64)
    cheapest, squares = np.zeros(len(y)), np.zeros(len(y))
    most = np.full((len(y), 1), GATE**2) if outlier is None else outlier[:, None]
    for point in range(y.shape[1]):
        own = variance[:, point]
        used = slice(0, min(point, width))
        if point:
            drift, shared = wandering[:, used] * decay, covariance[:, used] * decay
            spread = var_wandering[:, used] * decay**2 + (wander * (1 - decay**2) * own)[:, None]
            to_level = var_level[:, used] + shared
            to_wandering = shared + spread
            total = to_level + to_wandering + own[:, None]
            error = y[:, point, None] - level[:, used] - drift
            distance = error * error / total
            inside = distance < GATE**2
            squares = distance[rows, best] * own
            likely = np.minimum(distance + np.log(total / own[:, None]), most)
            cost[:, used] += np.where(inside, likely, most)
            inverse = inside / total
            gain = to_level * inverse
            level[:, used] += gain * error
            var_level[:, used] -= gain * to_level
            covariance[:, used] = shared - gain * to_wandering
            gain = to_wandering * inverse
            wandering[:, used] = drift + gain * error
            var_wandering[:, used] = spread - gain * to_wandering
        place: Ints = np.full(len(y), point)
        if point >= width:
            # The new hypothesis takes the place of the costliest.
            wanted = start == start[rows, best][:, None]
            if keep is not None:
                wanted |= start == keep[:, None]
            place = np.where(wanted, -np.inf, cost).argmax(axis=1)
        for array, value in (
            (cost, cheapest + 2 * NOVELTY * (point > 0)),
            (start, point),
            (level, y[:, point]),
            (wandering, 0.0),
            (var_level, own * (1 + wander)),
            (covariance, -wander * own),
            (var_wandering, wander * own),
        ):
            array[rows, place] = value
        now = slice(0, min(point + 1, width))
        best = cost[:, now].argmin(axis=1)
        cheapest = cost[rows, best]
        yield Hypotheses(cost[:, now], start[:, now], start[rows, best], cheapest, squares)


def final_costs(y: Floats, variance: Floats) -> Floats:
    """Return the cost of the best levels of each series [series]. ``variance`` is that of every point [series]."""
    cheapest = np.zeros(len(y))
    for hypotheses in forward_costs(y, np.repeat(variance[:, None], y.shape[1], axis=1)):
        cheapest = hypotheses.cheapest
    return cheapest
