"""What the epochs said of one arm, and what becomes of it: estimates with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from lockstep.record.model import Clocks, Estimate
from lockstep.timing.clock_correction import Pair, at_common_clock, at_reference_clocks, law_of, midmean
from lockstep.timing.intervals import detectable, exponential, half_width, half_width_after, log_interval

#: Samples kept of each series; asv's statistics are slow on more.
MOST_SAMPLES = 20


#: A ratio that even the most epochs would leave so many times as wide as asked is not waited for: a warm series has one
#: set at one place, whose luck moves it by 1.5–3 % from epoch to epoch, and took a tenth of a run's time.
HOPELESS = 1.5


@dataclass
class Series:
    """What the epochs said of one arm. Times are seconds a call, ratios rival (the baseline, mostly) over arm.

    Attributes:
        reference_mhz: clocks at which the arm and its rival are told; ``None`` is the mean one that it met here.
        again: the rival is the same kernel: both are told at one clock.
    """

    reference_mhz: tuple[float | None, float | None] = (None, None)
    again: bool = False
    latency: list[float] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    latency_samples: list[float] = field(default_factory=list)
    sm_mhz: list[float] = field(default_factory=list)
    rounds: int = 0
    voided: int = 0

    def ratios(self) -> list[list[float]]:
        """Log ratio of each round, by epoch; how times follow clocks is learned from all of them."""
        told = at_common_clock(self.pairs) if self.again else at_reference_clocks(self.pairs, *self.reference_mhz)
        return [[-ratio for ratio in epoch] for epoch in told]

    def told_mhz(self) -> float | None:
        """The clock at which the arm is told."""
        if self.reference_mhz[0] is not None:
            return self.reference_mhz[0]
        met = law_of([pair.mine for pair in self.pairs]).clock
        return None if math.isnan(met) else math.exp(met)


@dataclass(frozen=True)
class Outcome:
    """One arm's result.

    Attributes:
        latency: seconds a call.
        ratio: baseline's latency over this arm's; None without a baseline.
        mde: smallest relative change that would show.
        rounds, epochs, voided: what it rests on.
        converged: whether the ratio became as narrow as asked.
        clocks: while it ran.
        latency_samples, ratio_samples: a thinned record of the rounds.
    """

    latency: Estimate
    ratio: Estimate | None
    mde: float
    rounds: int
    epochs: int
    voided: int
    converged: bool
    clocks: Clocks
    latency_samples: tuple[float, ...]
    ratio_samples: tuple[float, ...]


def settled(one: Series, is_baseline: bool, width: float, most: int) -> bool:
    """Whether more epochs would do nothing for a ratio.

    Its interval has a half-width of at most ``width``, in log units, or would have ``HOPELESS`` times that after the
    ``most`` epochs that there may be.
    """
    epochs = [midmean(epoch) for epoch in one.ratios()]
    return _narrow(epochs, is_baseline, width) or half_width_after(most, epochs) > HOPELESS * width


def outcome_of(one: Series, is_baseline: bool, width: float, clocks: Clocks) -> Outcome:
    """The result of an arm; ``clocks`` are the device's at the end."""
    rounds = one.ratios()
    epochs = [midmean(epoch) for epoch in rounds]
    return Outcome(
        latency=exponential(log_interval(one.latency)),
        ratio=exponential(log_interval(epochs)) if epochs else None,
        mde=detectable(epochs if epochs and not is_baseline else one.latency),
        rounds=one.rounds,
        epochs=len(one.latency),
        voided=one.voided,
        converged=_narrow(epochs, is_baseline, width),
        clocks=Clocks(
            sm_mhz=median(one.sm_mhz) if one.sm_mhz else None,
            sm_mhz_low=min(one.sm_mhz) if one.sm_mhz else None,
            told_mhz=one.told_mhz(),
            temperature_c=clocks.temperature_c,
            power_w=clocks.power_w,
            reasons=clocks.reasons,
        ),
        latency_samples=_thin(one.latency_samples),
        ratio_samples=_thin([math.exp(ratio) for epoch in rounds for ratio in epoch]),
    )


def _narrow(epochs: Sequence[float], is_baseline: bool, width: float) -> bool:
    # The baseline's ratio to itself is 1; a latency follows the clock and is not what is waited for.
    return is_baseline or not epochs or half_width(epochs) <= width


def _thin(samples: Sequence[float]) -> tuple[float, ...]:
    """At most ``MOST_SAMPLES``, evenly spread over the rounds."""
    step = max(1, math.ceil(len(samples) / MOST_SAMPLES))
    return tuple(float(f"{sample:.6g}") for sample in samples[::step])
