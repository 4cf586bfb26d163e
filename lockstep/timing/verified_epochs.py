"""Prepare and verify the epochs of one case: draw buffers, restore changed inputs, verify the timed replays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.variants import Family
from lockstep.timing.arms.argument_sets import draw_sets
from lockstep.timing.arms.bound_arms import Arm, ArmReplay
from lockstep.timing.arms.buffers import Buffers, Contender
from lockstep.timing.arms.verify_replays import Timed, Verified, Verifier
from lockstep.timing.device import Device
from lockstep.timing.stage_times import Stages

#: Called before each step that may hang or crash, with the stage ("load", "check", "draw", "capture", "time", "verify")
#: and the variant ("" for a step that concerns all variants).
Listener = Callable[[str, str], None]


@dataclass
class Epochs:
    """Prepare each epoch of one case, and verify its replays after they were timed.

    Attributes:
        suite, case, device, family: what is measured, on which device, and with which variants.
        arms: variant name of each arm, by the arm's name.
        sets: number of argument sets of an epoch.
        thorough: whether verification also times calls on unseen values, see ``Verifier.repeat``.
        stages: receives the seconds that drawing takes.
        listener: called with a stage and a variant before the stage runs.
    """

    suite: Suite
    case: Case
    device: Device
    family: Family
    arms: Mapping[str, str]
    sets: int
    thorough: bool
    stages: Stages
    listener: Listener
    _drawn: dict[str, Arm] = field(default_factory=dict)
    _restore: Callable[[], None] | None = None

    def listen(self, stage: str, arm: str) -> None:
        """Report to the listener that an arm reaches a stage, by the name of the arm's variant."""
        self.listener(stage, self.arms.get(arm, ""))

    def draw_arms(self, seed: int, names: Sequence[str]) -> list[Arm]:
        """Bind the named arms to fresh buffers, which are drawn from ``seed``."""
        self.listener("draw", "")  # drawing also runs the variants' preparation
        with self.stages.stage("draw"):
            # Freed before the next draw: the buffers of two draws together may not fit.
            self._drawn, self._restore = {}, None
            buffers = Buffers(draw_sets(self.suite, self.case, self.device, self.sets, seed), seed, self.suite.inout)
            arms, _ = buffers.arms([Contender(name, self.arms[name], self.family) for name in names])
            self.device.synchronize()
        self._drawn, self._restore = {arm.name: arm for arm in arms}, buffers.restore
        return arms

    @property
    def restore(self) -> Callable[[], None] | None:
        """Return a function that writes the drawn values into the inputs that arms change; ``None`` without such."""
        return self._restore

    def verify(self, seed: int, replays: Mapping[str, Mapping[str, ArmReplay]]) -> Verified:
        """Verify the outputs of an epoch's replays.

        Args:
            seed: seed with which the epoch's buffers were drawn.
            replays: the replays by cost and arm; the cost "" stands for the latency.
        """
        verifier = Verifier(self.suite, self.case, self.device, self.thorough, listener=self.listen)
        timed = [
            Timed(self._drawn[arm], replay, self.family, self.arms[arm], cost)
            for cost, by_arm in replays.items()
            for arm, replay in by_arm.items()
        ]
        return verifier.verify(timed, seed)
