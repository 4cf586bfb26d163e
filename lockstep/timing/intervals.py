"""Intervals from epochs: how far an estimate can be trusted.

An epoch (one set of fresh buffers) is the independent unit. Rounds within an epoch share where their
buffers lie, and that offset, not the noise of a round, dominates: on an H200 two instances of one
kernel differed by 0.494 % and, on the same buffers again, by 0.472 %. So the spread between the
epochs' ratios gives the interval, by Student's t; more rounds on the same buffers would only make a
wrong number look sure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from lockstep.record.model import Estimate

CONFIDENCE = 0.95

#: Stopping as soon as the interval is narrow enough looks at the data more than once and favours
#: epochs that happen to agree. Computed at this level, the intervals cover the truth in at least 95 %
#: of sequentially stopped measurements (simulated in tests/timing/test_intervals.py).
NOMINAL = 0.97


def log_interval(epochs: Sequence[float]) -> Estimate:
    """Return the mean of per-epoch log values with its interval; its bounds are infinite for fewer than two epochs.

    Raises:
        ValueError: there is no epoch.
    """
    if not epochs:
        raise ValueError("an interval needs at least one epoch")
    centre = fmean(epochs)
    half = half_width(epochs)
    return Estimate(centre, centre - half, centre + half)


def half_width(epochs: Sequence[float]) -> float:
    """Half the width of the interval of the mean, in log units (0.001 is 0.1 %)."""
    return half_width_after(len(epochs), epochs)


def half_width_after(count: int, epochs: Sequence[float]) -> float:
    """Half the width of the interval that so many epochs, two at least, would have if they spread as these do."""
    if len(epochs) < 2:
        return math.inf
    return t_quantile(0.5 + NOMINAL / 2, count - 1) * stdev(epochs) / math.sqrt(count)


def standard_error(
    low: NDArray[np.float64], high: NDArray[np.float64], epochs: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Standard errors of the logs behind intervals that ``exponential(log_interval(...))`` gave.

    Args:
        low, high: ends of the intervals of ratios or times, of one length.
        epochs: how many epochs each rests on.

    Returns:
        In log units; NaN from fewer than two epochs and where there is no interval.
    """
    known = (epochs >= 2) & (low > 0) & (high >= low) & np.isfinite(high)
    found = np.full(len(low), np.nan)
    if known.any():
        from scipy.special import stdtrit  # as long to import as all else that a reader of results needs

        quantile = stdtrit(epochs[known] - 1.0, 0.5 + NOMINAL / 2)
        found[known] = np.log(high[known] / low[known]) / 2 / quantile
    return found


def exponential(estimate: Estimate) -> Estimate:
    """From log units to a ratio or to seconds."""
    return Estimate(math.exp(estimate.value), _exp(estimate.low), _exp(estimate.high))


@cache
def t_quantile(probability: float, freedom: int) -> float:
    """Student's t below which so much of the distribution lies."""
    # Start-up: scipy is slow to import.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
