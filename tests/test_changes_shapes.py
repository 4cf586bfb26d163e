"""Steps of other shapes than a clean one between two long levels of the same noise."""

from __future__ import annotations

import numpy as np
import pytest

from dashboard.changes import Trend, analyse, analyse_many


def noisy(generator, length, spread=0.003):
    return np.exp(generator.normal(0, spread, length))


def log_uniform(generator, low, high):
    return np.exp(generator.uniform(np.log(low), np.log(high)))


class TestFirstPoint:
    """The first point after a step may lie anywhere: at neither level, or beyond both."""

    @pytest.mark.parametrize(("first", "then"), [(115, 120), (460, 590), (135, 120), (101, 120)])
    def test_of_a_step_lies_at_neither_level(self, first, then):
        generator = np.random.default_rng(1)
        values = np.r_[100 * noisy(generator, 30), first, then * noisy(generator, 30)]
        (change,) = analyse(Trend(values)).changes
        assert (change.index, change.last_before) == (30, 29)
        assert 29 <= change.earliest <= 30 <= change.latest <= 31
        assert change.factor == pytest.approx(then / 100, rel=0.005)

    def test_on_the_far_side_of_the_old_level_is_in_the_range(self):
        generator = np.random.default_rng(1)
        values = np.r_[100 * noisy(generator, 30), 80, 120 * noisy(generator, 30)]
        (change,) = analyse(Trend(values)).changes
        assert (change.index, change.earliest) == (31, 30)
        assert change.latest <= 32

    def test_is_one_of_several_on_the_way(self):
        """The speedup of kda.best M=32 over eight commits of an H200: two commits on the way to 5.06."""
        values = [4.312, 4.3106, 4.3153, 4.5505, 4.9951, 5.0577, 5.0588, 5.0559]
        (change,) = analyse(Trend(values, [3e-4, 5e-4, 4e-4, 5e-4, 5e-4, 9e-4, 9e-4, 9e-4], "higher")).changes
        assert (change.index, change.earliest, change.latest) == (3, 3, 5)

    def series(self, generator, errors, odd):
        length, spread = int(generator.integers(20, 201)), log_uniform(generator, 0.0005, 0.03)
        size = np.log1p(log_uniform(generator, 0.01, 5.0)) * generator.choice([-1, 1])
        at = int(generator.integers(5, length - 5))
        y = generator.normal(0, spread, length)
        y[at:] += size
        if odd:
            y[at] += size * (generator.uniform(-0.3, 1.6) - 1)
        known = spread * np.exp(generator.normal(0, 0.2, length)) if errors else None
        return Trend(np.exp(y), known), at

    @pytest.mark.parametrize("errors", [False, True])
    @pytest.mark.parametrize("odd", [False, True])
    def test_is_in_the_range(self, errors, odd):
        generator = np.random.default_rng(2)
        cases = [self.series(generator, errors, odd) for _ in range(500)]
        found = [
            (at, min(one.changes, key=lambda change: abs(change.index - at)))
            for (_, at), one in zip(cases, analyse_many([trend for trend, _ in cases]), strict=True)
            if one.changes
        ]
        assert len(found) > 400
        assert np.mean([change.earliest <= at <= change.latest for at, change in found]) >= 0.95
        widths = [change.latest - change.earliest + 1 for _, change in found]
        assert np.median(widths) <= (2 if odd else 1)
        assert np.quantile(widths, 0.9) <= 3
