"""Two arms at one clock: what is learned from the rounds of all epochs, how far it reaches, and what stays as it is."""

import math
import random

import pytest

from lockstep.timing.clock_correction import (
    BELIEVED_SPREAD,
    REACH,
    ClockLaw,
    Pair,
    at_common_clock,
    at_reference_clocks,
    law_of,
    midmean,
    own_mhz,
)
from lockstep.timing.device import Timing

#: Log clocks about an epoch's own: a fall of 4 %, as under a power cap.
FALL = (0.02, 0.012, 0.004, -0.004, -0.012, -0.02)


def epoch(seconds_at, mhz=1500.0, fall=FALL):
    """Timings while the clock falls."""
    clocks = [mhz * math.exp(step) for step in fall]
    return tuple(Timing(seconds_at(clock), clock) for clock in clocks)


def sm_bound(clock):
    return 1.5 / clock


def test_what_follows_the_clock_follows_it_nearly_in_proportion():
    law = law_of([epoch(sm_bound), epoch(sm_bound, 1400.0)])
    assert law.slope == pytest.approx(-1, abs=0.05)  # a little of it is not believed
    assert law.spread == pytest.approx(math.sqrt(sum(step**2 for step in FALL) / 6))
    assert law.clock == pytest.approx(math.log(1500 * 1400) / 2)


@pytest.mark.parametrize(
    "seconds_at",
    [
        lambda mhz: 1e-3,  # bound by memory
        lambda mhz: 1e-6 * mhz,  # slower at a faster clock: no cause of ours
    ],
)
def test_what_does_not_follow_the_clock_is_left_as_it_is(seconds_at):
    timings = epoch(seconds_at)
    law = law_of([timings])
    assert law.slope == 0
    assert law.at(timings, math.log(1400)) == [math.log(timing.seconds) for timing in timings]


def test_never_more_than_in_proportion():
    assert law_of([epoch(lambda mhz: (1500 / mhz) ** 3)]).slope == -1


def test_a_steady_or_unknown_clock_teaches_nothing():
    def law(mhz):
        return law_of([[Timing(1e-3 * (1 + i / 100), mhz) for i in range(8)]])

    assert law(1500.0) == ClockLaw(0, pytest.approx(math.log(1500)), pytest.approx(0, abs=1e-9))
    assert law(math.nan) == ClockLaw(0, pytest.approx(math.nan, nan_ok=True), 0)


def test_little_is_believed_of_a_clock_that_hardly_moves():
    """Noise of 1 % beside a clock that moves by 0.02 % would give any slope."""
    chance = random.Random(1)
    epochs = [
        [Timing(1e-3 * math.exp(chance.gauss(0, 0.01)), 1500 * math.exp(chance.gauss(0, 2e-4))) for _ in range(8)]
        for _ in range(4)
    ]
    law = law_of(epochs)
    assert abs(law.slope) * law.spread < 2e-4


def test_half_is_believed_of_a_clock_that_moves_as_little_as_said():
    law = law_of([epoch(sm_bound, fall=[BELIEVED_SPREAD, -BELIEVED_SPREAD] * 2)])
    assert law.slope == pytest.approx(-0.5)


def test_a_few_rounds_teach_nothing():
    few = law_of([epoch(sm_bound)[:3]])
    assert (few.slope, few.spread) == (0, 0)
    assert law_of([epoch(sm_bound)[:4]]).slope < -0.8


def test_rounds_that_met_different_clocks_agree():
    """A fast round of the one beside a slow round of the other, as a power cap deals them."""
    one, other = epoch(sm_bound), epoch(lambda mhz: 1.01 * sm_bound(mhz), fall=FALL[::-1])
    [ratios] = at_common_clock([Pair(other, one)])
    assert ratios == pytest.approx([math.log(1.01)] * 6, abs=2e-3)
    raw = [math.log(b.seconds / a.seconds) for a, b in zip(one, other, strict=True)]
    assert max(raw) - min(raw) > 0.07


def test_an_epoch_whose_clock_stood_still_is_told_like_the_others():
    """The law is that of all epochs: asked of each alone, this one's ratio would be another one."""
    still = (0.0005, -0.0005) * 3
    moving = Pair(epoch(sm_bound, 1480.0), epoch(sm_bound, 1520.0))
    standing = Pair(epoch(sm_bound, 1480.0, still), epoch(sm_bound, 1520.0, still))
    ratios = [midmean(rounds) for rounds in at_common_clock([moving, moving, moving, standing])]
    assert ratios == pytest.approx([0.0] * 4, abs=2e-3)


def slow_follower(mhz):
    return 0.02 * mhz**-0.5


def test_each_arm_is_told_at_its_usual_clock():
    """A warmer chip: both arms run slower, the product more than the copy, and their ratio is what it was."""
    cold = Pair(epoch(sm_bound, 1500.0), epoch(slow_follower, 1600.0))
    warm = Pair(epoch(sm_bound, 1470.0), epoch(slow_follower, 1568.0))
    usual = math.log(sm_bound(1500.0) / slow_follower(1600.0))
    for pair in (cold, warm):
        assert midmean(at_reference_clocks([pair], 1500.0, 1600.0)[0]) == pytest.approx(usual, abs=1e-3)
    assert midmean(at_reference_clocks([warm], None, None)[0]) == pytest.approx(usual + 0.01, abs=1e-3)


def test_without_a_usual_clock_an_arm_is_told_at_the_mean_one_that_it_met():
    pair = Pair(epoch(sm_bound, 1200.0), epoch(slow_follower, 1800.0))
    met = math.log(sm_bound(1200.0) / slow_follower(1800.0))
    assert midmean(at_reference_clocks([pair], None, None)[0]) == pytest.approx(met, abs=1e-3)


def test_a_new_arm_is_told_at_the_clock_that_it_would_have_had_beside_its_rivals_usual_one():
    """A history on a cold chip, then a new variant on a warm one that is 5 % slower: 1.05 for the same kernel twice."""
    old, new = epoch(sm_bound, 1500.0 * 0.95), epoch(sm_bound, 1500.0 * 0.95, fall=FALL[::-1])
    pairs = [Pair(new, old)]
    assert midmean(at_reference_clocks(pairs, None, 1500.0)[0]) == pytest.approx(0.0, abs=1e-3)
    learned = own_mhz(pairs, None, 1500.0)
    assert learned == pytest.approx(1500.0, rel=1e-3)
    # The next run, on a chip as cold as at first, gives the ratio of the run that learned the clock.
    cold = [Pair(epoch(sm_bound, 1500.0), epoch(sm_bound, 1500.0))]
    assert midmean(at_reference_clocks(cold, learned, 1500.0)[0]) == pytest.approx(0.0, abs=1e-3)
    assert own_mhz(pairs, 1490.0, 1500.0) == 1490.0
    assert own_mhz(pairs, None, None) == pytest.approx(1500.0 * 0.95, rel=1e-3)


def test_an_arm_whose_clock_is_unknown_has_no_usual_one():
    unknown = tuple(Timing(2e-3, math.nan) for _ in FALL)
    [ratios] = at_reference_clocks([Pair(unknown, unknown)], None, 1500.0)
    assert ratios == pytest.approx([0.0] * 6)


def test_two_arms_are_told_at_the_lower_of_their_clocks():
    """A product that the clock slows, beside a copy that it does not: the faster the clock, the better the product."""
    product, copy = epoch(sm_bound, 1500.0), epoch(lambda mhz: 1e-3, 1600.0)
    for pair in (Pair(product, copy), Pair(epoch(sm_bound, 1600.0), epoch(lambda mhz: 1e-3, 1500.0))):
        assert midmean(at_common_clock([pair])[0]) == pytest.approx(math.log(sm_bound(1500.0) / 1e-3), abs=4e-3)


def test_a_ratio_is_the_same_from_either_side():
    one, other = epoch(sm_bound, 1500.0), epoch(lambda mhz: 0.02 * mhz**-0.5, 1600.0)
    [there], [back] = at_common_clock([Pair(one, other)]), at_common_clock([Pair(other, one)])
    assert there == pytest.approx([-ratio for ratio in back])


def test_a_law_reaches_little_further_than_the_clocks_that_it_was_learned_from():
    apart = Pair(epoch(sm_bound, 1200.0), epoch(sm_bound, 1800.0))
    [ratios] = at_common_clock([apart])
    law = law_of([apart.rival])
    # 40 % would be asked for.
    assert midmean(ratios) == pytest.approx(math.log(1800 / 1200) + law.slope * REACH * law.spread)
    assert REACH * law.spread < 0.1


def test_an_unknown_clock_on_one_side_leaves_the_ratio_of_the_times():
    unknown = tuple(Timing(2e-3, math.nan) for _ in FALL)
    [ratios] = at_common_clock([Pair(unknown, tuple(Timing(1e-3, 1500.0) for _ in FALL))])
    assert ratios == pytest.approx([math.log(2)] * 6)
    [ratios] = at_common_clock([Pair(unknown, epoch(sm_bound))])
    assert midmean(ratios) == pytest.approx(math.log(2e-3 / sm_bound(1500.0)))


def test_the_middle_half_counts():
    assert midmean([5.0]) == 5.0
    assert midmean([1.0, 2.0]) == 1.5
    assert midmean([1.0, 1.0, 3.0, 3.0]) == 2.0
    assert midmean([0.0, 1.0, 1.0, 1.0, 1.0, 900.0]) == 1.0
