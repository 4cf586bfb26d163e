"""Series with zero or negative numbers, whose changes are differences in the unit and not ratios."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.detect import Trend, analyse, analyse_many, continue_many


def step(before: float, after: float, spread: float = 0.0) -> np.ndarray:
    noise = np.random.default_rng(3).normal(0, spread, 60) if spread else np.zeros(60)
    return np.where(np.arange(60) < 40, before, after) + noise


STEPS = {
    "0 to 5": step(0, 5),
    "5 to 0": step(5, 0),
    "-100 to -120": step(-100, -120, 0.5),
    "around 0 to around 10": step(0, 10, 0.5),
    "-5 to -8": step(-5, -8, 0.02),
}


@pytest.mark.parametrize("values", STEPS.values(), ids=STEPS)
def test_a_step_is_a_difference_of_the_levels(values):
    trend = Trend(values)
    assert not trend.ratio
    analysis = analyse(trend)
    (change,) = analysis.changes
    difference = np.median(values[40:]) - np.median(values[:40])
    assert (change.index, change.measure) == (40, "difference")
    assert change.low <= difference <= change.high
    assert change.size == change.left == pytest.approx(difference, abs=0.3)
    assert [level.value for level in analysis.levels] == pytest.approx(
        [np.median(values[:40]), np.median(values[40:])], abs=0.3
    )
    assert analysis.noise.measure == "difference"


def test_a_positive_series_has_ratios():
    trend = Trend(step(100, 130, 0.5))
    (change,) = analyse(trend).changes
    assert trend.ratio
    assert (change.measure, change.size) == ("ratio", pytest.approx(np.log(1.3), abs=0.01))


def test_a_stored_monitor_continues_both_kinds():
    values = [*STEPS.values(), step(100, 130, 0.5)]
    trends = [Trend(column) for column in values]
    begun = [Trend(column[:45]) for column in values]
    states = [state for _, state in continue_many(begun, [None] * len(begun))]
    assert [one for one, _ in continue_many(trends, states)] == analyse_many(trends)
