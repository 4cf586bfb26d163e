"""Find changes whose size needs no estimate of noise: of exact quantities, of errors of checks, and of determinism.

An exact quantity has no noise, so every difference is a change.

Each run draws new inputs for a check. On an H200 the error of a case differed by 36 % between two runs of the same
kernels. So an error changes if it leaves the range of its earlier errors by more than that. The noise is not estimated,
because most errors are the rounding of the output, which stays the same number for years.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.findings import Change

#: Errors below the unit roundoff of float32 count as this number, because smaller differences do not matter. An error
#: of zero, of a variant that equals its reference, would have no logarithm.
ROUNDING = 2.0**-24

#: Log of the factor by which an error must lie outside the range of the errors since the last change.
STEP = math.log(1.6)

#: Chance below which equal bits in a row are no coincidence: the variant is deterministic again.
BY_CHANCE = 0.01

#: Stands for a count of zero, which has no logarithm, so that a change from or to zero has a finite size.
_ZERO = 0.5

Floats = NDArray[np.float64]


def positive(values: Floats) -> Floats:
    """Return counts with zeros replaced by ``_ZERO``, so that every change has a ratio."""
    return np.maximum(values, _ZERO)


def exact_changes(values: Floats) -> tuple[Change, ...]:
    """Return a change for each point that differs from the previous point.

    Args:
        values: float64 [commits], positive and finite, oldest first.
    """
    log = np.log(values)
    changes = []
    for index in (np.flatnonzero(np.diff(values)) + 1).tolist():
        size, left = float(log[index] - log[index - 1]), float(log[-1] - log[index - 1])
        changes.append(_change(index, index, size, left))
    return tuple(changes)


def error_changes(errors: Floats) -> tuple[Change, ...]:
    """Return the changes in the errors of a variant.

    Args:
        errors: float64 [checks], relative to the reference's norm, zero or more and finite, oldest first.
    """
    logs = np.log(np.maximum(errors, ROUNDING)).tolist()
    starts = [0]
    for index, value in enumerate(logs):
        if _outside(value, logs[starts[-1] : index]):
            starts.append(index)
    changes = []
    for before, index in pairwise(starts):
        size = logs[index] - logs[index - 1]
        left = logs[-1] - logs[index - 1] if _outside(logs[-1], logs[before:index]) else 0.0
        changes.append(_change(index, index, size, left))
    return tuple(changes)


def _outside(value: float, level: list[float]) -> bool:
    """Return whether a log error lies outside the range of a level by more than ``STEP`` and the width of the range."""
    if not level:
        return False
    margin = max(STEP, max(level) - min(level))
    return not min(level) - margin <= value <= max(level) + margin


def determinism_changes(same: Floats) -> tuple[Change, ...]:
    """Return the changes at which a variant became nondeterministic, or deterministic again.

    Two calls of a nondeterministic variant may give equal bits by chance: with (equal checks + 1) / (checks + 2), as
    Laplace's rule of succession estimates from the checks since it became nondeterministic.

    Args:
        same: float64 [checks], 1 if two calls gave the same bits, else 0; oldest first.
    """
    spans: list[tuple[int, int, bool]] = []
    now, agreeing, checks, equals = bool(same[0]) if len(same) else True, 0, 0, 0
    for index, equal in enumerate(same.tolist()):
        if not equal:
            if now:
                spans.append((index, index, False))
            now, checks, equals, agreeing = False, checks + agreeing + 1, equals + agreeing, 0
        elif not now:
            agreeing += 1
            if ((equals + 1) / (checks + 2)) ** agreeing < BY_CHANCE:
                spans.append((index - agreeing + 1, index, True))
                now, agreeing, checks, equals = True, 0, 0, 0
    size = math.log(2.0)
    return tuple(
        _change(index, reported_at, size if after else -size, 0.0 if after != now else size if after else -size)
        for index, reported_at, after in spans
    )


def _change(index: int, reported_at: int, size: float, left: float) -> Change:
    return Change(index, index, index, size, size, size, 1.0, reported_at, left)
