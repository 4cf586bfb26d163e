"""Time every arm in turn, round after round, in epochs of fresh buffers.

A round is one timed replay of each arm. Every second round reverses the order of the previous round, so that each pair
of arms runs in both orders. The order is then shuffled, so that no arm has the same neighbours for long: the time of a
replay depends on the replay before it. Measuring stops when every ratio to the baseline has an interval of the
requested width or cannot reach that width, or when the time is up.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import monotonic
from typing import Any

from lockstep.record.model import TWIN
from lockstep.timing.arms.bound_arms import Arm, ArmReplay
from lockstep.timing.arms.captured_arms import Captured, capture_arms
from lockstep.timing.arms.replays import settle, time_undisturbed
from lockstep.timing.arms.verify_replays import Verified
from lockstep.timing.clock_correction import Pair
from lockstep.timing.controls import Controls
from lockstep.timing.cost_meters import CostMeter, is_measured
from lockstep.timing.device import Device, Mistimed, Timing
from lockstep.timing.estimates import Outcome, Series, outcome_of, settled
from lockstep.timing.rules.trusted import Trusted
from lockstep.timing.stage_times import Stages

#: Epochs between two timings of the controls. The controls take 7 ms on an H200, an arm's epoch 33 ms. None of the
#: 4,100 epochs of the H200's last two histories was void. If a control moves, all epochs between its two timings are
#: void.
EPOCHS_A_CONTROL = 3

#: Rounds at the start of an epoch that do not count: clocks and caches settle under the order and load of the epoch.
#: A product of 50–70 µs (w4a16, M = 256) moved between five runs of an H200 by 2.3 % without lead rounds, by 0.5 % with
#: them. Of the hardest series, 57 % were within 0.05 % A/A without lead rounds, 71 % with them.
LEAD_ROUNDS = 2


@dataclass(frozen=True)
class Plan:
    """How long and how precisely to measure: lengths of replays, numbers of rounds and epochs, stop conditions.

    Attributes:
        replay_s: shortest replay, seconds. On an H200 the first call after a pause and the preceding arm disturb a 1 ms
            replay of a 10 µs kernel by 0.3 … 0.7 % (A/A, one epoch), a 3 ms replay by 0.05 %.
        rounds: timed rounds per epoch: an even number, so that each order also runs reversed.
        min_epochs, max_epochs: bounds on the number of epochs, each with fresh buffers.
        width: half-width of the ratio's interval at which measuring may stop (0.01 is 1 %).
        budget_s: seconds after which no further epoch starts. ``min_epochs`` are always taken. If they would take
            longer, each has fewer rounds, but at least three.
        warmup_s: seconds of joint warm-up before the first epoch. Every epoch begins with rounds that do not count.
    """

    replay_s: float = 3e-3
    rounds: int = 6
    min_epochs: int = 9
    max_epochs: int = 15
    width: float = 0.003
    budget_s: float = 6.0
    warmup_s: float = 0.1

    @classmethod
    def on(cls, device: Device) -> Plan:
        """Return the plan for a device. A CPU gets four epochs: other work prevents ±0.3 % with any number of
        epochs.
        """
        return cls(rounds=8, min_epochs=4, max_epochs=4) if device.kind == "cpu" else cls()


#: The shortest measurement, for finding errors; do not compare its numbers.
QUICK = Plan(replay_s=1e-3, rounds=3, min_epochs=2, max_epochs=2, budget_s=0.3, warmup_s=0.02)


@dataclass(frozen=True)
class Comparison:
    """The result of ``compare``: outcomes and failures by arm, and a note on voided epochs and unverified results."""

    outcomes: dict[str, Outcome]
    failures: dict[str, Exception]
    note: str


#: Replays by arm, of each cost by its name; those of the latency have the name "".
Replays = Mapping[str, Mapping[str, ArmReplay]]

#: Replays an epoch's arms on other values after timing. The arguments are the epoch's seed and the replays.
Verify = Callable[[int, Replays], Verified]


def compare(
    draw_arms: Callable[[int, Sequence[str]], list[Arm]],
    names: Sequence[str],
    baseline: str,
    device: Device,
    controls: Controls,
    plan: Plan,
    seed: int,
    stages: Stages | None = None,
    reference_mhz: Mapping[str, float] | None = None,
    listener: Callable[[str, str], None] = lambda stage, arm: None,
    trusted: Trusted | None = None,
    verify: Verify = lambda seed, replays: Verified({}),
    restore: Callable[[], None] | None = None,
    early: bool = True,
    meters: Sequence[CostMeter] = (),
) -> Comparison:
    """Time all arms in turn, in epochs on fresh buffers, until the ratios to the baseline are precise enough.

    Arms that cannot be captured, run out of memory or break a rule are dropped and reported as failures.

    Args:
        draw_arms: returns the named arms on fresh buffers, given a seed and the names.
        baseline: the arm that ratios refer to; it may be absent from ``names``.
        controls: fixed work, timed before the first epoch, after the rounds of every ``EPOCHS_A_CONTROL`` of the
            ``min_epochs``, and after those of each further epoch, because each further epoch may be the last.
        plan: duration and precision.
        seed: seed of the order and the buffers.
        stages: collects the seconds of each stage.
        reference_mhz: clock to which an arm's ratio is normalised, by arm; by default the arm's mean clock in this
            measurement, scaled as ``lockstep.timing.clock_correction`` says if the baseline has a reference clock.
        listener: called with "capture" and an arm before the arm is captured and run alone; with "time" and "" before
            all arms run in turn. The last call shows which arm hung or crashed.
        trusted: the original functions that measuring relies on; by default the currently loaded functions.
        verify: called after the last epoch and, if ``early``, also after an earlier epoch that arms cannot foresee.
        restore: called before each timed replay; it restores inputs that the epoch's arms write.
        early: whether to verify after an earlier epoch as well.
        meters: measure further costs of the arms in some of the epochs, after their rounds and controls.

    Raises:
        DeviceLost: an arm broke the device while it was captured.
        Disqualified: a trusted function was replaced while all arms were timed, so the culprit is unknown.
    """
    # Two generators, because a shuffle takes more random numbers for more arms. A commit that adds a variant must draw
    # the same buffers as before.
    buffers, order = random.Random(seed), random.Random(seed)
    stages = stages or Stages()
    trusted = trusted or Trusted()
    clocks_mhz = reference_mhz or {}
    series = {
        name: Series((clocks_mhz.get(name), clocks_mhz.get(baseline)), again=name.endswith(TWIN)) for name in names
    }
    failures: dict[str, Exception] = {}
    per_call: dict[str, float] = {}
    void_reasons: list[str] = []
    notes: dict[str, None] = {}
    # Number of epochs before the early verification.
    until_early = random.SystemRandom().randrange(max(1, plan.min_epochs - 1)) if early else -1
    started = monotonic()
    valid_epochs = 0
    before: dict[str, Timing] | None = None
    # Epochs since the last timing of the controls, and the costs measured in them.
    pending: list[dict[str, list[Timing]]] = []
    pending_costs: list[tuple[CostMeter, Any]] = []
    epoch = -1  # epochs before this one

    def costs_of(timed: Sequence[Arm], counts: bool) -> Replays:
        """Measure the costs of an epoch, and return the replays that ran.

        ``counts``: whether the controls have accepted the epoch. Until then its costs are pending, as its rounds are.
        """
        ran = {}
        for meter in meters:
            with stages.stage(meter.name):
                metered = meter.epoch(timed, listener, restore)
                trusted.require()
            ran[meter.name] = metered.replays
            if counts:
                meter.add(metered.numbers)
            else:
                pending_costs.append((meter, metered.numbers))
        return ran

    def verified(of_seed: int, replays: Replays) -> None:
        """Verify an epoch's arms. Drop arms that fail, with every number that depends on them."""
        with stages.stage("verify"):
            verification = verify(
                of_seed,
                {cost: {arm: by_arm[arm] for arm in by_arm if arm in series} for cost, by_arm in replays.items()},
            )
            trusted.require()
        failures.update(verification.failures)
        notes.update({verification.note: None} if verification.note else {})
        for name in verification.failures:
            series.pop(name, None)
        for name in series:
            if rival_of(name, baseline) in verification.failures:
                series[name].pairs.clear()

    while series:
        of_seed = buffers.getrandbits(48)
        epoch += 1
        arms = draw_arms(of_seed, list(series))
        with stages.stage("capture"):
            captured = capture_arms(arms, device, plan.replay_s, per_call, failures, trusted, listener)
        for name in failures:
            series.pop(name, None)
        if not captured:
            break
        listener("time", "")
        with stages.stage("time"):
            if before is None:
                settle([arm.replay for arm in captured], device, plan.warmup_s)
                with stages.stage("controls"):
                    before = controls.take(device)
            try:
                timings = time_rounds(captured, rounds_that_fit(captured, per_call, plan), device, order, restore)
            except Mistimed as error:
                # The failed arm's earlier epochs are dropped as well. The earlier epochs of the other arms count.
                culprit = next(arm.name for arm in captured if arm.replay is error.replay)
                failures[culprit] = error
                del series[culprit]
                continue
            trusted.require()
            pending.append(timings)
            controls_due = len(pending) == EPOCHS_A_CONTROL or valid_epochs + len(pending) >= plan.min_epochs
            void = last = False
            if controls_due:
                # Right after the rounds, because a control must always follow the same load. When controls followed
                # costs in some epochs and rounds in others, all epochs of a case on an H200 were void (37 %).
                with stages.stage("controls"):
                    after = controls.take(device)
                    moved = controls.moved(before, after)
                    before = after
                # Only a limited number of epochs is voided. A machine that never settles is measured too, and marked.
                void = bool(moved) and len(void_reasons) < plan.min_epochs
                if void:
                    void_reasons += [moved] * len(pending)
                    for name, arm_series in series.items():
                        arm_series.voided += sum(len(timings[name]) for timings in pending)
                else:
                    for timings in pending:
                        _add_epoch(series, timings, baseline, failures)
                    for meter, numbers in pending_costs:
                        meter.add(numbers)
                    valid_epochs += len(pending)
                    last = _enough(series, baseline, plan, valid_epochs, monotonic() - started)
                pending.clear()
                pending_costs.clear()
            replays: dict[str, Mapping[str, ArmReplay]] = {"": {arm.name: arm.replay.once for arm in captured}}
            # The last epoch is always verified, so costs are measured in it.
            if not void and (last or is_measured(epoch, plan.min_epochs)):
                paused = monotonic()
                replays |= costs_of([arm for arm in arms if arm.name in series], controls_due)
                started += monotonic() - paused  # costs leave the budget of the rounds as it is
            until_early -= 1
            if last or until_early == -1:
                verified(of_seed, replays)
            if last:
                break
    clocks = device.sample_clocks()
    voided = f"{len(void_reasons)} epochs voided: {void_reasons[0]}" if void_reasons else ""
    outcomes = {
        name: outcome_of(arm, name == baseline, plan.width, clocks) for name, arm in series.items() if arm.latency
    }
    return Comparison(outcomes, failures, "; ".join(filter(None, (voided, *notes))))


def rounds_that_fit(captured: Sequence[Captured], per_call: dict[str, float], plan: Plan) -> int:
    """Return the number of rounds of an epoch: ``plan.rounds``, or as many as its share of the time allows.

    The result is at least three, unless the plan has fewer rounds.
    """
    one_round = sum(per_call[arm.name] * arm.replay.calls for arm in captured)
    return max(min(3, plan.rounds), min(plan.rounds, int(plan.budget_s / plan.min_epochs / one_round) - LEAD_ROUNDS))


def time_rounds(
    captured: Sequence[Captured],
    rounds: int,
    device: Device,
    chance: random.Random,
    restore: Callable[[], None] | None,
) -> dict[str, list[Timing]]:
    """Return the seconds per call of each arm in each round. ``LEAD_ROUNDS`` rounds run first and do not count."""
    order = list(captured)
    sequence: list[Captured] = []
    for number in range(LEAD_ROUNDS + rounds):
        if number % 2 == 0:
            chance.shuffle(order)
        else:
            order.reverse()
        sequence += order
    timings = time_undisturbed([arm.replay for arm in sequence], device, restore)
    by_name: dict[str, list[Timing]] = {arm.name: [] for arm in captured}
    lead = LEAD_ROUNDS * len(captured)
    for arm, timing in zip(sequence[lead:], timings[lead:], strict=True):
        by_name[arm.name].append(Timing(timing.seconds / arm.replay.calls, timing.sm_mhz))
    return by_name


def _enough(series: Mapping[str, Series], baseline: str, plan: Plan, epochs: int, seconds: float) -> bool:
    """Return whether measuring may stop: the ratios are precise enough, or the epochs or seconds are used up."""
    if epochs < plan.min_epochs:
        return False
    if epochs >= plan.max_epochs or seconds >= plan.budget_s:
        return True
    return all(
        settled(arm_series, name == baseline, plan.width, plan.max_epochs) for name, arm_series in series.items()
    )


def _add_epoch(
    series: dict[str, Series], timings: Mapping[str, Sequence[Timing]], baseline: str, failed: Container[str]
) -> None:
    for name, arm_series in series.items():
        own = timings[name]
        arm_series.rounds += len(own)
        arm_series.latency.append(median(math.log(timing.seconds) for timing in own))
        arm_series.latency_samples += [timing.seconds for timing in own]
        arm_series.sm_mhz += [timing.sm_mhz for timing in own if not math.isnan(timing.sm_mhz)]
        rival = rival_of(name, baseline)
        if rival in timings and rival not in failed:
            arm_series.pairs.append(Pair(tuple(own), tuple(timings[rival])))


def rival_of(name: str, baseline: str) -> str:
    """Return the arm that an arm's ratio refers to: the baseline, or the first arm if ``name`` is the second of an A/A
    comparison."""
    return name.removesuffix(TWIN) if name.endswith(TWIN) else baseline
