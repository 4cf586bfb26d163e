"""A line of more points than its chart has columns of pixels, by those of its points that tell its shape.

Of each column the lowest and the highest point are kept, which is what a column of a drawn line shows
(U. Jugel et al., M4: A Visualization-Oriented Time Series Data Aggregation, VLDB 2014). Each is a point that was
measured, and what stands beside the pointer is its number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64] | NDArray[np.int32]


def telling_points(x: Numbers, y: Numbers, width: float) -> NDArray[np.intp]:
    """Places of the points that a line needs: the first, the last, and of each column the lowest and the highest.

    Args:
        x: [points], rising. y: [points], finite.
        width: the width of a column, in units of ``x``.
    """
    column = _columns(x, width)
    if len(x) <= 2 * (column[-1] + 1):
        return np.arange(len(x))
    order = np.lexsort((y, column))
    first = np.searchsorted(column, np.arange(column[-1] + 1))
    last = np.append(first[1:], len(x)) - 1
    # Sorted by column, then by value: a column's ends are its lowest and its highest.
    return np.unique(np.concatenate([order[first], order[last], [0, len(x) - 1]]))


def envelope(
    x: Numbers, low: Numbers, high: Numbers, width: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """A band by its columns: places, lowest ends, highest ends; as it is where it has no more points than columns.

    Args:
        x: [points], rising. low, high: [points], finite.
        width: the width of a column, in units of ``x``.
    """
    column = _columns(x, width)
    if len(x) == column[-1] + 1:
        return x.astype(float), low.astype(float), high.astype(float)
    first = np.searchsorted(column, np.arange(column[-1] + 1))
    lows, highs = np.minimum.reduceat(low, first), np.maximum.reduceat(high, first)
    # The last column reaches to the last point, as the line does.
    return np.append(x[first], x[-1]).astype(float), np.append(lows, lows[-1]), np.append(highs, highs[-1])


def _columns(x: Numbers, width: float) -> NDArray[np.intp]:
    """The column of each point, counted without the empty ones."""
    column = ((x - x[0]) / width).astype(np.intp)
    return np.cumsum(np.diff(column, prepend=column[0]) > 0)
