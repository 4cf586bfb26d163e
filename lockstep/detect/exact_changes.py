"""Find the changes of an exact quantity, which has no noise, so that every difference is a change."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.findings import Change

#: Stands for a count of zero, which has no logarithm, so that a change from or to zero has a finite size.
_ZERO = 0.5


def positive(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return counts with zeros replaced by ``_ZERO``, so that every change has a ratio."""
    return np.maximum(values, _ZERO)


def exact_changes(values: NDArray[np.float64]) -> tuple[Change, ...]:
    """Return a change for each point that differs from the previous point.

    Args:
        values: float64 [commits], positive and finite, oldest first.
    """
    log = np.log(values)
    changes = []
    for index in (np.flatnonzero(np.diff(values)) + 1).tolist():
        size, left = float(log[index] - log[index - 1]), float(log[-1] - log[index - 1])
        changes.append(Change(index, index - 1, index, index, size, size, size, 1.0, index, left))
    return tuple(changes)
