"""What the detector reports, when, and that it stands by it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.detect import Trend, analyse, analyse_many, continue_many
from lockstep.detect.constants import PROMPT
from lockstep.detect.series_state import SeriesState
from lockstep.detect.summary import smallest_step


def noisy(seed, length=80, spread=0.01):
    return np.random.default_rng(seed).normal(0, spread, length)


def stepped(seed, at, size, length=80, spread=0.01):
    y = noisy(seed, length, spread)
    y[at:] += size
    return np.exp(y)


def first_told(trends):
    """Each change of each series as it was first reported: its index by the point of the report."""
    states = [state for _, state in continue_many(trends, [None] * len(trends))]
    return [{shift.reported_at: shift.reported_as for shift in state.shifts} for state in states]


class TestTrend:
    def test_an_error_of_zero_is_unknown(self):
        assert np.isnan(Trend([1.0, 1.0], [0.0, 0.1]).errors[0])


class TestGolden:
    """Real and drawn series whose answer is known."""

    @pytest.mark.parametrize(
        ("points", "factor"),
        [
            (
                [
                    (0.37711, 0.37656, 0.37767),
                    (0.37742, 0.37675, 0.37809),
                    (0.37614, 0.37534, 0.37694),
                    (0.40848, 0.4072, 0.40976),
                    (0.40759, 0.40525, 0.40994),
                    (0.40799, 0.40668, 0.4093),
                ],
                1.083,
            ),
            (
                [
                    (0.53132, 0.53049, 0.53215),
                    (0.5318, 0.52991, 0.5337),
                    (0.53081, 0.5298, 0.53183),
                    (0.54996, 0.54793, 0.552),
                    (0.55065, 0.54906, 0.55225),
                    (0.54902, 0.54749, 0.55056),
                ],
                1.035,
            ),
        ],
        ids=["M=16", "M=256"],
    )
    def test_a_recorded_speedup_of_six_commits(self, points, factor):
        """w4a16 dequant, 8192², gained at 3529428d: (speedup, low, high) over six commits of an H200, protocol 1."""
        commits = ["6c5cdf63", "7be4c767", "26ac27bc", "3529428d", "267e5d01", "177708fb"]
        errors = [math.log(high / low) / 5 for _, low, high in points]
        analysis = analyse(Trend([value for value, _, _ in points], errors))
        (change,) = analysis.changes
        assert commits[change.index] == "3529428d"
        assert math.exp(change.size) == pytest.approx(factor, abs=0.005)
        assert 0 < change.low < change.size < change.high

    def test_odd_points_are_no_changes(self):
        y = noisy(1)
        y[[20, 33, 34, 60]] += 0.12
        analysis = analyse(Trend(np.exp(y)))
        assert analysis.changes == ()

    def test_up_and_down_again(self):
        #  ______________        ______
        #                |______|
        y = noisy(2)
        y[40:60] -= 0.05
        analysis = analyse(Trend(np.exp(y)))
        assert [(one.index, one.size > 0) for one in analysis.changes] == [(40, False), (60, True)]
        assert [(one.start, one.stop) for one in analysis.levels] == [(0, 40), (40, 60), (60, 80)]
        assert analysis.levels[1].value == pytest.approx(math.exp(-0.05), rel=0.01)

    def test_a_change_that_later_points_contradict_is_not_listed(self):
        #       ___
        #  ____|   |__________
        y = noisy(85)
        y[40:43] += 0.03
        trends = [Trend(np.exp(y[:length])) for length in range(43, 80)]
        listed = [any(abs(change.index - 40) <= 2 for change in one.changes) for one in analyse_many(trends)]
        assert listed[0]
        assert not all(listed)
        first, *later = first_told(trends)
        assert first
        assert all(first.items() <= told.items() for told in later)

    def test_switching_at_random_is_noise(self):
        upper = np.random.default_rng(4).random(150) < 0.4
        assert len(analyse(Trend(np.exp(noisy(5, 150) + 0.08 * upper))).changes) <= 1

    @pytest.mark.parametrize("length", [0, 1, 3])
    def test_a_short_series_says_so(self, length):
        analysis = analyse(Trend(np.full(length, 2.0)))
        assert math.isnan(analysis.noise.scale)
        assert analysis.changes == ()
        assert analysis.mde == math.inf
        assert len(analysis.levels) == min(length, 1)

    def test_a_series_that_never_varies_until_it_does(self):
        values = np.full(40, 128.0)
        values[30:] = 129.0
        assert [change.index for change in analyse(Trend(values)).changes] == [30]


class TestPrecision:
    @pytest.mark.parametrize("errors", [None, np.full(8, 0.001)], ids=["unknown errors", "known errors"])
    def test_a_clear_step_needs_no_long_watching(self, errors):
        (change,) = analyse(Trend(stepped(8, 4, 0.02, length=8, spread=0.001), errors)).changes
        assert change.index == 4
        assert change.reported_at <= 7

    def test_points_that_are_known_badly_count_for_little(self):
        values, errors = stepped(9, 30, 0.0, length=36), np.full(36, 0.01)
        values[30:34] *= 1.06
        assert analyse(Trend(values, errors)).changes != ()
        errors[30:34] = 0.1
        assert analyse(Trend(values, errors)).changes == ()

    def test_the_range_holds_the_step_as_often_as_stated_and_is_no_wider_than_twice_what_it_must_be(self):
        series = np.array([stepped(seed, 50, 0.02) for seed in range(200)])
        found = [one for analysis in analyse_many([Trend(one) for one in series]) for one in analysis.changes]
        found = [one for one in found if abs(one.index - 50) < 10]
        assert len(found) > 180
        # Two standard errors of 95 % from two hundred.
        assert np.mean([one.earliest <= 50 <= one.latest for one in found]) >= 0.95 - 0.03
        assert np.mean([one.low <= 0.02 <= one.high for one in found]) >= 0.95 - 0.03
        # Who knew both levels and the noise would have this posterior (Smith 1975, "A Bayesian approach to inference
        # about a change-point"), up to a constant, of a step before each point.
        surprise = np.cumsum((np.log(series) ** 2 - (np.log(series) - 0.02) ** 2) / 0.01**2, axis=1)
        share = np.exp(-(surprise - surprise.min(axis=1, keepdims=True)) / 2)
        grown = np.cumsum(share, axis=1) / share.sum(axis=1, keepdims=True)
        least = ((grown >= 0.975).argmax(axis=1) - (grown >= 0.025).argmax(axis=1)).mean()
        assert least <= np.mean([one.latest - one.earliest for one in found]) < 2 * least


class TestEffect:
    def test_the_mde_is_reported_four_times_in_five(self):
        size = smallest_step(0.01, 50, PROMPT + 1)
        trends = [Trend(stepped(seed, 50, size, 50 + PROMPT + 1)) for seed in range(300)]
        found = [any(change.index > 40 for change in one.changes) for one in analyse_many(trends)]
        assert 0.68 < np.mean(found) < 0.92

    def test_more_noise_hides_more(self):
        assert analyse(Trend(np.exp(noisy(10, 200)))).mde > 0.01
        assert analyse(Trend(np.exp(noisy(10, 200, 0.001)))).mde < 0.01


series = st.builds(
    lambda seed, at, size: stepped(seed, at, size, 60),
    st.integers(0, 10**6),
    st.integers(12, 58),
    st.sampled_from([0.0, 0.02, -0.03, 0.08]),
)


class TestProperties:
    @settings(max_examples=30)
    @given(series, st.sampled_from([1e-6, 0.37, 1e9]))
    def test_the_unit_does_not_matter(self, values, unit):
        ours, theirs = analyse_many([Trend(values), Trend(values * unit)])
        assert [one.index for one in ours.changes] == [one.index for one in theirs.changes]
        assert [one.size for one in ours.changes] == pytest.approx([one.size for one in theirs.changes], abs=1e-6)
        assert ours.mde == pytest.approx(theirs.mde)

    @settings(max_examples=30)
    @given(series)
    def test_a_mirrored_series_mirrors_its_changes(self, values):
        ours, theirs = analyse_many([Trend(values), Trend(1 / values)])
        assert [one.index for one in ours.changes] == [one.index for one in theirs.changes]
        assert [one.size for one in ours.changes] == pytest.approx([-one.size for one in theirs.changes], abs=1e-9)

    @settings(max_examples=30)
    @given(series)
    def test_a_listed_change_has_the_sign_of_its_interval(self, values):
        assert all(change.low * change.high > 0 for change in analyse(Trend(values)).changes)

    @settings(max_examples=30)
    @given(series, st.integers(10, 60))
    def test_more_commits_rewrite_no_report(self, values, length):
        told, told_later = first_told([Trend(values[:length]), Trend(values)])
        assert told == {at: index for at, index in told_later.items() if at < length}


def continued(trends, states=None):
    found = continue_many(trends, states or [None] * len(trends))
    return [one for one, _ in found], [SeriesState.from_bytes(state.to_bytes()) for _, state in found]


class TestContinued:
    def trends(self):
        lengths = [0, 5, 30, 60, 60]
        return [Trend(stepped(seed, 45, 0.06, 60)[:length]) for seed, length in enumerate(lengths)]

    def test_commit_after_commit_says_the_same(self):
        whole = [stepped(seed, 45, 0.06, 60) for seed in range(4)]
        errors = np.full(60, 0.01)
        states = None
        for stop in range(20, 61):
            found, states = continued([Trend(values[:stop], errors[:stop]) for values in whole], states)
        assert found == [analyse(Trend(values, errors)) for values in whole]

    def test_a_series_says_the_same_in_any_company(self):
        short, long = stepped(1, 20, 0.0, 50), stepped(2, 150, 0.05, 200)
        states = None
        for more in range(21):
            found, states = continued([Trend(short[: 30 + more]), Trend(long[: 180 + more])], states)
        assert found == [analyse(Trend(short)), analyse(Trend(long))]

    def test_many_lengths_at_once_say_the_same(self):
        trends = self.trends()
        assert repr(analyse_many(trends)) == repr([analyse(trend) for trend in trends])

    def test_continues_from_stored_states(self):
        before = [Trend(stepped(seed, 45, 0.06, 700)[:length]) for seed, length in enumerate([0, 5, 30, 60, 300, 700])]
        trends = [Trend([*trend.values, 1.06, 1.07]) for trend in before]
        found, _ = continued([*trends, trends[3]], [*continued(before)[1], None])
        whole = [analyse(trend) for trend in trends]
        assert repr(found) == repr([*whole, whole[3]])
        assert any(one.changes for one in whole)

    def test_what_is_no_state_is_refused(self):
        with pytest.raises(ValueError, match="Expecting value"):
            SeriesState.from_bytes(b"no state")


def test_two_processes_say_the_same():
    trends = [Trend(stepped(seed, 30, 0.05, 40)) for seed in range(600)]
    assert analyse_many(trends, processes=2) == analyse_many(trends)


def test_false_alarms_are_rare():
    """120,000 commits of pure noise: at most one alarm in two thousand."""
    trends = [Trend(np.exp(noisy(seed, 120))) for seed in range(1000)]
    assert sum(map(len, first_told(trends))) <= 60
