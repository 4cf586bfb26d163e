"""Reduce a line with more points than pixel columns to the points that give the line its shape.

The lowest and the highest point of each column are kept, because these determine a column of the drawn line (U. Jugel
et al., M4: A Visualization-Oriented Time Series Data Aggregation, VLDB 2014). Every kept point is a measured point, and
its hover shows its own number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64] | NDArray[np.int32]


def telling_points(x: Numbers, y: Numbers, width: float) -> NDArray[np.intp]:
    """Return the indices of the points that a line needs: the first, the last, and each column's lowest and highest.

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
    """Return a band reduced to columns: x, lowest ends, highest ends. A band with one point per column is unchanged.

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
    """Return the column of each point, counted without empty columns."""
    column = ((x - x[0]) / width).astype(np.intp)
    return np.cumsum(np.diff(column, prepend=column[0]) > 0)
