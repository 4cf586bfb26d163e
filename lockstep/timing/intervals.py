"""Intervals from epochs: how far an estimate can be trusted.

An epoch (one set of fresh buffers) is the independent unit. Rounds within an epoch share the placement of their
buffers. The effect of that placement dominates, not the noise of a round: on an H200 two instances of one kernel
differed by 0.494 % and, on the same buffers again, by 0.472 %. So the interval is computed from the spread between the
epochs' ratios, by Student's t. More rounds on the same buffers would only make a wrong number look sure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from lockstep.record.model import CostEstimate, Estimate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONFIDENCE = 0.95

#: Power at which the minimal detectable effect (MDE) is stated.
POWER = 0.8

#: Stopping as soon as the interval is narrow enough tests the data several times and favours epochs that agree by
#: chance. Intervals computed at this level cover the true value in at least 95 % of sequentially stopped
#: measurements (simulated in tests/timing/test_intervals.py).
NOMINAL = 0.97


def log_interval(epochs: Sequence[float]) -> Estimate:
    """Return the mean of per-epoch logs with its interval, infinite for fewer than two; ``ValueError`` for none."""
    if not epochs:
        raise ValueError("an interval needs at least one epoch")
    centre = fmean(epochs)
    half = half_width(epochs)
    return Estimate(centre, centre - half, centre + half)


def half_width(epochs: Sequence[float]) -> float:
    """Return half the width of the confidence interval of the epochs' mean, in log units (0.001 is 0.1 %)."""
    return half_width_after(len(epochs), epochs)


def half_width_after(count: int, epochs: Sequence[float]) -> float:
    """Return the half-width of the confidence interval that ``count`` epochs with the spread of ``epochs`` would have.

    Args:
        count: number of epochs, at least two.
        epochs: logarithm of the value measured in each epoch so far; the result is infinite for fewer than two.
    """
    if len(epochs) < 2:
        return math.inf
    return t_quantile(0.5 + NOMINAL / 2, count - 1) * stdev(epochs) / math.sqrt(count)


def standard_error(
    low: NDArray[np.float64], high: NDArray[np.float64], epochs: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return the standard errors of logs, in log units, given intervals from ``exponential(log_interval(...))``.

    ``low`` and ``high`` are the ends, of ratios or times; ``epochs`` is the number of epochs behind each interval. The
    error is NaN for fewer than two epochs and without an interval.
    """
    # Imported here: the verbs that measure import this module at their start and do without NumPy.
    import numpy as np

    known = (epochs >= 2) & (low > 0) & (high >= low) & np.isfinite(high)
    errors = np.full(len(low), np.nan)
    if known.any():
        from scipy.special import stdtrit  # the import takes as long as all other imports of a reader of results

        quantile = stdtrit(epochs[known] - 1.0, 0.5 + NOMINAL / 2)
        errors[known] = np.log(high[known] / low[known]) / 2 / quantile
    return errors


def detectable(epochs: Sequence[float]) -> float:
    """Return the smallest relative change of a ratio that a measurement with these epochs would detect.

    The formula belongs to a two-sided t test: ``(t_{1-α/2} + t_{power}) · s / √n`` (Bloom 1995, "Minimum detectable
    effects"). The test compares the measurement with a history that is known much better than the measurement.
    ``epochs`` are logarithms.
    """
    if len(epochs) < 2:
        return math.inf
    return detectable_by_error(stdev(epochs) / math.sqrt(len(epochs)), len(epochs))


def detectable_by_error(error: float, epochs: int) -> float:
    """Return the smallest change detected, given a log's standard error from ``epochs`` independent values."""
    return math.expm1(_reach(epochs - 1) * error) if epochs >= 2 else math.inf


def _reach(freedom: int) -> float:
    """Return how many standard errors a change must span to be detected with ``CONFIDENCE`` and ``POWER``.

    ``freedom``: degrees of freedom of the standard error.
    """
    return t_quantile(0.5 + CONFIDENCE / 2, freedom) + t_quantile(POWER, freedom)


def exponential(estimate: Estimate) -> Estimate:
    """Convert an estimate from log units to a ratio or to seconds."""
    return Estimate(math.exp(estimate.value), _exp(estimate.low), _exp(estimate.high))


def estimated(logs: Sequence[float]) -> CostEstimate:
    """Return the geometric mean with its interval, from the natural logs of independent values (at least one)."""
    estimate = exponential(log_interval(logs))
    return CostEstimate(estimate.value, estimate.low, estimate.high, len(logs))


@cache
def t_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t with ``freedom`` degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
