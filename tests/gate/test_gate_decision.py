"""What one pass of a case says, and what two say together."""

import math

import pytest

from lockstep.gate.case_verdict import Measured, Trial, log_ratios
from lockstep.gate.model import UNREACHED, SeriesKey, Verdict
from lockstep.gate.sequential_decision import LOOKS, Test, found_twice, interval, relative

KEY = SeriesKey("linear", "split_k", "M=8", "cold")
TEST = Test(min_effect=0.01, alpha=0.05, cases=1)
BASE_S = 1e-4
#: A twentieth slower, the same and a twentieth faster, with a noise that leaves no doubt.
SLOWER, SAME, FASTER = ([1 + change + noise for noise in (-1e-4, 1e-4) * 2] for change in (0.05, 0.0, -0.05))
FIRST = "+5.00% in a first pass"


def trial(*rounds, test=TEST, shared=True, **rest):
    """A trial whose epochs found head to take so many times as long as base, whatever earlier epochs decided."""
    made = Trial(test, **rest)
    made.passes = [[Measured(BASE_S, BASE_S * one, shared) for one in factors] for factors in rounds]
    for measured in made.passes:
        if (decision := test.decide(log_ratios(measured))) is not None:
            made.decisions.append(decision)
    return made


def told(made):
    found = made.verdict(KEY)
    return found.outcome, found.reason


def ratios(factors):
    return [math.log(one) for one in factors]


def test_one_round_is_told_with_its_interval_and_times():
    found = trial(SAME, moved=2, wall_s=1.5).verdict(KEY)
    assert (found.key, found.outcome, found.reason, found.confirmed) == (KEY, "same", "", False)
    assert found.change == relative(interval(ratios(SAME), TEST.alpha))
    assert (found.base_s, found.head_s) == pytest.approx((BASE_S, BASE_S))
    assert (found.min_effect, found.epochs, found.moved, found.shared, found.wall_s) == (0.01, 4, 2, True, 1.5)


def test_the_same_is_said_with_the_bound_that_its_interval_kept():
    test = Test(min_effect=0.04, alpha=0.05, cases=1, same_within=0.03)
    assert trial(SAME, test=test).verdict(KEY).min_effect == 0.03
    assert trial(SLOWER, SAME, test=test).verdict(KEY).min_effect == 0.03


def test_a_difference_of_one_round_is_said_as_one():
    assert told(trial(SLOWER, twins=True)) == ("slower", "one pass")
    assert told(trial(FASTER, twins=True)) == ("faster", "one pass")


@pytest.mark.parametrize(("factors", "outcome"), [(SLOWER, "slower"), (FASTER, "faster")])
def test_a_difference_found_twice_is_told_by_both(factors, outcome):
    again = [one * 1.001 for one in factors] * 2
    made = trial(factors, again, moved=3, wall_s=1.5)
    made.decisions = [outcome, outcome]
    found = made.verdict(KEY)
    assert (found.outcome, found.confirmed, found.reason) == (outcome, True, "")
    assert found.change == relative(found_twice(ratios(factors), ratios(again), TEST))
    assert (found.base_s, found.head_s) == pytest.approx((BASE_S, BASE_S * 1.001 * sum(factors) / 4))
    assert (found.epochs, found.moved, found.shared, found.wall_s) == (12, 3, True, 1.5)


@pytest.mark.parametrize("shared", [(True, False), (False, True)])
def test_buffers_are_shared_if_all_epochs_shared_them(shared):
    made = trial(SLOWER, SLOWER)
    made.passes = [[Measured(BASE_S, BASE_S, one)] * 4 for one in shared]
    assert not made.verdict(KEY).shared


@pytest.mark.parametrize(
    ("second", "outcome", "reason"),
    [
        (SAME, "same", f"{FIRST}, not in the second"),
        (FASTER, "unsure", f"{FIRST}, -5.00% in the second"),
        (SLOWER[:3], "unsure", f"{FIRST}, not confirmed by a second: out of time after 3 epochs"),
        ([], "unsure", f"{FIRST}, not confirmed by a second: {UNREACHED}"),
    ],
)
def test_a_difference_that_is_not_found_again_does_not_count(second, outcome, reason):
    found = trial(SLOWER, second).verdict(KEY)
    assert (found.outcome, found.reason, found.confirmed) == (outcome, reason, False)
    # The first was picked for its difference: the second's numbers are told once they were tested.
    assert found.change == relative(interval(ratios(second if len(second) >= LOOKS[0] else SLOWER), TEST.alpha))
    assert found.looks_slower is (len(second) < LOOKS[0])


def test_a_second_round_that_controls_spoiled_is_not_said_to_be_out_of_time():
    _, reason = told(trial(SLOWER, [], moved=4))
    assert reason == f"{FIRST}, not confirmed by a second: controls moved in every epoch"


def test_why_a_round_decides_nothing():
    assert told(trial([1.0, 1.02] * 10)) == ("unsure", "out of time after 20 epochs")
    assert told(trial([1.0, 1.02] * 14)) == ("unsure", "too close to call after 28 epochs")
    # Nine epochs of e to the ± 1/2, and 1: a deviation of a half.
    wild = [math.exp(one) for one in (0.5, -0.5) * 4 + (0,)]
    assert told(trial(wild)) == ("unsure", "too noisy at present, for any budget: 50.0% between 9 epochs")


def test_the_times_and_the_change_of_a_row_agree():
    """One slow epoch must not pull the times to one side of 1 and the change to the other."""
    made = Trial(TEST)
    for base, head in zip([1e-4, 1e-4, 9e-4], [1e-5, 1e-4, 1e-3], strict=True):
        made.add(Measured(base, head))
    found = made.verdict(KEY)
    assert found.change is not None
    assert found.head_s / found.base_s - 1 == pytest.approx(found.change.value)
    assert found.change.value < 0


def test_a_case_without_an_epoch_says_why():
    assert told(trial([])) == ("unsure", UNREACHED)
    assert told(trial([], moved=4)) == ("unsure", "controls moved in every epoch")
    assert trial([]).verdict(KEY).change is None


def test_a_side_that_fails_is_told_with_what_the_rounds_took():
    refusal = Verdict(KEY, "failed", "cannot be timed: no memory")
    assert told(trial([], refusal=refusal)) == ("failed", refusal.reason)
    found = trial(SLOWER, [], refusal=refusal, wall_s=1.0).verdict(KEY)
    assert (found.outcome, found.reason, found.change, found.excluded) == ("failed", refusal.reason, None, None)
    assert (found.epochs, found.wall_s) == (4, 1.0)


def test_what_one_epoch_excludes_is_told_by_the_scatter_of_other_cases():
    one = trial([1.002])
    assert one.verdict(KEY).excluded is None
    assert 0.002 < one.verdict(KEY, 5e-4).excluded < 0.005
    assert one.verdict(KEY, 5e-3).excluded > 0.01
    # Epochs of its own count from the first test on.
    assert trial(SAME).verdict(KEY, 0.1).excluded == pytest.approx(trial(SAME).verdict(KEY).excluded)
    assert trial(SAME).verdict(KEY).excluded < 0.001


def test_a_case_looks_slower_until_its_rounds_say_otherwise():
    assert not trial([]).looks_slower
    assert not trial([1.005]).looks_slower
    assert trial([1.02]).looks_slower
    assert trial(SLOWER, []).looks_slower
    assert not trial(FASTER, []).looks_slower


def test_a_round_is_over_when_another_epoch_would_change_nothing():
    assert not trial([]).over
    close = [1.0, 1.02] * 14
    assert [count for count in range(29) if trial(close[:count]).over] == [28]
    assert [count for count in range(14) if trial([0.5, 2.0] * count).over] == []
    assert trial(([0.5, 2.0] * 5)[: LOOKS[2]]).over
    assert trial(SAME).over
    assert trial([], refusal=Verdict(KEY, "failed", "no memory")).over
    assert not trial(SLOWER, []).over
    assert trial(SLOWER, twins=True).over
