"""Normalise timings of arms that ran at different clocks.

Under a power cap the clock of an H200 varies by 2 % within the rounds of an epoch, so two arms of one round never run
at the same clock. From one run to the next, as the chip warms, the clock varies by another 1 %. If an arm's time
depends on its clock, this module removes the clock's effect from a ratio. Time that does not depend on the clock
(memory, launches) is not changed, nor is any timing whose clock is unknown.

There are two methods. Two versions of one kernel, which draw similar power, are normalised to one clock within the
range of both. Two different kernels, which a power cap can hold up to 8 % apart, are each normalised to their own
reference clock: the clock of the first measurement of the series. A common clock would extrapolate one of the kernels
across that gap in every run. An arm that is new beside a rival with a reference clock gets the clock that it would have
had in the rival's first measurement: its own clock times the rival's reference clock over the rival's clock now. With
its clock of today alone, the same cuBLAS product had 1.02 times its own speed, and 1.09 behind a fixed kernel, on an
H100 that was slower than the one of the first measurement.

The docstrings below give shares of speedups that agree within 0.3 %, between four processes on one H200 and between
five on another. There were 64 speedups in 30 cases, with free clocks and nine epochs of six rounds in each process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from lockstep.timing.device import Timing

#: Spread of a clock (log units) at which the fitted slope is halved. Under the power cap, clocks spread by 1–4 % and
#: slopes agree to 0.02 from process to process. Otherwise clocks spread by under 0.1 %, too little for a fit. With a
#: hard threshold for each epoch instead, the ratio of one grouped product jumped by 2.5 % between epochs, depending on
#: whether the spread passed the threshold.
BELIEVED_SPREAD = 0.003

#: Distance from an arm's mean clock, in standard deviations, up to which its fitted law is applied. If the limit is too
#: close, the limit itself scatters: with 2 a grouped product's ratio moved by 0.8 % from run to run, with 6 by 0.2 %.
REACH = 6.0


@dataclass(frozen=True)
class Pair:
    """The timings of two arms in one epoch, in seconds per call, by round."""

    own: tuple[Timing, ...]
    rival: tuple[Timing, ...]


@dataclass(frozen=True)
class ClockLaw:
    """How an arm's time depends on the SM clock.

    Attributes:
        slope: d log seconds / d log clock, between −1 (SM-bound) and 0.
        clock: mean log clock of the fitted rounds; NaN if a clock is unknown.
        spread: standard deviation of the log clock within the epochs.
    """

    slope: float
    clock: float
    spread: float

    def at(self, timings: Sequence[Timing], clock: float) -> list[float]:
        """Predict the log seconds of the timings at ``clock`` (log MHz).

        If ``clock`` is more than ``REACH`` standard deviations from the fitted mean clock, it is moved to that limit.
        """
        if not self.slope:
            return [math.log(timing.seconds) for timing in timings]
        reach = REACH * self.spread
        limited_clock = self.clock + min(reach, max(-reach, clock - self.clock))
        return [math.log(timing.seconds) - self.slope * (math.log(timing.sm_mhz) - limited_clock) for timing in timings]


def law_of(epochs: Sequence[Sequence[Timing]]) -> ClockLaw:
    """Fit an arm's time to its clock: a ridge regression over all rounds, centred on the means of each epoch."""
    clocks: list[float] = []
    steps: list[float] = []
    times: list[float] = []
    for timings in epochs:
        clock = [math.log(timing.sm_mhz) for timing in timings]
        time = [math.log(timing.seconds) for timing in timings]
        clocks += clock
        steps += [value - fmean(clock) for value in clock]
        times += [value - fmean(time) for value in time]
    centre = fmean(clocks) if clocks else math.nan
    if len(clocks) < 4 or math.isnan(centre):
        return ClockLaw(0.0, centre, 0.0)
    variance = fmean(step * step for step in steps)
    covariance = fmean(step * time for step, time in zip(steps, times, strict=True))
    slope = covariance / (variance + BELIEVED_SPREAD**2)
    return ClockLaw(min(0.0, max(-1.0, slope)), centre, math.sqrt(variance))


def at_common_clock(pairs: Sequence[Pair]) -> list[list[float]]:
    """Return log(own / rival), the log ratio of two arms' times, by epoch and round, both normalised to one clock.

    Use this function for two versions of one kernel, or for a kernel and itself. The clock is the lower of the two
    arms' mean clocks: that arm's times stay as measured, and the other arm also ran at that clock. A mean clock repeats
    from run to run; the median clock of an epoch's few rounds does not. All rounds count: when the 9 % of rounds with
    an unusual ratio of the arms' clocks were left out, the speedups of fewer runs agreed.
    """
    own, rival = _laws(pairs)
    clocks = [law.clock for law in (own, rival) if not math.isnan(law.clock)]
    clock = min(clocks, default=math.nan)
    return _normalised(pairs, own, clock, rival, clock)


def at_reference_clocks(pairs: Sequence[Pair], own_mhz: float | None, rival_mhz: float | None) -> list[list[float]]:
    """Return log(own / rival), the log ratio of two arms' times, by epoch and round, each at its reference clock.

    Args:
        own_mhz: reference clock of the arm in MHz; for ``None`` see the function ``own_mhz``.
        rival_mhz: reference clock of the rival in MHz; ``None`` takes its mean clock in these epochs.

    Shares of 64 ratios that agree within 0.3 %, between four processes on one H200 and between five on another: 94 and
    95 % with this function, 94 and 81 % at the lower of the two mean clocks, 50 and 53 % without normalisation, 16 and
    30 % with one clock for all kernels.
    """
    own, rival = _laws(pairs)
    return _normalised(pairs, own, _own_clock(own_mhz, rival_mhz, own, rival), rival, _log(rival_mhz, rival))


def own_mhz(pairs: Sequence[Pair], known_mhz: float | None, rival_mhz: float | None) -> float | None:
    """Return the clock in MHz to which ``at_reference_clocks`` normalises the arm; None if its clock is unknown.

    Args:
        known_mhz: reference clock of the arm, which is returned; ``None`` for an arm that has none yet.
        rival_mhz: reference clock of the rival. If it is ``None`` too, the result is the arm's mean clock.
    """
    if known_mhz is not None:
        return known_mhz
    clock = _own_clock(None, rival_mhz, *_laws(pairs))
    return None if math.isnan(clock) else math.exp(clock)


def _own_clock(own_mhz: float | None, rival_mhz: float | None, own: ClockLaw, rival: ClockLaw) -> float:
    """Return the log clock to which an arm is normalised beside its rival."""
    if own_mhz or not rival_mhz or math.isnan(rival.clock):
        return _log(own_mhz, own)
    return own.clock + math.log(rival_mhz) - rival.clock


def _laws(pairs: Sequence[Pair]) -> tuple[ClockLaw, ClockLaw]:
    return law_of([pair.own for pair in pairs]), law_of([pair.rival for pair in pairs])


def _log(mhz: float | None, law: ClockLaw) -> float:
    return math.log(mhz) if mhz else law.clock


def _normalised(
    pairs: Sequence[Pair], law: ClockLaw, own_clock: float, rival: ClockLaw, rival_clock: float
) -> list[list[float]]:
    return [
        [a - b for a, b in zip(law.at(pair.own, own_clock), rival.at(pair.rival, rival_clock), strict=True)]
        for pair in pairs
    ]


def midmean(values: Sequence[float]) -> float:
    """Return the mean of the middle half of the values.

    The midmean resists a disturbed round as well as a median does, and is steadier for times with two modes. cuBLAS
    takes 13.6 or 14.0 µs for 32 × 7168 × 2112 from replay to replay (H200); a median jumps between the two.
    """
    ordered = sorted(values)
    cut = len(ordered) // 4
    return fmean(ordered[cut : len(ordered) - cut])
