"""Find changes in the results of correctness checks: the error, and whether two calls give the same bits.

Each run draws new inputs for the check, so the errors of all variants of a case move together. On an H200 the error of
a case differed by 36 % between two runs of the same kernels, but the ratio of the error to the baseline's error
differed by at most 2.7 %. So a change is reported if this ratio leaves its range and the error itself explains most of
the ratio's move. The noise is not estimated, because most errors are the rounding of the output, which stays the same
number for years.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.findings import Change

#: Errors below the unit roundoff of float32 count as this number, because smaller differences do not matter. An error
#: of zero, of a variant that equals its reference, would have no logarithm.
ROUNDING = 2.0**-24

#: Log of the factor by which an error must lie outside its range to count as a change. One more rounding to 16 bits is
#: a factor of √2.
STEP = math.log(1.25)

#: Number of points after which the range of a level is trusted, and the larger log factor that is required before.
#: Errors scatter from run to run: the norm of n independent errors scatters by a share of 1/√(2n).
KNOWN, NEW = 10, math.log(1.4)

#: A change of the ratio counts only if the change of the error itself explains at least this share of it.
PART = 0.75

#: Log factor that is required without a baseline, because new inputs may then explain a smaller change.
ALONE = math.log(2.0)

#: Number of consecutive checks with equal bits after which a variant counts as deterministic again. It exceeds one,
#: because two calls of a nondeterministic variant may give equal bits by chance.
AGREEING = 8

Floats = NDArray[np.float64]


@dataclass
class Level:
    """The range in which the errors of a variant lay since the last change.

    Attributes:
        low, high: range of the errors' logarithms.
        paired_low, paired_high: range of the logarithms of the ratio of the error to the baseline's error; infinite
            while no ratio is known.
        points: the number of errors.
        mean: mean of the errors' logarithms.
    """

    low: float = math.inf
    high: float = -math.inf
    paired_low: float = math.inf
    paired_high: float = -math.inf
    points: int = 0
    mean: float = 0.0

    def add(self, log_error: float, paired: float) -> None:
        """Extend the range of the errors by a log error ``log_error`` and a log ratio ``paired`` (NaN if unknown)."""
        self.points += 1
        self.mean += (log_error - self.mean) / self.points
        self.low, self.high = min(self.low, log_error), max(self.high, log_error)
        if not math.isnan(paired):
            self.paired_low, self.paired_high = min(self.paired_low, paired), max(self.paired_high, paired)

    def left_by(self, log_error: float, paired: float) -> bool:
        """Return whether a point lies outside the range of the ratios or, without a ratio, the range of the errors."""
        if math.isnan(paired) or self.paired_low > self.paired_high:
            return abs(_beyond(log_error, self.low, self.high, ALONE)) > 0
        side = _beyond(paired, self.paired_low, self.paired_high, STEP if self.points >= KNOWN else NEW)
        end = self.paired_high if side > 0 else self.paired_low
        # The ratio also moves with the baseline's error, so the variant's own error must explain most of the move.
        return side != 0 and side * (log_error - self.mean) >= PART * side * (paired - end)


def _beyond(value: float, low: float, high: float, least: float) -> int:
    """Return −1 if a value lies below the range, 1 if above, and 0 if within the range or its margin.

    The margin is ``least`` or the width of the range, whichever is larger.
    """
    margin = max(least, high - low)
    return 1 if value > high + margin else -1 if value < low - margin else 0


def error_changes(errors: Floats, baseline: Floats) -> tuple[Change, ...]:
    """Return the changes in the errors of a variant.

    Args:
        errors: float64 [checks], relative to the reference's norm, zero or more and finite, oldest first.
        baseline: float64 [checks], the baseline's errors on the same inputs; NaN if unknown. All are NaN if the variant
            is the baseline itself.
    """
    log_errors = np.log(np.maximum(errors, ROUNDING))
    # If the baseline equals its reference, its error says nothing about the inputs.
    paired = np.where(baseline > ROUNDING, log_errors - np.log(np.maximum(baseline, ROUNDING)), np.nan)
    level = Level()
    levels = [level]
    starts: list[int] = []
    for index, (value, ratio) in enumerate(zip(log_errors.tolist(), paired.tolist(), strict=True)):
        if index and level.left_by(value, ratio):
            starts.append(index)
            level = Level()
            levels.append(level)
        level.add(value, ratio)
    changes = []
    for index, old in zip(starts, levels, strict=False):
        size = float(log_errors[index] - log_errors[index - 1])
        returned = not abs(_beyond(float(log_errors[-1]), old.low, old.high, STEP))
        left = 0.0 if returned else float(log_errors[-1] - log_errors[index - 1])
        changes.append(_change(index, index, size, left))
    return tuple(changes)


def determinism_changes(same: Floats) -> tuple[Change, ...]:
    """Return the changes at which a variant became nondeterministic, or deterministic again.

    Args:
        same: float64 [checks], 1 if two calls gave the same bits, else 0; oldest first.
    """
    spans: list[tuple[int, int, bool]] = []
    now, agreeing = bool(same[0]) if len(same) else True, 0
    for index, equal in enumerate(same.tolist()):
        agreeing = agreeing + 1 if equal else 0
        if now and not equal:
            now = False
            spans.append((index, index, now))
        elif not now and agreeing == AGREEING and index >= AGREEING:
            now = True
            spans.append((index - AGREEING + 1, index, now))
    size = math.log(2.0)
    return tuple(
        _change(
            index,
            reported_at,
            size if after else -size,
            0.0 if after != now else size if after else -size,
        )
        for index, reported_at, after in spans
    )


def _change(index: int, reported_at: int, size: float, left: float) -> Change:
    return Change(index, index - 1, index, index, size, size, size, 1.0, reported_at, left)
