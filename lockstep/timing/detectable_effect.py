"""The minimal detectable effect (MDE): the smallest change that a measurement could have shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev

from lockstep.timing.intervals import CONFIDENCE, t_quantile

#: Power at which the minimal detectable effect is stated.
POWER = 0.8


def detectable(epochs: Sequence[float]) -> float:
    """Return the smallest relative change of the ratio that this number of epochs would detect.

    The formula is that of a two-sided t test, ``(t_{1-α/2} + t_{power}) · s / √n``, against a history that is known
    much better than one measurement (Bloom 1995, "Minimum detectable effects").
    """
    if len(epochs) < 2:
        return math.inf
    return detectable_by_error(stdev(epochs) / math.sqrt(len(epochs)), len(epochs))


def detectable_by_error(error: float, epochs: int) -> float:
    """Return the smallest relative change that a number would detect, as ``detectable``.

    Args:
        error: standard error of the number's logarithm.
        epochs: number of independent values from which the error was computed.
    """
    return math.expm1(_reach(epochs - 1) * error) if epochs >= 2 else math.inf


def epochs_to_detect(epochs: Sequence[float], effect: float) -> int | None:
    """Return how many epochs would detect a relative change of ``effect``; None for fewer than two epochs."""
    if len(epochs) < 2:
        return None
    spread, target = stdev(epochs), math.log1p(effect)
    count = 2
    while _reach(count - 1) * spread / math.sqrt(count) > target:
        count += 1 if count < 100 else count // 10
    return count


def _reach(freedom: int) -> float:
    """Return the number of standard errors that a change must have to be detected at the stated confidence and
    power.
    """
    return t_quantile(0.5 + CONFIDENCE / 2, freedom) + t_quantile(POWER, freedom)
