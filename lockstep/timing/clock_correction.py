"""Timings of arms that ran at different clocks, made comparable.

Under a power cap an H200's clock wanders by 2 % within the rounds of an epoch, and two arms of one round never meet the
same clock; from one run to the next, as the chip warms, by 1 % again. Where an arm's time follows its clock, the
clock's part is taken out of a ratio; what does not depend on it (memory, launches) is left as it is, and so is
everything where clocks are unknown.

A ratio is told in one of two ways. Two versions of one kernel, which draw like power, are told at one clock that both
met. Two different kernels, which a power cap keeps up to 8 % apart for good, are told each at its own usual clock, the
one that it met when its series was first measured: at one clock, the law of one of them would have to reach across
that gap in every run anew.

The shares below are of 64 speedups in 30 cases on H200s with free clocks, nine epochs of six rounds in each process:
how many of them agree within 0.3 %, between four processes on one GPU, and five on another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from lockstep.timing.device import Timing

#: Spread of a clock (log units) at which half of what a time seems to follow is believed. Under the power cap clocks
#: spread by 1–4 % and slopes agree from process to process to 0.02; otherwise by under 0.1 %, too little to learn from.
#: A threshold instead, asked of each epoch, let the ratio of one grouped product jump by 2.5 % between epochs, as it
#: was passed or not.
BELIEVED_SPREAD = 0.003

#: How far beyond the mean clock that an arm met, in standard deviations, its law is trusted. Too near, and the limit
#: itself is what scatters: with 2 a grouped product's ratio moved by 0.8 % from run to run, with 6 by 0.2 %.
REACH = 6.0


@dataclass(frozen=True)
class Pair:
    """What an epoch said of two arms: their timings, round by round, in seconds a call."""

    mine: tuple[Timing, ...]
    rival: tuple[Timing, ...]


@dataclass(frozen=True)
class ClockLaw:
    """How the time of an arm follows its clock.

    Attributes:
        slope: d log seconds / d log clock, between −1 (SM-bound) and 0.
        clock: mean log clock of the rounds that it was learned from; NaN where a clock is unknown.
        spread: standard deviation of the log clock within their epochs.
    """

    slope: float
    clock: float
    spread: float

    def at(self, timings: Sequence[Timing], clock: float) -> list[float]:
        """Log seconds as they would have been at a log clock, as near to it as the law reaches."""
        if not self.slope:
            return [math.log(timing.seconds) for timing in timings]
        reach = REACH * self.spread
        there = self.clock + min(reach, max(-reach, clock - self.clock))
        return [math.log(timing.seconds) - self.slope * (math.log(timing.sm_mhz) - there) for timing in timings]


def law_of(epochs: Sequence[Sequence[Timing]]) -> ClockLaw:
    """The law of an arm: a ridge regression over the rounds of all its epochs, each about its own means."""
    clocks: list[float] = []
    steps: list[float] = []
    times: list[float] = []
    for timings in epochs:
        clock = [math.log(timing.sm_mhz) for timing in timings]
        time = [math.log(timing.seconds) for timing in timings]
        clocks += clock
        steps += [one - fmean(clock) for one in clock]
        times += [one - fmean(time) for one in time]
    usual = fmean(clocks) if clocks else math.nan
    if len(clocks) < 4 or math.isnan(usual):
        return ClockLaw(0.0, usual, 0.0)
    variance = fmean(step * step for step in steps)
    covariance = fmean(step * time for step, time in zip(steps, times, strict=True))
    slope = covariance / (variance + BELIEVED_SPREAD**2)
    return ClockLaw(min(0.0, max(-1.0, slope)), usual, math.sqrt(variance))


def at_common_clock(pairs: Sequence[Pair]) -> list[list[float]]:
    """Log of the first arm's seconds over its rival's, by epoch and round, at the lower of the two arms' mean clocks.

    One of the two is then told as it ran, and both at a clock that both reach: for two versions of one kernel, and a
    kernel beside itself. The median clock of an epoch's few rounds is a draw of its own; mean clocks repeat. All rounds
    count: leaving out those in which the two clocks stood otherwise than usual, 9 %, made fewer ratios agree.
    """
    mine, rival = _laws(pairs)
    clocks = [law.clock for law in (mine, rival) if not math.isnan(law.clock)]
    clock = min(clocks, default=math.nan)
    return _told(pairs, mine, clock, rival, clock)


def at_reference_clocks(pairs: Sequence[Pair], mine_mhz: float | None, rival_mhz: float | None) -> list[list[float]]:
    """The same, each arm at its own usual clock, in MHz; ``None`` is the mean clock that it met here.

    Four processes and five agree in 94 and 95 % so, at the lower of their mean clocks in 94 and 81 %, with no clock
    taken out in 50 and 53 %, and at one clock for all of a GPU's kernels in 16 and 30 %.
    """
    mine, rival = _laws(pairs)
    return _told(pairs, mine, _log(mine_mhz, mine), rival, _log(rival_mhz, rival))


def _laws(pairs: Sequence[Pair]) -> tuple[ClockLaw, ClockLaw]:
    return law_of([pair.mine for pair in pairs]), law_of([pair.rival for pair in pairs])


def _log(mhz: float | None, law: ClockLaw) -> float:
    return math.log(mhz) if mhz else law.clock


def _told(
    pairs: Sequence[Pair], mine: ClockLaw, mine_clock: float, rival: ClockLaw, rival_clock: float
) -> list[list[float]]:
    return [
        [a - b for a, b in zip(mine.at(pair.mine, mine_clock), rival.at(pair.rival, rival_clock), strict=True)]
        for pair in pairs
    ]


def midmean(values: Sequence[float]) -> float:
    """Mean of the middle half: as deaf to a disturbed round as a median, and steadier between two modes.

    cuBLAS takes 13.6 or 14.0 µs for 32 × 7168 × 2112, from replay to replay (an H200); a median jumps from the one to
    the other.
    """
    ordered = sorted(values)
    cut = len(ordered) // 4
    return fmean(ordered[cut : len(ordered) - cut])
