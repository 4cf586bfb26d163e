"""Compute an arm's latency and ratio, with confidence intervals, from the rounds of its epochs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from lockstep.record.model import TWIN, Clocks, Estimate
from lockstep.timing.clock_correction import Pair, at_common_clock, at_reference_clocks, midmean, own_mhz
from lockstep.timing.device import Timing
from lockstep.timing.intervals import detectable, exponential, half_width, half_width_after, log_interval

#: Number of samples stored for each series; more would make asv's statistics slow.
MOST_SAMPLES = 20


#: A ratio gets no more epochs if its interval would still be this many times too wide after the maximum number of
#: epochs. A warm series has one argument set at one address per epoch, and the address moves its ratio by 1.5–3 %. Such
#: series took a tenth of a run's time.
HOPELESS = 1.5


@dataclass
class Series:
    """The timed rounds of one arm, by epoch, next to those of its rival, the arm with which it is compared.

    The rival is the baseline. In an A/A comparison, where a variant has two arms, the second arm's rival is the first.
    Times are seconds per call. A ratio is the rival's time over the arm's time.

    Attributes:
        reference_mhz: clocks to which the arm and its rival are normalised; for ``None`` see
            ``lockstep.timing.clock_correction.at_reference_clocks``.
        again: whether the rival is the same kernel. If so, both are normalised to one common clock.
    """

    reference_mhz: tuple[float | None, float | None] = (None, None)
    again: bool = False
    latency: list[float] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    latency_samples: list[float] = field(default_factory=list)
    sm_mhz: list[float] = field(default_factory=list)
    rounds: int = 0
    voided: int = 0

    def add(self, own: Sequence[Timing], rival: Sequence[Timing] = ()) -> None:
        """Add the rounds of an epoch; rounds whose time is not positive have no logarithm and are left out."""
        positive = [timing for timing in own if timing.seconds > 0]
        self.rounds += len(own)
        self.latency_samples += [timing.seconds for timing in positive]
        self.sm_mhz += [timing.sm_mhz for timing in own if not math.isnan(timing.sm_mhz)]
        if positive:
            self.latency.append(median(math.log(timing.seconds) for timing in positive))
        both = [pair for pair in zip(own, rival, strict=False) if min(timing.seconds for timing in pair) > 0]
        if both:
            self.pairs.append(Pair(*zip(*both, strict=True)))

    def ratios(self) -> list[list[float]]:
        """Return the log ratio of each round, by epoch, with the effect of the SM clock removed."""
        ratios = at_common_clock(self.pairs) if self.again else at_reference_clocks(self.pairs, *self.reference_mhz)
        return [[-ratio for ratio in epoch] for epoch in ratios]

    def told_mhz(self) -> float | None:
        """Return the clock in MHz to which the arm is normalised; None if its clock is unknown."""
        own, rival = self.reference_mhz
        # In an A/A comparison the pairs' rival is not the baseline, to which the second clock belongs.
        return own_mhz(self.pairs, own, None if self.again else rival)


@dataclass(frozen=True)
class Outcome:
    """The numbers of one arm that its record reports, under the names that they have there.

    Attributes:
        latency: seconds per call.
        speedup: latency of the baseline over that of this arm; ``None`` without a baseline.
        mde: minimal detectable effect, a relative change.
        rounds, epochs, voided: numbers of timed rounds, of epochs, and of rounds discarded because a control moved.
        converged: whether the interval of the ratio became as narrow as requested.
        latency_samples, speedup_samples: at most ``MOST_SAMPLES`` of the rounds' numbers.
    """

    latency: Estimate
    speedup: Estimate | None
    mde: float
    rounds: int
    epochs: int
    voided: int
    converged: bool
    clocks: Clocks
    latency_samples: tuple[float, ...]
    speedup_samples: tuple[float, ...]


def rival_of(name: str, baseline: str) -> str:
    """Return the arm that an arm's ratio refers to: the baseline, or the first arm if ``name`` is the second of an A/A
    comparison."""
    return name.removesuffix(TWIN) if name.endswith(TWIN) else baseline


def settled(series: Series, is_baseline: bool, width: float, most: int) -> bool:
    """Return whether a ratio needs no more epochs, because its interval is narrow enough or would never be.

    The interval is narrow enough if its half-width is at most ``width`` (log units). It would never be if the
    half-width would still exceed ``HOPELESS`` times ``width`` after ``most`` epochs.
    """
    epochs = [midmean(epoch) for epoch in series.ratios()]
    return _narrow(epochs, is_baseline, width) or half_width_after(most, epochs) > HOPELESS * width


def outcome_of(series: Series, is_baseline: bool, width: float, clocks: Clocks) -> Outcome:
    """Compute an arm's result from all its epochs; converged is a half-width of the ratio (log) up to ``width``."""
    rounds = series.ratios()
    epochs = [midmean(epoch) for epoch in rounds]
    return Outcome(
        latency=exponential(log_interval(series.latency)),
        speedup=exponential(log_interval(epochs)) if epochs else None,
        mde=detectable(epochs if epochs and not is_baseline else series.latency),
        rounds=series.rounds,
        epochs=len(series.latency),
        voided=series.voided,
        converged=_narrow(epochs, is_baseline, width),
        clocks=Clocks(
            sm_mhz=median(series.sm_mhz) if series.sm_mhz else None,
            sm_mhz_low=min(series.sm_mhz) if series.sm_mhz else None,
            told_mhz=series.told_mhz(),
            temperature_c=clocks.temperature_c,
            power_w=clocks.power_w,
            reasons=clocks.reasons,
        ),
        latency_samples=_thin(series.latency_samples),
        speedup_samples=_thin([math.exp(ratio) for epoch in rounds for ratio in epoch]),
    )


def _narrow(epochs: Sequence[float], is_baseline: bool, width: float) -> bool:
    # The baseline's ratio to itself is 1. Its latency varies with the clock, so no epochs are added to narrow it.
    return is_baseline or not epochs or half_width(epochs) <= width


def _thin(samples: Sequence[float]) -> tuple[float, ...]:
    """Return at most ``MOST_SAMPLES`` samples, evenly spread over the rounds."""
    step = max(1, math.ceil(len(samples) / MOST_SAMPLES))
    return tuple(float(f"{sample:.6g}") for sample in samples[::step])
