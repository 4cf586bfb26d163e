"""Steps of other shapes than a clean one between two long levels of the same noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lockstep.detect import Trend, analyse, analyse_many


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
        assert change.index == 30
        assert 29 <= change.earliest <= 30 <= change.latest <= 32
        assert math.exp(change.size) == pytest.approx(then / 100, rel=0.005)

    def test_on_the_far_side_of_the_old_level_is_in_the_range(self):
        generator = np.random.default_rng(1)
        values = np.r_[100 * noisy(generator, 30), 80, 120 * noisy(generator, 30)]
        (change,) = analyse(Trend(values)).changes
        assert change.earliest == 30
        assert change.index <= change.latest <= 32

    def test_is_one_of_several_on_the_way(self):
        """The speedup of kda.best M=32 over eight commits of an H200: two commits on the way to 5.06."""
        values = [4.312, 4.3106, 4.3153, 4.5505, 4.9951, 5.0577, 5.0588, 5.0559]
        (change,) = analyse(Trend(values, [3e-4, 5e-4, 4e-4, 5e-4, 5e-4, 9e-4, 9e-4, 9e-4])).changes
        assert change.index == 3
        assert change.earliest in (2, 3)
        assert change.latest in (4, 5)

    def test_and_the_second_one_on_the_way_are_in_the_range(self):
        """newton-physics/newton's time_notify_joint_dof_properties on a Jetson, in µs."""
        values = [402.3, 408.3, 423.3, 401.9, 415.3, 412.9, 736.1, 751.5, 1263, 1250, 1231, 1267, 1303, 1232]
        (change,) = analyse(Trend(values)).changes
        assert (change.earliest, change.index, change.latest) == (6, 6, 8)

    def test_nearer_to_the_new_level_is_the_end_of_the_range(self):
        """newton-physics/newton's time_notify_joint_dof_properties on one machine with Windows, in µs."""
        values = [
            *(160.7, 158.6, 160.6, 241.8, 241.3, 241.8, 242.8, 242.8, 243.8, 243.8, 241.8, 324.9, 325.5, 330.7, 331.0),
            *(621.2, 618.0, 635.2, 640.4, 659.5, 637.6),
        ]
        found = [(one.earliest, one.index, one.latest) for one in analyse(Trend(values)).changes]
        assert found == [(3, 3, 3), (11, 11, 11), (15, 15, 15)]

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
        assert np.quantile(widths, 0.9) <= 2


class TestEarly:
    """A step from the third point on rings where later points bear it out."""

    @pytest.mark.parametrize("at", [3, 4, 5, 7, 9])
    def test_a_step_among_the_first_ten_points(self, at):
        generator = np.random.default_rng(at)
        values = np.r_[55.3 * noisy(generator, at), 47.1 * noisy(generator, 30)]
        (change,) = analyse(Trend(values)).changes
        assert change.index == at
        assert math.exp(change.size) == pytest.approx(47.1 / 55.3, rel=0.01)
        assert change.reported_at <= 14

    def test_spoils_nothing_that_comes_later(self):
        generator = np.random.default_rng(1)
        values = np.r_[55.3 * noisy(generator, 9), 47.1 * noisy(generator, 9), 43.5 * noisy(generator, 8)]
        analysis = analyse(Trend(values))
        assert [change.index for change in analysis.changes] == [9, 18]
        assert [level.value for level in analysis.levels] == pytest.approx([55.3, 47.1, 43.5], rel=0.005)

    def test_rings_falsely_as_seldom_as_later(self):
        generator = np.random.default_rng(3)
        trends = [Trend(noisy(generator, 25, 0.01)) for _ in range(2000)]
        rang = [change for one in analyse_many(trends) for change in one.changes]
        # One in two thousand commits, as of longer series.
        assert len(rang) <= 25


class TestShortLevels:
    @pytest.mark.parametrize("spread", [0.003, 0.02])
    def test_a_staircase_of_three_points_each(self, spread):
        generator = np.random.default_rng(4)
        stairs = np.repeat([946, 1100, 1300, 2791, 1920, 928], [30, 3, 3, 3, 3, 20])
        analysis = analyse(Trend(stairs * noisy(generator, len(stairs), spread)))
        assert [change.index for change in analysis.changes] == [30, 33, 36, 39, 42]
        assert [level.value for level in analysis.levels] == pytest.approx([946, 1100, 1300, 2791, 1920, 928], rel=0.03)

    @pytest.mark.parametrize("points", [3, 4, 5])
    def test_the_second_of_two_steps_is_named_as_well_as_the_first(self, points):
        generator = np.random.default_rng(10)
        values = np.repeat([100.0, 115.0, 140.0], [30, points, 10])
        analyses = analyse_many([Trend(values * noisy(generator, values.size)) for _ in range(100)])
        second = [one.changes[-1] for one in analyses]
        assert sum(change.index == 30 + points for change in second) >= 95

    def test_two_odd_points_are_no_level(self):
        generator = np.random.default_rng(6)
        values = np.r_[100 * noisy(generator, 30), 120, 120.1, 100 * noisy(generator, 20)]
        analysis = analyse(Trend(values))
        assert analysis.changes == ()


class TestNoisierLevels:
    @pytest.mark.parametrize("points", [6, 40])
    @pytest.mark.parametrize("times", [1, 3, 10])
    def test_a_step_to_a_noisier_level(self, times, points):
        generator = np.random.default_rng(8)
        trends = []
        for _ in range(100):
            y = np.r_[generator.normal(0, 0.002, 40), 0.5 + generator.normal(0, 0.002 * times, points)]
            trends.append(Trend(np.exp(y)))
        first = [one.changes[0] for one in analyse_many(trends) if one.changes]
        near = [change for change in first if abs(change.index - 40) <= 2]
        assert len(near) >= 95
        assert np.mean([abs(change.size - 0.5) < 0.05 for change in near]) >= 0.95

    def test_a_quieter_level_has_its_own_noise(self):
        generator = np.random.default_rng(9)
        y = np.r_[generator.normal(0, 0.02, 40), 0.5 + generator.normal(0, 0.002, 40)]
        y[60:] += 0.02
        analysis = analyse(Trend(np.exp(y)))
        assert [change.index for change in analysis.changes] == [40, 60]
        assert analysis.noise.scale == pytest.approx(0.002, rel=0.5)
