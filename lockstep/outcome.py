"""What the epochs said of one arm, and what becomes of it: estimates with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from lockstep.intervals import detectable, exponential, half_width, log_interval
from lockstep.record import Clocks, Estimate

#: Samples kept of each series; asv's statistics are slow on more.
MOST_SAMPLES = 20


@dataclass
class Series:
    """What the epochs said of one arm. Times are seconds a call, ratios baseline over arm."""

    latency: list[float] = field(default_factory=list)
    ratio: list[float] = field(default_factory=list)
    latency_samples: list[float] = field(default_factory=list)
    ratio_samples: list[float] = field(default_factory=list)
    sm_mhz: list[float] = field(default_factory=list)
    rounds: int = 0
    voided: int = 0


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
        epoch_log_ratios: per-epoch medians of the log ratio.
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
    epoch_log_ratios: tuple[float, ...]


def narrow(one: Series, is_baseline: bool, width: float) -> bool:
    """Whether the half-width of the ratio's interval is at most ``width``, in log units."""
    if is_baseline or not one.ratio:
        # The baseline's ratio to itself is 1; a latency follows the clock and is not what is waited for.
        return True
    return half_width(one.ratio) <= width


def outcome_of(one: Series, is_baseline: bool, width: float, clocks: Clocks) -> Outcome:
    """The result of an arm; ``clocks`` are the device's at the end."""
    ratio = exponential(log_interval(one.ratio)) if one.ratio else None
    return Outcome(
        latency=exponential(log_interval(one.latency)),
        ratio=ratio,
        mde=detectable(one.ratio if one.ratio and not is_baseline else one.latency),
        rounds=one.rounds,
        epochs=len(one.latency),
        voided=one.voided,
        converged=narrow(one, is_baseline, width),
        clocks=Clocks(
            sm_mhz=median(one.sm_mhz) if one.sm_mhz else None,
            sm_mhz_low=min(one.sm_mhz) if one.sm_mhz else None,
            temperature_c=clocks.temperature_c,
            power_w=clocks.power_w,
            reasons=clocks.reasons,
        ),
        latency_samples=_thin(one.latency_samples),
        ratio_samples=_thin(one.ratio_samples),
        epoch_log_ratios=tuple(one.ratio),
    )


def _thin(samples: Sequence[float]) -> tuple[float, ...]:
    """At most ``MOST_SAMPLES``, evenly spread over the rounds."""
    step = max(1, math.ceil(len(samples) / MOST_SAMPLES))
    return tuple(float(f"{sample:.6g}") for sample in samples[::step])
