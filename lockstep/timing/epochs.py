"""The epochs of one case: draw the arms' buffers, restore what they write, verify what was timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lockstep.suite.case import Case
from lockstep.suite.family import Family
from lockstep.suite.model import Suite
from lockstep.timing.argument_sets import draw_sets, restorer
from lockstep.timing.arms import Arm, ArmReplay, make_arms
from lockstep.timing.device import Device
from lockstep.timing.stage_times import Stages
from lockstep.timing.verify import Timed, Verified, Verifier

#: Called before anything that may hang or crash, with the stage ("load", "check", "draw", "capture", "time", "verify")
#: and the variant ("" for all of them).
Listener = Callable[[str, str], None]


@dataclass
class Epochs:
    """Makes and verifies the epochs of one case.

    Attributes:
        suite, case, device, family: whose.
        arms: name of an arm to name of its variant.
        sets: argument sets of an epoch.
        thorough: see ``Verifier.repeat``.
        stages: collects the seconds of "draw".
        listener: called with a stage and a variant.
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
        """Tell the listener a stage of an arm, by its variant."""
        self.listener(stage, self.arms.get(arm, ""))

    def draw_arms(self, seed: int, names: Sequence[str]) -> list[Arm]:
        """Return these arms on fresh buffers."""
        self.listener("draw", "")  # this runs the variants' preparation too
        inout = self.suite.inout
        with self.stages.stage("draw"):
            # Before the next draw: both together may not fit.
            self._drawn, self._restore = {}, None
            sets = draw_sets(self.suite, self.case, self.device, self.sets, seed)
            made = make_arms({name: self.arms[name] for name in names}, self.family, sets, seed, bool(inout))
            self.device.synchronize()
        self._drawn, self._restore = {arm.name: arm for arm in made}, restorer(sets, inout)
        return made

    def restore(self) -> None:
        """Give the inputs that the epoch's arms write their values again."""
        if self._restore is not None:
            self._restore()

    def verify(self, seed: int, replays: Mapping[str, ArmReplay]) -> Verified:
        """Verify the replays of the epoch with this seed, by arm."""
        verifier = Verifier(self.suite, self.case, self.device, self.thorough, listener=self.listen)
        timed = [Timed(self._drawn[arm], replay, self.family, self.arms[arm]) for arm, replay in replays.items()]
        return verifier.verify(timed, seed)
