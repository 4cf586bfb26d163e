"""Intervals keep their promise when measuring stops early, and the stated MDE is what shows."""

import math
from statistics import NormalDist, stdev

import numpy as np
import pytest

from lockstep.record.model import Estimate
from lockstep.timing.epochs import Plan
from lockstep.timing.estimates import HOPELESS
from lockstep.timing.intervals import (
    NOMINAL,
    detectable,
    exponential,
    half_width,
    half_width_after,
    log_interval,
    standard_error,
)

RUNS = 200_000
#: Four standard errors of a rate near 95 % from RUNS runs.
MONTE_CARLO = 4 * math.sqrt(0.95 * 0.05 / RUNS)


def half_widths(epochs: np.ndarray) -> np.ndarray:
    """``half_width`` of every row, which is proportional to the row's standard deviation."""
    spreads = epochs.std(axis=1, ddof=1)
    widths: np.ndarray = half_width(epochs[0].tolist()) / spreads[0] * spreads
    assert [half_width(row) for row in epochs[1:20].tolist()] == pytest.approx(widths[1:20].tolist())
    return widths


def stopped(spread: float, truth: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends of many intervals that stop as ``pairs.compare`` does by default, but for the time."""
    plan = Plan()
    epochs = np.random.default_rng(seed).normal(truth, spread, (RUNS, plan.max_epochs))
    centre, half = np.empty(RUNS), np.full(RUNS, np.inf)
    going = np.ones(RUNS, dtype=bool)
    for count in range(plan.min_epochs, plan.max_epochs + 1):
        now = half_widths(epochs[:, :count])
        centre[going], half[going] = epochs[going, :count].mean(axis=1), now[going]
        # Of the half-width now, that which the most epochs would have: Student's t and the root of the number.
        after = half_width_after(plan.max_epochs, epochs[0, :count].tolist()) / half_width(epochs[0, :count].tolist())
        going &= (now > plan.width) & (after * now <= HOPELESS * plan.width)
    return centre - half, centre + half


# At 0.1 … 0.5 % some measurements stop early and some do not: there stopping favours epochs that agree by chance.
@pytest.mark.parametrize("spread", [0.0003, 0.001, 0.002, 0.003, 0.004, 0.005, 0.007, 0.02])
def test_the_stopped_interval_covers_the_truth(spread):
    low, high = stopped(spread, truth=0.01, seed=1)
    covered = np.mean((low <= 0.01) & (high >= 0.01))
    assert covered >= 0.95 - MONTE_CARLO
    # Nor is it wide for nothing.
    assert covered <= 0.98


def test_an_unchanged_kernel_is_rarely_called_changed():
    low, high = stopped(0.003, truth=0.0, seed=2)
    assert np.mean((low > 0) | (high < 0)) <= 0.05 + MONTE_CARLO


@pytest.mark.parametrize("count", [3, 4, 5, 20])
def test_a_change_of_the_stated_size_shows_in_four_runs_of_five(count):
    spread = 0.002
    # An alternating sample of this spread: the change that ``count`` such epochs would show.
    steps = [(-1) ** i for i in range(count)]
    effect = math.log1p(detectable([spread * step / np.std(steps, ddof=1) for step in steps]))
    epochs = np.random.default_rng(3).normal(effect, spread, (200_000, count))
    # A t test at 5 %: 2.5 % critical values of Student's t with count − 1 degrees of freedom, from a table.
    critical = {3: 4.303, 4: 3.182, 5: 2.776, 20: 2.093}[count]
    t = epochs.mean(axis=1) / (epochs.std(axis=1, ddof=1) / math.sqrt(count))
    assert 0.76 <= np.mean(np.abs(t) > critical) <= 0.82


def test_one_epoch_tells_nothing_of_its_own_spread():
    assert half_width([0.1]) == math.inf
    assert detectable([0.1]) == math.inf
    assert exponential(log_interval([0.0])) == Estimate(1.0, 0.0, math.inf)
    with pytest.raises(ValueError, match="at least one epoch"):
        log_interval([])


def test_two_epochs_have_an_interval():
    # Student's t with one degree of freedom is Cauchy's distribution, whose quantile is tan(π (p - 1/2)).
    assert half_width([0.0, 0.002]) == pytest.approx(math.tan(math.pi * 0.485) * 0.001)


def test_a_ratio_lies_in_its_interval():
    one = exponential(log_interval([math.log(ratio) for ratio in (1.1, 1.2, 1.3)]))
    assert one.low < one.value < one.high
    assert one.value == pytest.approx((1.1 * 1.2 * 1.3) ** (1 / 3))


def test_a_standard_error_is_read_back_from_an_interval():
    epochs = [0.01, 0.013, 0.011, 0.016]
    shown = exponential(log_interval(epochs))
    low = np.array([shown.low, 1.0, 1.0, np.nan, 1.0, 0.0, 2.0])
    high = np.array([shown.high, 1.0, 2.0, 2.0, np.inf, 2.0, 1.0])
    found = standard_error(low, high, np.array([4, 2, 1, 4, 4, 4, 4], np.int32))
    assert found[:2] == pytest.approx([stdev(epochs) / 2, 0.0])
    assert np.isnan(found[2:]).all()


@pytest.mark.timeout(10)
def test_any_number_of_epochs_that_a_file_states_is_read_at_once():
    low, high = np.array([0.9]), np.array([1.1])
    for epochs in (10**6, 2**31 - 1):
        [found] = standard_error(low, high, np.array([epochs], np.int64))
        assert found == pytest.approx(math.log(1.1 / 0.9) / 2 / NormalDist().inv_cdf(0.5 + NOMINAL / 2), rel=1e-5)
