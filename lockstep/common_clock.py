"""Timings of arms that ran at different clocks, made comparable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import correlation, linear_regression, median, median_low, pstdev

from lockstep.device import Timing

#: A round whose clock ratio between an arm and the baseline strays this far (log units) is void.
CLOCK_TOLERANCE = 0.03

#: Spread of an arm's clock within an epoch (log units) from which its time is related to it. Under the
#: power cap it is 1–2 %, otherwise under 0.2 %: too little to learn a slope from.
CLOCK_MOVED = 0.005


def at_common_clock(*arms: Sequence[Timing]) -> list[list[float]]:
    """Log seconds of each replay as it would have been at the arms' median SM clock.

    Under a power cap an H200's clock wanders by 2 % within the rounds of an epoch, and two arms of one
    round never meet the same clock. Where an arm's time follows its clock (its own regression of log
    seconds on log clock says so), the clock's part is taken out; a time that does not depend on it
    (memory, launches) is left as it is, and so is everything where clocks are unknown.

    Give it the two arms of a ratio. The median of all arms of an epoch may be far from both, and the slope is known
    for an arm's own few percents only: of 40 comparisons of an arm with itself, five runs of 8 rounds in 4 epochs each
    (an H200), 82 % agreed within 0.05 % at the two arms' clock, 72 % at all arms', 42 % with no clock taken out.
    """
    clocks = [timing.sm_mhz for mine in arms for timing in mine if not math.isnan(timing.sm_mhz)]
    usual = math.log(median(clocks)) if clocks else 0.0
    adjusted = []
    for mine in arms:
        slope = _clock_slope(mine)
        adjusted.append(
            [
                math.log(timing.seconds) - (slope * (math.log(timing.sm_mhz) - usual) if slope else 0.0)
                for timing in mine
            ]
        )
    return adjusted


def _clock_slope(timings: Sequence[Timing]) -> float:
    """d log seconds / d log clock, between −1 (SM-bound) and 0; 0 unless the clock moved and the time with it."""
    if len(timings) < 4 or any(math.isnan(timing.sm_mhz) for timing in timings):
        return 0.0
    clock = [math.log(timing.sm_mhz) for timing in timings]
    seconds = [math.log(timing.seconds) for timing in timings]
    if pstdev(clock) < CLOCK_MOVED or pstdev(seconds) == 0.0 or correlation(clock, seconds) > -0.7:
        return 0.0
    return min(0.0, max(-1.0, linear_regression(clock, seconds).slope))


def steady(mine: Sequence[Timing], base: Sequence[Timing]) -> list[bool]:
    """Rounds in which the clock ratio of the two arms was the usual one; all where clocks are unknown.

    Arms may run at different clocks (a product draws more power than a copy); what must not happen is
    that the clock changed between the two within one round.
    """
    ratios = [math.log(t.sm_mhz / b.sm_mhz) for t, b in zip(mine, base, strict=True)]
    known = [ratio for ratio in ratios if not math.isnan(ratio)]
    if len(known) < 3:
        return [True] * len(mine)
    # An observed ratio, not the mean of two: if the clock changed half way, one half still counts.
    usual = median_low(known)
    return [math.isnan(ratio) or abs(ratio - usual) <= CLOCK_TOLERANCE for ratio in ratios]
