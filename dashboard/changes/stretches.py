"""The stretches of many series between their changes: their means and how far these can be trusted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dashboard.changes.hypotheses import Floats, Ints
from dashboard.changes.replay import Replay
from dashboard.changes.settings import Settings

#: Points that are looked at together, so that they stay in the processor's cache.
_AT_ONCE = 131_072


@dataclass(frozen=True, eq=False)
class Stretches:
    """Some stretches, arrays of one length; each says the same whatever the others are.

    Attributes:
        row: the series of each. start, stop: its points are ``start <= index < stop``.
        mean: in log units, of the points that are no outliers; NaN where none was measured.
        error: standard error of the mean, NaN while the noise is unknown.
        count: weight of those points, 1 for a usual one.
    """

    row: Ints
    start: Ints
    stop: Ints
    mean: Floats
    error: Floats
    count: Floats


def between_changes(replay: Replay, rows: Ints) -> Stretches:
    """Every stretch between the reported changes of the series ``rows``, by series, oldest first."""
    edges = [[0, *(shift.index for shift in replay.reported(row)), None] for row in rows.tolist()]
    many = np.array([len(one) - 1 for one in edges], dtype=np.int64)
    row = np.repeat(rows, many)
    start = np.array([edge for one in edges for edge in one[:-1]], dtype=np.int64)
    stop = np.append(start[1:], 0)
    last = np.cumsum(many) - 1
    stop[last] = replay.length[rows]
    return stretches(replay, row, start, stop)


def stretches(replay: Replay, row: Ints, start: Ints, stop: Ints) -> Stretches:
    """These stretches."""
    mean, count = np.full(row.size, np.nan), np.zeros(row.size)
    # As wide as the next power of two, and no wider for its company: sums of other widths round otherwise.
    width = 2 ** np.ceil(np.log2(np.maximum(stop - start, 8))).astype(np.int64)
    for wide in np.unique(width).tolist():
        of = np.flatnonzero(width == wide)
        step = max(1, _AT_ONCE // wide)
        for first in range(0, of.size, step):
            some = of[first : first + step]
            mean[some], count[some] = _means(replay, row[some], start[some], stop[some], wide)
    scale = np.sqrt(replay.scatter.variance[row])
    some = np.where(count > 0, count, np.nan)
    error = scale * np.sqrt(1 / some + wandering(some, replay.settings))
    return Stretches(row, start, stop, mean, error, count)


def wandering(count: ArrayLike, settings: Settings) -> Floats:
    """What slow wandering adds to the variance of a mean of ``count`` points, in units of the noise variance."""
    memory = settings.memory
    independent = (1 + memory) / (1 - memory) / np.maximum(count, 1.0)
    added: Floats = settings.wander**2 * np.minimum(1.0, independent)
    return added


def limits(replay: Replay, row: int | Ints, weights: Floats) -> Floats:
    """How far from the middle a point of these weights is an outlier, log units; infinite while nothing is known."""
    scale = np.sqrt(replay.scatter.variance[row])
    found: Floats = np.where(np.isfinite(scale), replay.settings.gate * scale / np.sqrt(weights), np.inf)
    return found


def _means(replay: Replay, row: Ints, start: Ints, stop: Ints, width: int) -> tuple[Floats, Floats]:
    grid = start[:, None] + np.arange(width)
    there = grid < stop[:, None]
    at = row[:, None], np.where(there, grid, start[:, None])
    y = np.where(there, replay.values[at], np.nan)
    weights = 1 / replay.weights[at]
    measured = np.isfinite(y)
    near = measured & (np.abs(y - _medians(y, measured)[:, None]) <= limits(replay, row[:, None], weights))
    none = ~near.any(axis=1)
    near[none] = measured[none]
    weights = np.where(near, weights, 0.0)
    count = weights.sum(axis=1)
    total = (weights * np.where(near, y, 0.0)).sum(axis=1)
    return total / np.where(count > 0, count, np.nan), count


def _medians(y: Floats, measured: NDArray[np.bool_]) -> Floats:
    """Median of each row's measured points; NaN for none."""
    ordered = np.sort(y, axis=1)  # NaN last
    count, which = measured.sum(axis=1), np.arange(len(y))
    found: Floats = (ordered[which, np.maximum(count - 1, 0) // 2] + ordered[which, count // 2]) / 2
    return found
