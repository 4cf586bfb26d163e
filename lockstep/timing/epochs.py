"""Time every arm in turn, in epochs of fresh buffers, until the ratios are known well enough.

Measuring stops when every ratio to the baseline has an interval of the requested width or cannot reach that width, or
when the time is up.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from lockstep.record.model import TWIN
from lockstep.timing.arms.bound_arms import Arm, ArmReplay
from lockstep.timing.arms.captured_arms import Captured, Capturer
from lockstep.timing.arms.replays import settle
from lockstep.timing.arms.verify_replays import Verified
from lockstep.timing.controls import Controls
from lockstep.timing.costs.meter import CostMeter, is_measured
from lockstep.timing.device import Device, Mistimed, Timing
from lockstep.timing.estimates import Outcome, Series, outcome_of, rival_of, settled
from lockstep.timing.rounds import Pace, time_rounds
from lockstep.timing.rules.changed_shared_code import Trusted
from lockstep.timing.stage_times import Stages

#: Epochs between two timings of the controls. The controls take 7 ms on an H200, an arm's epoch 33 ms. None of the
#: 4,100 epochs of the H200's last two histories was void. If a control moves, all epochs between its two timings are
#: void.
EPOCHS_A_CONTROL = 3


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

    @property
    def pace(self) -> Pace:
        """Return the length of an epoch."""
        return Pace(self.replay_s, self.rounds, self.budget_s / self.min_epochs, self.warmup_s)


#: The shortest measurement, for finding errors; do not compare its numbers.
QUICK = Plan(replay_s=1e-3, rounds=3, min_epochs=2, max_epochs=2, budget_s=0.3, warmup_s=0.02)


@dataclass(frozen=True)
class Compared:
    """Outcomes and failures by arm, and a note on voided epochs and unverified results."""

    outcomes: dict[str, Outcome]
    failures: dict[str, Exception]
    note: str


#: Replays by arm, of each cost by its name; those of the latency have the name "".
Replays = Mapping[str, Mapping[str, ArmReplay]]


class Source(Protocol):
    """Provides the arms of each epoch, and verifies their replays."""

    @property
    def restore(self) -> Callable[[], None] | None:
        """Return a function that restores the inputs that the epoch's arms write; ``None`` if they write none."""

    def draw_arms(self, seed: int, names: Sequence[str]) -> list[Arm]:
        """Return the named arms on fresh buffers, which are drawn from ``seed``."""

    def listen(self, stage: str, arm: str) -> None:
        """Hear that a stage begins: "capture" and an arm before it runs alone, "time" and "" before all run in turn."""

    def verify(self, seed: int, replays: Replays) -> Verified:
        """Run an epoch's replays on other values. ``seed`` is the seed of the epoch."""


@dataclass
class Comparison:
    """Times all arms in turn, in epochs on fresh buffers, until the ratios to the baseline are precise enough.

    Arms that cannot be captured, run out of memory or break a rule are dropped and reported as failures.

    Attributes:
        baseline: the arm that ratios refer to; it may be absent from ``names``.
        controls: fixed work, timed before the first epoch, after the rounds of every ``EPOCHS_A_CONTROL`` of the
            ``min_epochs``, and after those of each further epoch, because each further epoch may be the last.
        reference_mhz: clock to which an arm's ratio is normalised, by arm; by default the arm's mean clock in this
            measurement, scaled as ``lockstep.timing.clock_correction`` says if the baseline has a reference clock.
        trusted: the original functions that measuring relies on; by default the currently loaded functions.
        early: whether to verify after an earlier epoch as well, which arms cannot foresee. The last epoch is always
            verified.
        meters: measure further costs of the arms in some of the epochs, after their rounds and controls.
    """

    source: Source
    names: Sequence[str]
    baseline: str
    device: Device
    controls: Controls
    plan: Plan
    seed: int
    stages: Stages = field(default_factory=Stages)
    reference_mhz: Mapping[str, float] = field(default_factory=dict)
    trusted: Trusted = field(default_factory=Trusted)
    early: bool = True
    meters: Sequence[CostMeter] = ()

    def __post_init__(self) -> None:
        # Two generators, because a shuffle takes more random numbers for more arms. A commit that adds a variant must
        # draw the same buffers as before.
        self._buffers, self._order = random.Random(self.seed), random.Random(self.seed)
        clocks, baseline = self.reference_mhz, self.reference_mhz.get(self.baseline)
        self._series = {name: Series((clocks.get(name), baseline), again=name.endswith(TWIN)) for name in self.names}
        self._capturer = Capturer(self.device, self.plan.replay_s, self.trusted)
        self._failures = self._capturer.failures
        self._void_reasons: list[str] = []
        self._notes: dict[str, None] = {}
        # Number of epochs before the early verification.
        until = random.SystemRandom().randrange(max(1, self.plan.min_epochs - 1))
        self._until_early = until if self.early else -1
        self._before: dict[str, Timing] | None = None
        # Rounds and costs since the last timing of the controls.
        self._pending: list[dict[str, list[Timing]]] = []
        self._pending_costs: list[tuple[CostMeter, Any]] = []
        self._valid = 0

    def run(self) -> Compared:
        """Time epochs until the ratios are precise enough or cannot become so, or the time is up.

        Raise ``DeviceLost`` if an arm broke the device while it was captured. Raise ``Disqualified`` if a trusted
        function was replaced while all arms were timed, so the culprit is unknown.
        """
        started, epoch = monotonic(), 0
        while self._series:
            seed = self._buffers.getrandbits(48)
            arms, captured = self._captured(seed)
            if not captured:
                break
            with self.stages.stage("time"):
                if self._timed(captured):
                    due = self._control_is_due()
                    void = self._control_moved() if due else False
                    last = due and not void and self._enough(monotonic() - started)
                    replays: dict[str, Mapping[str, ArmReplay]] = {"": {arm.name: arm.replay.once for arm in captured}}
                    # The last epoch is always verified, so costs are measured in it.
                    if not void and (last or is_measured(epoch, self.plan.min_epochs)):
                        paused = monotonic()
                        replays |= self._costs([arm for arm in arms if arm.name in self._series], counts=due)
                        started += monotonic() - paused  # costs leave the budget of the rounds as it is
                    self._until_early -= 1
                    if last or self._until_early == -1:
                        self._verify(seed, replays)
                    if last:
                        break
            epoch += 1
        return self._result()

    def _captured(self, seed: int) -> tuple[list[Arm], list[Captured]]:
        """Draw the arms of an epoch and capture them."""
        arms = self.source.draw_arms(seed, list(self._series))
        with self.stages.stage("capture"):
            captured = self._capturer.capture(arms, self.source.listen)
        for name in self._failures:
            self._series.pop(name, None)
        self.source.listen("time", "")
        return arms, captured

    def _timed(self, captured: Sequence[Captured]) -> bool:
        """Time the rounds of an epoch. Return False if the clocks disagree about an arm, which is dropped."""
        if self._before is None:
            settle([arm.replay for arm in captured], self.device, self.plan.warmup_s)
            with self.stages.stage("controls"):
                self._before = self.controls.take(self.device)
        try:
            timings = time_rounds(captured, self.plan.pace, self.device, self._order, self.source.restore)
        except Mistimed as error:
            # The failed arm's earlier epochs are dropped as well. The earlier epochs of the other arms count.
            culprit = next(arm.name for arm in captured if arm.replay is error.replay)
            self._failures[culprit] = error
            del self._series[culprit]
            return False
        self.trusted.require()
        self._pending.append(timings)
        return True

    def _control_is_due(self) -> bool:
        pending = len(self._pending)
        return pending == EPOCHS_A_CONTROL or self._valid + pending >= self.plan.min_epochs

    def _control_moved(self) -> bool:
        """Time the controls. Void the pending epochs if a control moved, else add them. Return whether they are void.

        Right after the rounds, because a control must always follow the same load. When controls followed costs in some
        epochs and rounds in others, all epochs of a case on an H200 were void (37 %).
        """
        assert self._before is not None
        with self.stages.stage("controls"):
            after = self.controls.take(self.device)
            moved = self.controls.moved(self._before, after)
            self._before = after
        # Only a limited number of epochs is voided. A machine that never settles is measured too, and marked.
        void = bool(moved) and len(self._void_reasons) < self.plan.min_epochs
        if void:
            self._void_reasons += [moved] * len(self._pending)
            for name, series in self._series.items():
                series.voided += sum(len(timings[name]) for timings in self._pending)
        else:
            for timings in self._pending:
                self._add_epoch(timings)
            for meter, numbers in self._pending_costs:
                meter.add(numbers)
            self._valid += len(self._pending)
        self._pending.clear()
        self._pending_costs.clear()
        return void

    def _add_epoch(self, timings: Mapping[str, Sequence[Timing]]) -> None:
        for name, series in self._series.items():
            rival = rival_of(name, self.baseline)
            series.add(timings[name], timings.get(rival, ()) if rival not in self._failures else ())

    def _enough(self, seconds: float) -> bool:
        """Return whether measuring may stop: the ratios are precise enough, or the epochs or seconds are used up."""
        plan = self.plan
        if self._valid < plan.min_epochs:
            return False
        if self._valid >= plan.max_epochs or seconds >= plan.budget_s:
            return True
        return all(
            settled(series, name == self.baseline, plan.width, plan.max_epochs) for name, series in self._series.items()
        )

    def _costs(self, timed: Sequence[Arm], *, counts: bool) -> Replays:
        """Measure the costs of an epoch, and return the replays that ran.

        ``counts``: whether the controls have accepted the epoch. Until then its costs are pending, as its rounds are.
        """
        ran = {}
        for meter in self.meters:
            with self.stages.stage(meter.name):
                metered = meter.epoch(timed, self.source.listen, self.source.restore)
                self.trusted.require()
            ran[meter.name] = metered.replays
            if counts:
                meter.add(metered.numbers)
            else:
                self._pending_costs.append((meter, metered.numbers))
        return ran

    def _verify(self, seed: int, replays: Replays) -> None:
        """Verify an epoch's arms. Drop arms that fail, with every number that depends on them."""
        remaining = {cost: {arm: mine[arm] for arm in mine if arm in self._series} for cost, mine in replays.items()}
        with self.stages.stage("verify"):
            verification = self.source.verify(seed, remaining)
            self.trusted.require()
        self._failures.update(verification.failures)
        self._notes.update({verification.note: None} if verification.note else {})
        for name in verification.failures:
            self._series.pop(name, None)
        for name in self._series:
            if rival_of(name, self.baseline) in verification.failures:
                self._series[name].pairs.clear()

    def _result(self) -> Compared:
        clocks = self.device.sample_clocks()
        void = self._void_reasons
        voided = f"{len(void)} epochs voided: {void[0]}" if void else ""
        outcomes = {
            name: outcome_of(series, name == self.baseline, self.plan.width, clocks)
            for name, series in self._series.items()
            if series.latency
        }
        return Compared(outcomes, self._failures, "; ".join(filter(None, (voided, *self._notes))))
