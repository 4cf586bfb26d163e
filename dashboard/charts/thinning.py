"""Reduce a line with more points than pixel columns to the points that give the line its shape.

Each column keeps its lowest and its highest point, because these two determine how the column looks (U. Jugel et al.,
M4: A Visualization-Oriented Time Series Data Aggregation, VLDB 2014). Kept points are measured points, not averages.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64] | NDArray[np.int32]


def outline_points(x: Numbers, y: Numbers, width: float) -> NDArray[np.intp]:
    """Return the indices of the points to keep: the first, the last, and each column's lowest and highest.

    Args:
        x: [points], ascending.
        y: [points], finite.
        width: the width of a column, in units of ``x``.
    """
    column = _columns(x, width)
    if len(x) <= 2 * (column[-1] + 1):
        return np.arange(len(x))
    order = np.lexsort((y, column))
    first = np.searchsorted(column, np.arange(column[-1] + 1))
    last = np.append(first[1:], len(x)) - 1
    # Points are sorted by column, then by value, so a column's first and last are its lowest and highest.
    return np.unique(np.concatenate([order[first], order[last], [0, len(x) - 1]]))


def envelope(
    x: Numbers, low: Numbers, high: Numbers, width: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Reduce a band to one point per column: x, lowest ``low`` and highest ``high`` of the column.

    Args:
        x: [points], ascending.
        low, high: [points], finite.
        width: the width of a column, in units of ``x``.
    """
    column = _columns(x, width)
    if len(x) == column[-1] + 1:
        return x.astype(float), low.astype(float), high.astype(float)
    first = np.searchsorted(column, np.arange(column[-1] + 1))
    lows, highs = np.minimum.reduceat(low, first), np.maximum.reduceat(high, first)
    # The last column extends to the last point, as the line does.
    return np.append(x[first], x[-1]).astype(float), np.append(lows, lows[-1]), np.append(highs, highs[-1])


def _columns(x: Numbers, width: float) -> NDArray[np.intp]:
    """Return the index of each point's column. Columns without points are not counted."""
    column = ((x - x[0]) / width).astype(np.intp)
    return np.cumsum(np.diff(column, prepend=column[0]) > 0)
