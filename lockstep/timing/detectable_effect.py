"""Compute the minimal detectable effect (MDE): the smallest change that a measurement could have shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev

from lockstep.timing.intervals import CONFIDENCE, t_quantile

#: Power at which the minimal detectable effect is stated.
POWER = 0.8


def detectable(epochs: Sequence[float]) -> float:
    """Return the smallest relative change of a ratio that a measurement with these epochs would detect.

    The formula belongs to a two-sided t test: ``(t_{1-α/2} + t_{power}) · s / √n`` (Bloom 1995, "Minimum detectable
    effects"). The test compares the measurement with a history that is known much better than the measurement.

    Args:
        epochs: logarithm of the value measured in each epoch.
    """
    if len(epochs) < 2:
        return math.inf
    return detectable_by_error(stdev(epochs) / math.sqrt(len(epochs)), len(epochs))


def detectable_by_error(error: float, epochs: int) -> float:
    """Return the smallest relative change of a measured number that would be detected.

    Args:
        error: standard error of the number's logarithm.
        epochs: number of independent values from which the standard error was computed.
    """
    return math.expm1(_reach(epochs - 1) * error) if epochs >= 2 else math.inf


def _reach(freedom: int) -> float:
    """Return how many standard errors a change must span to be detected with ``CONFIDENCE`` and ``POWER``.

    ``freedom``: degrees of freedom of the standard error.
    """
    return t_quantile(0.5 + CONFIDENCE / 2, freedom) + t_quantile(POWER, freedom)
