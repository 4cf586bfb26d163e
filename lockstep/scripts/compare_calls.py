"""Compare one timed call of base with that of head: outputs, then epochs, by the gate's own test."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from lockstep.gate.case_verdict import Trial
from lockstep.gate.measuring.pairing import BASE, HEAD, PairTimer, at_one_clock
from lockstep.gate.model import SeriesKey, Verdict
from lockstep.gate.sequential_decision import MOST_SAME, Test
from lockstep.same_work.observe import observe
from lockstep.same_work.read_graph import TritonCode
from lockstep.scripts.closure_arms import NO_FAMILY, ClosureBuffers, Namespace, arms_of, collected
from lockstep.scripts.closure_state import ClosureState, differing
from lockstep.scripts.compare_outputs import Output, compared, output_of, too_slow
from lockstep.scripts.judge_call import judged, refused
from lockstep.scripts.plan import Plan
from lockstep.scripts.shared_buffers import share
from lockstep.scripts.taken_calls import line_of
from lockstep.scripts.timed_call import TimedCall
from lockstep.timing.arms.bound_arms import Arm
from lockstep.timing.arms.shared_buffers import ArmFailed, Contender
from lockstep.timing.checks.check import brief
from lockstep.timing.device import DeviceLost
from lockstep.timing.instruments import Instruments
from lockstep.timing.rounds import Pace
from lockstep.timing.rules.changed_shared_code import Trusted

#: Smallest change that counts where base and head have buffers of their own, whose placement moves a time: backward
#: passes of 14 to 70 µs on an H100 differed by up to 0.7 % between two equal versions, and one on an H200, with an
#: added gradient of 8 MB in L2, by 4.9 %.
UNSHARED = 0.05


@dataclass
class CallComparer(Instruments):
    """Compares pairs of timed calls on one device.

    Attributes:
        cases: number of calls that share the error rate.
        namespaces: return the context of base's and of head's code.
        stage: called before each step that may hang or crash, with the stage and the side.
    """

    pace: Pace
    plan: Plan
    cases: int
    namespaces: dict[str, Namespace]
    stage: Callable[[str, str], None]
    _trusted: Trusted = field(default_factory=Trusted)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.plan.seed)
        self._codes = TritonCode.listening() if self.device.kind == "cuda" else TritonCode()

    def compare(self, key: SeriesKey, base: TimedCall, head: TimedCall, seconds: float) -> Verdict:
        """Return the verdict on a call that base and head both make; ``DeviceLost`` if one broke the CUDA context.

        ``seconds`` are for epochs. The first calls, which may compile for longer than that, come before.
        """
        started = time.monotonic()
        file, line = head.place
        try:
            verdict = self._compared(key, base, head, seconds)
        except torch.cuda.OutOfMemoryError:
            self.device.release()
            verdict = Verdict(key, "unsure", "the device has too little memory for the calls of both versions")
        return replace(verdict, file=file, line=line, wall_s=time.monotonic() - started)

    def _compared(self, key: SeriesKey, base: TimedCall, head: TimedCall, seconds: float) -> Verdict:
        calls = {BASE: base, HEAD: head}
        states = {side: ClosureState.of(call.function) for side, call in calls.items()}  # before a call changes them
        unequal = differing(*(state.digests for state in states.values()))
        outputs: dict[str, Output] = {}
        errors: dict[str, str] = {}
        slow = ""
        for side, call in calls.items():
            self.stage("check", side)
            began = time.monotonic()
            try:
                outputs[side] = output_of(call, self.namespaces[side], states[side])
                slow = slow or too_slow(call, self.namespaces[side], time.monotonic() - began)
            except Exception as error:
                self._require_healthy(side, error)
                errors[side] = line_of(error, Path(call.place[0]))
            # What differed before, such as memory without values, stays as the call left it: then both may be equal.
            states[side].restore(but=unequal)
        if errors:
            return refused(key, errors)
        found = compared(outputs[BASE], outputs[HEAD], states[HEAD], self.plan.scratch)

        def changes() -> bool:
            again = output_of(base, self.namespaces[BASE], states[BASE])
            states[BASE].restore(but=unequal)
            return bool(compared(outputs[BASE], again, states[BASE], self.plan.scratch).wrong)

        verdict, note = judged(key, found.given, found.wrong, unequal, outputs[BASE].changed, changes)
        outputs.clear()
        states.clear()
        if verdict is not None:
            return verdict
        if slow:
            return Verdict(key, "unsure", slow)
        with collected():
            return self._timed(key, calls, note, seconds)

    def _timed(self, key: SeriesKey, calls: dict[str, TimedCall], note: str, seconds: float) -> Verdict:
        shared = share(calls[BASE].function, calls[HEAD].function)
        arms, from_host = arms_of({side: (call, self.namespaces[side]) for side, call in calls.items()}, self.device)
        notes = [*filter(None, (note, from_host))]
        pair = [Contender(arm.name, key.variant, NO_FAMILY, arm.name, self.namespaces[arm.name]) for arm in arms]
        code: tuple[str, ...] = ()
        if self.device.kind == "cuda" and not from_host and shared and not self.plan.measure_all:
            code = (self._difference(pair, arms),)
            if code == ("",):
                return Verdict(key, "same", "; ".join(["the same work on the GPU", *notes]), unchanged=True)
        trial = self._trial(key, pair, arms, shared, seconds)
        verdict = trial.verdict(key)
        reason = "; ".join(filter(None, (verdict.reason, *notes)))
        return replace(verdict, reason=reason, code=code)

    def _difference(self, pair: list[Contender], arms: list[Arm]) -> str:
        """Return the first difference of the work that the graphs of base and head give the GPU; "" for the same."""
        self.stage("observe", "")
        buffers = ClosureBuffers(arms, self._chance.getrandbits(48), shared=True)
        return observe(pair, [buffers], self.device, self._codes, partial(self.stage, "observe")).difference

    def _trial(self, key: SeriesKey, pair: list[Contender], arms: list[Arm], shared: bool, seconds: float) -> Trial:
        least = self.plan.min_effect if shared else max(self.plan.min_effect, UNSHARED)
        test = Test(least, 1 - self.plan.confidence, self.cases, max(MOST_SAME, least))
        trial = Trial(test, ratios_of=at_one_clock)
        timer = PairTimer(pair, self.device, self.pace, self._trusted, self.stage)
        before = self.controls.take(self.device)
        deadline = time.monotonic() + seconds
        while not trial.over and (time.monotonic() < deadline or not trial.count):
            buffers = ClosureBuffers(arms, self._chance.getrandbits(48), shared=shared)
            try:
                epoch = timer.epoch(buffers)
            except ArmFailed as failed:
                self._require_healthy(failed.arm, failed)
                reason = f"{failed.arm} cannot be timed: {failed}"
                trial.refusal = Verdict(key, "unsure" if failed.arm == BASE else "failed", reason)
                break
            after = self.controls.take(self.device)
            moved, before = self.controls.moved(before, after), after
            trial.add(epoch, moved)
        return trial

    def _require_healthy(self, side: str, error: Exception) -> None:
        if not self.device.healthy():
            raise DeviceLost(side, brief(error)) from error
