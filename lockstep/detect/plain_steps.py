"""Find the steps that nobody can miss: the points on both sides lie apart by several times the larger side's range."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def plain_steps(y: Floats, least: Floats, points: int, times: float, *, before: int | None = None) -> NDArray[np.bool_]:
    """Return whether a plain step lies before the last ``points`` points [series].

    Args:
        y: the points so far [series, points].
        least: smallest gap that counts [series]; smaller ones are rounding.
        points: number of points after the step.
        times: by how many times the gap exceeds the larger side's range.
        before: number of points before the step; ``points`` if it is None.
    """
    ahead = before or points
    if y.shape[1] < ahead + points:
        return np.zeros(len(y), dtype=np.bool_)
    old, new = y[:, -ahead - points : -points], y[:, -points:]
    gap = np.maximum(new.min(axis=1) - old.max(axis=1), old.min(axis=1) - new.max(axis=1))
    ranges = np.maximum(np.ptp(old, axis=1), np.ptp(new, axis=1))
    plain: NDArray[np.bool_] = (gap >= times * ranges) & (gap > least)
    return plain
