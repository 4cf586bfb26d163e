"""What one round of a case says, and what two say together."""

import math

import pytest

from lockstep.gate.case_verdict import UNREACHED, SeriesKey
from lockstep.gate.measuring.buffers import BASE, HEAD, Contender, SideFailed
from lockstep.gate.measuring.decision import CaseRound, verdict_of
from lockstep.gate.measuring.pairing import Epoch
from lockstep.gate.sequential import LOOKS, Test, found_twice, interval, relative
from lockstep.timing.clock_correction import Pair
from lockstep.timing.device import Timing

KEY = SeriesKey("linear", "split_k", "M=8", "cold")
TEST = Test(min_effect=0.01, alpha=0.05, cases=1)
BASE_S = 1e-4
#: A twentieth slower, the same and a twentieth faster, with a noise that leaves no doubt.
SLOWER, SAME, FASTER = ([1 + change + noise for noise in (-1e-4, 1e-4) * 2] for change in (0.05, 0.0, -0.05))
FIRST = "+5.00% in a first round"


def trial(factors, *, shared=True, **rest):
    """A round whose epochs found head to take so many times as long as base, decided if they decide."""
    epochs = [
        Epoch(Pair((Timing(BASE_S * one),), (Timing(BASE_S),)), {BASE: BASE_S, HEAD: BASE_S * one}, shared)
        for one in factors
    ]
    made = CaseRound(Contender("split_k", {}, {}), TEST, epochs, **rest)
    made.decision = TEST.decide(made.ratios)
    return made


def told(first, second=None):
    found = verdict_of(KEY, first, second)
    return found.outcome, found.reason


def test_one_round_is_told_with_its_interval_and_times():
    first = trial(SAME, moved=2, wall_s=1.5)
    found = verdict_of(KEY, first, None)
    assert (found.key, found.outcome, found.reason, found.confirmed) == (KEY, "same", "", False)
    assert found.change == relative(interval(first.ratios, TEST.alpha))
    assert (found.base_s, found.head_s) == pytest.approx((BASE_S, BASE_S))
    assert (found.min_effect, found.epochs, found.moved, found.shared, found.wall_s) == (0.01, 4, 2, True, 1.5)


def test_the_same_is_said_with_the_bound_that_its_interval_kept():
    same, slower = trial(SAME), trial(SLOWER)
    same.test = slower.test = Test(min_effect=0.5, alpha=0.05, cases=1, same_within=0.1)
    assert verdict_of(KEY, same, None).min_effect == 0.1
    assert verdict_of(KEY, slower, same).min_effect == 0.1


def test_a_difference_of_one_round_is_said_as_one():
    assert told(trial(SLOWER)) == ("slower", "one round")
    assert told(trial(FASTER)) == ("faster", "one round")


@pytest.mark.parametrize(("factors", "outcome"), [(SLOWER, "slower"), (FASTER, "faster")])
def test_a_difference_found_twice_is_told_by_both(factors, outcome):
    first = trial(factors, moved=1, wall_s=1.0)
    second = trial([one * 1.001 for one in factors] * 2, moved=2, wall_s=0.5)
    second.decision = outcome
    found = verdict_of(KEY, first, second)
    assert (found.outcome, found.confirmed, found.reason) == (outcome, True, "")
    assert found.change == relative(found_twice(first.ratios, second.ratios, TEST))
    assert (found.base_s, found.head_s) == pytest.approx((BASE_S, BASE_S * 1.001 * sum(factors) / 4))
    assert (found.epochs, found.moved, found.shared, found.wall_s) == (12, 3, True, 1.5)


@pytest.mark.parametrize("shared", [(True, False), (False, True)])
def test_buffers_are_shared_if_all_epochs_shared_them(shared):
    first, second = (trial(SLOWER, shared=one) for one in shared)
    assert not verdict_of(KEY, first, second).shared


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
    found = verdict_of(KEY, trial(SLOWER), trial(second))
    assert (found.outcome, found.reason, found.confirmed) == (outcome, reason, False)
    # The first was picked for its difference: the second's numbers are told where there are some.
    assert found.change == relative(interval(trial(second or SLOWER).ratios, TEST.alpha))


def test_a_second_round_that_controls_spoiled_is_not_said_to_be_out_of_time():
    _, reason = told(trial(SLOWER), trial([], moved=4))
    assert reason == f"{FIRST}, not confirmed by a second: controls moved in every epoch"


def test_why_a_round_decides_nothing():
    assert told(trial([1.0, 1.02] * 10)) == ("unsure", "out of time after 20 epochs")
    assert told(trial([1.0, 1.02] * 14)) == ("unsure", "too close to call after 28 epochs")
    # Nine epochs of e to the ± 1/2, and 1: a deviation of a half.
    wild = [math.exp(one) for one in (0.5, -0.5) * 4 + (0,)]
    assert told(trial(wild)) == ("unsure", "too noisy: 50.0% between 9 epochs")


def test_the_times_and_the_change_of_a_row_agree():
    """One slow epoch must not pull the times to one side of 1 and the change to the other."""
    bases, heads = [1e-4, 1e-4, 9e-4], [1e-5, 1e-4, 1e-3]
    epochs = [
        Epoch(Pair((Timing(head),), (Timing(base),)), {BASE: base, HEAD: head}, True)
        for base, head in zip(bases, heads, strict=True)
    ]
    found = verdict_of(KEY, CaseRound(Contender("split_k", {}, {}), TEST, epochs), None)
    assert found.change is not None
    assert found.head_s / found.base_s - 1 == pytest.approx(found.change.value)
    assert found.change.value < 0


def test_a_case_without_an_epoch_says_why():
    assert told(trial([])) == ("unsure", UNREACHED)
    assert told(trial([], moved=4)) == ("unsure", "controls moved in every epoch")
    assert verdict_of(KEY, trial([]), None).change is None


@pytest.mark.parametrize(
    ("side", "outcome", "reason"),
    [(HEAD, "failed", "cannot be timed: no memory"), (BASE, "unsure", "base cannot be timed: no memory")],
)
def test_a_side_that_fails_in_either_round_is_told_with_what_the_rounds_took(side, outcome, reason):
    failure = SideFailed(side, "no memory")
    assert told(trial([], failure=failure)) == (outcome, reason)
    found = verdict_of(KEY, trial(SLOWER, wall_s=1.0), trial([], failure=failure))
    assert (found.outcome, found.reason, found.change) == (outcome, reason, None)
    assert (found.epochs, found.wall_s) == (4, 1.0)


def test_a_round_is_over_when_another_epoch_would_change_nothing():
    assert not trial([]).over
    close = [1.0, 1.02] * 14
    assert [count for count in range(29) if trial(close[:count]).over] == [28]
    assert [count for count in range(14) if trial([0.5, 2.0] * count).over] == []
    assert trial(([0.5, 2.0] * 5)[: LOOKS[2]]).over
    assert trial(SAME).over
    assert trial([], failure=SideFailed(HEAD, "no memory")).over
