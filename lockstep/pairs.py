"""The comparison: every arm timed in turn, round after round, epoch after epoch of fresh buffers.

A round is one timed replay of each arm. Every second round has the order of the one before, flipped, so
that each two arms meet in both orders; then the order is shuffled, so that no arm has the same neighbours
for long (what ran before shows in a replay). Measuring stops as soon as every ratio to the baseline is
known as narrowly as asked, or when the time is up.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import correlation, linear_regression, median, median_low, pstdev

import torch

from lockstep.arms import Arm
from lockstep.controls import Controls
from lockstep.device import CaptureError, Device, Replay, Timing
from lockstep.intervals import detectable, exponential, half_width, log_interval
from lockstep.record import Clocks, Estimate
from lockstep.stages import Stages

#: A round whose clock ratio between an arm and the baseline strays this far (log units) is void.
CLOCK_TOLERANCE = 0.03

#: Spread of an arm's clock within an epoch (log units) from which its time is related to it. Under the
#: power cap it is 1–2 %, otherwise under 0.2 %: too little to learn a slope from.
CLOCK_MOVED = 0.005

#: Rounds at the start of an epoch that do not count: clocks and caches settle under the order and the load
#: that the others see. Without them a product of 50–70 µs (w4a16, M = 256) moved by 2.3 % between five runs
#: of an H200, with them by 0.5 %; 57 % of the hardest series were within 0.05 % A/A, with them 71 %.
LEAD_ROUNDS = 2

#: Samples kept of each series; asv's statistics are slow on more.
MOST_SAMPLES = 20


@dataclass(frozen=True)
class Plan:
    """How long to measure.

    Attributes:
        replay_s: shortest replay, seconds. On an H200 the first call after a pause and the arm before
            disturb a 1 ms replay of a 10 µs kernel by 0.3 … 0.7 % (A/A, one epoch), a 3 ms one by 0.05 %.
        rounds: timed rounds an epoch.
        min_epochs, max_epochs: sets of fresh buffers.
        width: half-width of the ratio's interval at which measuring may stop (0.01 is 1 %).
        budget_s: seconds after which no further epoch starts (``min_epochs`` are always taken).
        warmup_s: seconds of joint warm-up before the first epoch; later ones have their lead rounds.
    """

    replay_s: float = 3e-3
    rounds: int = 8
    min_epochs: int = 4
    max_epochs: int = 4
    width: float = 0.01
    budget_s: float = 4.0
    warmup_s: float = 0.1


#: One look, to find errors; its numbers are not to be compared.
QUICK = Plan(replay_s=1e-3, rounds=3, min_epochs=2, max_epochs=2, budget_s=0.3, warmup_s=0.02)


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


@dataclass(frozen=True)
class Comparison:
    """Outcomes by arm name, failures by arm name, and a note if epochs had to be thrown out."""

    outcomes: dict[str, Outcome]
    failures: dict[str, str]
    note: str


def compare(
    draw_arms: Callable[[int, Sequence[str]], list[Arm]],
    names: Sequence[str],
    baseline: str,
    device: Device,
    controls: Controls,
    plan: Plan,
    seed: int,
    stages: Stages | None = None,
) -> Comparison:
    """Measure the arms against each other.

    Args:
        draw_arms: ``(seed, names)`` to arms on fresh buffers.
        names: arms to measure.
        baseline: the arm that ratios refer to; it may be absent from ``names``.
        device: where.
        controls: timed before and after each epoch.
        plan: how long.
        seed: of the order and the buffers.
        stages: told where the time goes.

    Arms that cannot be captured or run out of memory are dropped and reported as failures.
    """
    # Apart, because a shuffle takes more from its source the more arms there are: a commit that adds a
    # variant must meet the same buffers as before.
    buffers, order = random.Random(seed), random.Random(seed)
    stages = stages or Stages()
    series: dict[str, Series] = {name: Series() for name in names}
    failures: dict[str, str] = {}
    per_call: dict[str, float] = {}
    void_reasons: list[str] = []
    started = time.monotonic()
    taken = 0
    while series:
        arms = draw_arms(buffers.getrandbits(48), list(series))
        with stages.stage("capture"):
            captured = _capture(arms, device, plan, per_call, failures)
        for name in failures:
            series.pop(name, None)
        if not captured:
            break
        with stages.stage("time"):
            if not taken:
                _warm_up(captured, device, plan.warmup_s)
            spent = time.monotonic() - started
            rounds = _rounds(captured, per_call, plan, spent)
            with stages.stage("controls"):
                before = controls.take(device)
            timings = _time_rounds(captured, rounds, device, order)
            with stages.stage("controls"):
                moved = controls.moved(before, controls.take(device))
        if moved and len(void_reasons) < plan.min_epochs:
            # Not for ever: a machine that never settles is measured all the same, and marked.
            void_reasons.append(moved)
            for one in series.values():
                one.voided += rounds
            continue
        _add_epoch(series, captured, timings, baseline)
        taken += 1
        if taken >= plan.min_epochs and (
            taken >= plan.max_epochs
            or time.monotonic() - started >= plan.budget_s
            or all(_narrow(one, name == baseline, plan) for name, one in series.items())
        ):
            break
    clocks = device.sample_clocks()
    note = f"{len(void_reasons)} epochs voided: {void_reasons[0]}" if void_reasons else ""
    outcomes = {name: _outcome(one, name == baseline, plan, clocks) for name, one in series.items() if one.latency}
    return Comparison(outcomes, failures, note)


@dataclass(frozen=True)
class _Captured:
    name: str
    replay: Replay
    calls: int


def _capture(
    arms: Sequence[Arm], device: Device, plan: Plan, per_call: dict[str, float], failures: dict[str, str]
) -> list[_Captured]:
    """Replays of at least ``plan.replay_s``; ``per_call`` is learned in the first epoch."""
    captured = []
    pool = device.new_pool()
    for arm in arms:
        try:
            if arm.name not in per_call:
                once = arm.capture(device, 1, pool)
                once()
                [timing] = device.time([once])
                per_call[arm.name] = timing.seconds / len(arm.calls)
            times = max(1, math.ceil(plan.replay_s / (per_call[arm.name] * len(arm.calls))))
            captured.append(_Captured(arm.name, arm.capture(device, times, pool), times * len(arm.calls)))
        except torch.cuda.OutOfMemoryError:
            failures[arm.name] = "out of memory while its calls were captured"
            device.release()
        except (CaptureError, NotImplementedError) as error:
            failures[arm.name] = str(error)
    return captured


def _warm_up(captured: Sequence[_Captured], device: Device, seconds: float) -> None:
    """Every replay once, and on until the time is over: clocks settle under the load they will see."""
    until = time.monotonic() + seconds
    while True:
        for one in captured:
            one.replay()
        device.synchronize()
        if time.monotonic() >= until:
            return


def _rounds(captured: Sequence[_Captured], per_call: dict[str, float], plan: Plan, spent: float) -> int:
    """Rounds that fit the budget's share of an epoch: slow arms get fewer, but three at least."""
    one_round = sum(per_call[one.name] * one.calls for one in captured)
    share = max(plan.budget_s - spent, plan.budget_s / 2) / plan.min_epochs
    return max(min(3, plan.rounds), min(plan.rounds, int(share / one_round) - LEAD_ROUNDS))


def _time_rounds(
    captured: Sequence[_Captured], rounds: int, device: Device, chance: random.Random
) -> dict[str, list[Timing]]:
    """Timings of each arm, one a round; ``seconds`` are per call. The lead rounds are run and left out."""
    order = list(captured)
    sequence: list[_Captured] = []
    for number in range(LEAD_ROUNDS + rounds):
        if number % 2 == 0:
            chance.shuffle(order)
        else:
            order.reverse()
        sequence += order
    collecting = gc.isenabled()
    gc.disable()
    try:
        timings = device.time([one.replay for one in sequence])
    finally:
        if collecting:
            gc.enable()
    by_name: dict[str, list[Timing]] = {one.name: [] for one in captured}
    lead = LEAD_ROUNDS * len(captured)
    for one, timing in zip(sequence[lead:], timings[lead:], strict=True):
        by_name[one.name].append(Timing(timing.seconds / one.calls, timing.sm_mhz))
    return by_name


def _add_epoch(
    series: dict[str, Series], captured: Sequence[_Captured], timings: dict[str, list[Timing]], baseline: str
) -> None:
    base = timings.get(baseline)
    common = at_common_clock(timings)
    for one in captured:
        name, mine = one.name, timings[one.name]
        kept = steady(mine, base) if base else [True] * len(mine)
        good = [timing for timing, ok in zip(mine, kept, strict=True) if ok]
        into = series[name]
        into.rounds += len(good)
        into.voided += len(mine) - len(good)
        into.latency.append(median(math.log(timing.seconds) for timing in good))
        into.latency_samples += [timing.seconds for timing in good]
        into.sm_mhz += [timing.sm_mhz for timing in good if not math.isnan(timing.sm_mhz)]
        if base is not None:
            ratios = [b - t for b, t, ok in zip(common[baseline], common[name], kept, strict=True) if ok]
            into.ratio.append(median(ratios))
            into.ratio_samples += [math.exp(ratio) for ratio in ratios]


def at_common_clock(timings: Mapping[str, Sequence[Timing]]) -> dict[str, list[float]]:
    """Log seconds of each replay as it would have been at the epoch's median SM clock.

    Under a power cap an H200's clock wanders by 2 % within the rounds of an epoch, and two arms of one
    round never meet the same clock. Where an arm's time follows its clock (its own regression of log
    seconds on log clock says so), the clock's part is taken out; a time that does not depend on it
    (memory, launches) is left as it is, and so is everything where clocks are unknown.
    """
    clocks = [timing.sm_mhz for mine in timings.values() for timing in mine if not math.isnan(timing.sm_mhz)]
    usual = math.log(median(clocks)) if clocks else 0.0
    adjusted = {}
    for name, mine in timings.items():
        slope = _clock_slope(mine)
        adjusted[name] = [
            math.log(timing.seconds) - (slope * (math.log(timing.sm_mhz) - usual) if slope else 0.0) for timing in mine
        ]
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


def _narrow(one: Series, is_baseline: bool, plan: Plan) -> bool:
    if is_baseline or not one.ratio:
        # The baseline's ratio to itself is 1; a latency follows the clock and is not what is waited for.
        return True
    return half_width(one.ratio) <= plan.width


def _outcome(one: Series, is_baseline: bool, plan: Plan, clocks: Clocks) -> Outcome:
    ratio = exponential(log_interval(one.ratio)) if one.ratio else None
    return Outcome(
        latency=exponential(log_interval(one.latency)),
        ratio=ratio,
        mde=detectable(one.ratio if one.ratio and not is_baseline else one.latency),
        rounds=one.rounds,
        epochs=len(one.latency),
        voided=one.voided,
        converged=_narrow(one, is_baseline, plan),
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
