"""Find the steps that nobody can miss: the points on both sides lie apart by several times the larger side's range."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def plain_steps(y: Floats, least: Floats, points: int, times: float) -> NDArray[np.bool_]:
    """Return whether a plain step lies in the middle of the last ``2 · points`` points [series].

    Args:
        y: the points so far [series, points].
        least: smallest gap that counts [series]; smaller ones are rounding.
        points: number of points on each side.
        times: by how many times the gap exceeds the larger side's range.
    """
    if y.shape[1] < 2 * points:
        return np.zeros(len(y), dtype=np.bool_)
    before, after = y[:, -2 * points : -points], y[:, -points:]
    gap = np.maximum(after.min(axis=1) - before.max(axis=1), before.min(axis=1) - after.max(axis=1))
    ranges = np.maximum(np.ptp(before, axis=1), np.ptp(after, axis=1))
    plain: NDArray[np.bool_] = (gap >= times * ranges) & (gap > least)
    return plain
