"""Steps that nobody can miss are reported, whatever a series did before: it switched, drifted or never varied."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lockstep.detect import Trend, analyse, analyse_many, continue_many
from lockstep.detect.noise import resolution_of


def found(values, errors=None):
    return [change.index for change in analyse(Trend(np.asarray(values, dtype=float), errors)).changes]


def noisy(generator, length, spread=0.003):
    return np.exp(generator.normal(0, spread, length))


@pytest.mark.parametrize("equal", [3, 5, 7, 8, 9, 30])
@pytest.mark.parametrize("times", [2.0, 0.125])
def test_a_constant_that_changes_is_reported_at_the_third_point(equal, times):
    (change,) = analyse(Trend(np.r_[np.full(equal, 5.0), np.full(90 - equal, 5.0 * times)])).changes
    assert (change.index, change.reported_at) == (equal, equal + 2)
    assert np.exp(change.size) == pytest.approx(times)


#: Speedup of linear.split_k_pdl at one row over ten commits on an H100, with standard errors (results/README.md).
SPLIT_K = [1.32, 1.317, 1.318, 1.318, 1.4716, 1.4805, 1.4829, 1.3495, 1.3511, 1.352]
SPLIT_K_ERRORS = [0.001] * 4 + [0.0093] + [0.001] * 5


@pytest.mark.parametrize("errors", [SPLIT_K_ERRORS, None], ids=["with errors", "without"])
def test_two_steps_among_ten_points_are_reported_at_the_third_point(errors):
    changes = analyse(Trend(np.array(SPLIT_K), None if errors is None else np.array(errors))).changes
    assert [(change.index, change.reported_at) for change in changes] == [(4, 6), (7, 9)]
    assert [change.size for change in changes] == [pytest.approx(0.11, abs=0.005), pytest.approx(-0.09, abs=0.005)]


def test_equal_roundings_of_noise_are_no_plain_steps():
    generator = np.random.default_rng(8)
    trends = [Trend(np.round(1 + generator.normal(0, 0.01, 30), 2)) for _ in range(500)]
    assert sum(len(one.changes) for one in analyse_many(trends)) <= 2


def test_every_plateau_is_a_level_although_other_levels_come_back():
    generator = np.random.default_rng(1)
    levels = [100, 160, 120, 190, 120, 210, 90]
    values = np.repeat(levels, 20) * noisy(generator, 140)
    changes = analyse(Trend(values)).changes
    assert [change.index for change in changes] == [20, 40, 60, 80, 100, 120]
    sizes = [np.exp(change.size) for change in changes]
    assert sizes == pytest.approx([after / before for before, after in itertools.pairwise(levels)], rel=0.01)


@pytest.mark.parametrize("reverts", [False, True])
def test_twelve_steps_twelve_commits_apart_have_the_right_sizes(reverts):
    generator = np.random.default_rng(2)
    right = total = 0
    for _ in range(20):
        sizes = np.log1p(generator.uniform(0.2, 2, 12)) * generator.choice([-1, 1], 12)
        if reverts:
            sizes[1::2] = -sizes[::2]
        y = np.repeat(np.cumsum([0.0, *sizes]), 12) + generator.normal(0, 0.005, 156)
        at = {change.index: change for change in analyse(Trend(np.exp(y))).changes}
        total += 12
        right += sum(
            12 * (place + 1) in at and abs(at[12 * (place + 1)].size - size) < 0.02 for place, size in enumerate(sizes)
        )
    assert right / total >= 0.95


def test_a_later_switch_never_takes_back_an_earlier_step():
    generator = np.random.default_rng(3)
    values = np.r_[np.full(15, 300.0), np.full(16, 380.0), np.full(16, 440.0), np.tile([444.0, 440.0], 20)]
    values *= noisy(generator, values.size, 0.001)
    for length in range(25, values.size):
        assert 15 in found(values[:length])


@pytest.mark.parametrize("slope", [0.001, 0.002, 0.003])
def test_a_doubling_within_a_drift(slope):
    generator = np.random.default_rng(4)
    y = slope * np.arange(100) + generator.normal(0, 0.003, 100)
    y[40:80] += np.log(2)
    analysis = analyse(Trend(np.exp(y)))
    assert {40, 80} <= {change.index for change in analysis.changes}
    (up,) = [change for change in analysis.changes if change.index == 40]
    assert np.exp(up.size) == pytest.approx(2, rel=0.03)


def test_a_noisy_dip_does_not_hide_the_step_that_ends_it():
    generator = np.random.default_rng(5)
    trends = []
    for _ in range(100):
        dip = 2 * np.exp(generator.normal(0, 0.1, 9))
        trends.append(Trend(np.r_[9 + generator.normal(0, 0.09, 20), dip, 13 + generator.normal(0, 0.26, 20)]))
    analyses = analyse_many(trends)
    for at in (20, 29):
        assert sum(any(abs(change.index - at) <= 1 for change in one.changes) for one in analyses) >= 98


def test_pure_noise_is_seldom_plainly_there():
    generator = np.random.default_rng(6)
    trends = [Trend(noisy(generator, 100, 0.01)) for _ in range(500)]
    assert sum(len(one.changes) for one in analyse_many(trends)) <= 25


def test_the_rounding_unit_comes_from_the_digits():
    units = resolution_of(np.array([12.0, 1200.0, 3.25, 0.0375, 1 / 3, 0.0]))
    assert units[:4] == pytest.approx([1, 1, 0.01, 0.0001])
    assert units[4] < 1e-8
    assert units[5] == np.inf


class TestUnconfirmed:
    """A step of the newest two points is named before a third point confirms it."""

    OLD = (1.0, 1.001, 0.999, 1.0, 1.002, 1.0, 0.998, 1.0, 1.001, 1.0)

    def step(self, *newest, old=OLD):
        analysis = analyse(Trend(np.array([*old, *newest])))
        return analysis.changes, analysis.unconfirmed

    def test_two_points_name_it_and_a_third_reports_it(self):
        assert self.step(1.1) == ((), None), "one point may be an outlier"
        changes, step = self.step(1.1, 1.101)
        assert (changes, step.index, step.reported_at) == ((), 10, 11)
        assert np.exp([step.low, step.size, step.high]) == pytest.approx([1.1 / 1.002, 1.1005, 1.101 / 0.998])
        assert step.confidence < 0.99, "no alert before it is confirmed"
        changes, step = self.step(1.1, 1.101, 1.1)
        assert ([change.index for change in changes], step) == ([10], None)

    def test_it_is_gone_when_the_third_point_refutes_it(self):
        assert self.step(1.1, 1.101, 1.0) == ((), None)

    def test_points_that_scatter_as_much_name_nothing(self):
        assert self.step(1.1, 1.16) == ((), None)
        assert self.step(1.1, 1.101, old=[*self.OLD[:-1], 1.04]) == ((), None)

    def test_a_history_that_is_continued_says_the_same(self):
        values = np.array([*self.OLD, 1.1, 1.101])
        [(_, state)] = continue_many([Trend(values[:11])], [None])
        [(continued, _)] = continue_many([Trend(values)], [state])
        assert continued.unconfirmed is not None
        assert continued.unconfirmed == analyse(Trend(values)).unconfirmed

    def test_differences_too(self):
        assert self.step(3.0, 3.0, old=[0.0] * 10)[1].size == 3.0
