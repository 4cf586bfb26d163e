"""Compare base and head in groups of cases: check the results of both, observe their work, time epochs."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from lockstep.gate.case_verdict import Measured, Trial
from lockstep.gate.measuring.call_checks import CallChecks
from lockstep.gate.measuring.families import Families
from lockstep.gate.measuring.pairing import BASE, HEAD, PairTimer, at_one_clock
from lockstep.gate.measuring.schedule import Bench, Scatter, Schedule
from lockstep.gate.model import CHECKS, LATENCY, Group, GroupRequest, SeriesKey, Verdict
from lockstep.gate.namespaces import Sides
from lockstep.machine_code.model import CaseKey
from lockstep.same_work.observe import observe
from lockstep.same_work.read_graph import TritonCode
from lockstep.same_work.work import Observed
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import cost_of
from lockstep.suite.variants import NotInCommit
from lockstep.timing.arms.argument_rotation import draw_sets
from lockstep.timing.arms.bound_arms import Arm, ArmReplay
from lockstep.timing.arms.shared_buffers import ArmFailed, Buffers, Contender
from lockstep.timing.arms.verify_replays import Timed, Verifier
from lockstep.timing.case_checks import Checks
from lockstep.timing.checks.check import brief
from lockstep.timing.costs.available_meters import Meters
from lockstep.timing.device import Device, DeviceLost, Timing
from lockstep.timing.instruments import Instruments
from lockstep.timing.rounds import Pace
from lockstep.timing.rules.rule import Disqualified
from lockstep.timing.stage_times import summary
from lockstep.timing.tuners.choices import differences
from lockstep.timing.tuners.held_choices import Tuners

#: Draws of the inputs on which base and head are captured to compare their work.
DRAWS = 2

#: Bytes of an epoch's argument sets, if fewer sets would do for a cold L2. Base and head share all placements, so they
#: need fewer than the different kernels of a history; allocating 5 GB took as long as timing.
MOST_SET_BYTES = 1 << 29

#: Quantities whose epochs end with replays, so that a control can show whether the machine changed during them.
GUARDED = (LATENCY, "behind")

#: Called before each step that may hang or crash, with the stage ("check", "time"), variant and side ("" for both).
Listener = Callable[[str, str, str], None]


class Comparer(Instruments):
    """Compares base and head on one device. Stores results of checks for the life of the process.

    ``judge`` and ``observe`` raise ``DeviceLost`` if a call of base or head breaks the CUDA context.

    Args:
        listener: called before each step that may hang or crash.
        meters: measure quantities other than the latency; by default those that the device can measure.
        begin: called with the group of each case before the case is checked or timed.
        tuners: note what the tuners of each side choose; ``None`` to note nothing.
    """

    def __init__(
        self,
        sides: Sides,
        device: Device,
        pace: Pace,
        seed: int,
        listener: Listener,
        meters: Meters | None = None,
        begin: Callable[[Group], None] = lambda group: None,
        tell: Callable[[str], None] = lambda text: None,
        tuners: Tuners | None = None,
    ) -> None:
        super().__init__(device, tuners=tuners, _meters=meters)
        self.sides = sides
        self.pace = pace
        self._chance = random.Random(seed)
        self._listener = listener
        self._begin = begin
        self._tell = tell
        self._scatter = Scatter()
        self._before: dict[str, Timing] | None = None
        self.families = Families(sides)
        self._checks = Checks(
            device,
            lambda: self._chance.getrandbits(32),
            lambda stage, contender: listener(stage, contender.variant, contender.tree),
            self.noted,
        )
        self._call_checks = CallChecks(self._checks)
        self._codes = TritonCode.listening() if device.kind == "cuda" else TritonCode()

    def judge(self, asked: Sequence[tuple[Suite, GroupRequest]], seconds: float) -> Iterator[Verdict]:
        """Yield the verdict of each case of some groups as soon as the case is decided.

        Groups that calls decide come first. The epochs of all others are scheduled together
        (``lockstep.gate.measuring.schedule``). Nothing starts after ``seconds``.
        """
        deadline = time.monotonic() + seconds
        timed = [(suite, request) for suite, request in asked if request.group.quantity not in CHECKS]
        for suite, request in asked:
            if request.group.quantity in CHECKS:
                yield from self._judge_calls(suite, request, deadline)
        if timed:
            schedule = Schedule(self._bench, self._epoch, self._scatter, self._progress)
            yield from map(self._with_choices, schedule.run(timed, deadline))

    def observe(self, suite: Suite, label: str, variants: Sequence[str]) -> Iterator[tuple[str, Observed]]:
        """Yield for each variant what captured graphs say of base and head at a case; see ``lockstep.same_work``."""
        case = suite.case(label)
        try:
            with self.sides.active(HEAD):
                seeds = [self._chance.getrandbits(48) for _ in range(DRAWS)]
                draws = [Buffers(draw_sets(suite, case, self.device, 1, seed), seed, suite.inout) for seed in seeds]
        except torch.cuda.OutOfMemoryError:
            self.device.release()
            yield from ((name, Observed("the device has too little memory to capture it")) for name in variants)
            return
        try:
            # Once for all variants: the check compares thousands of functions.
            found = self.families.trusted.guarded(lambda: [self._observed(suite, name, draws) for name in variants])
        except Disqualified as error:
            found = [Observed(brief(error))] * len(variants)
        yield from zip(variants, found, strict=True)

    def _with_choices(self, verdict: Verdict) -> Verdict:
        """Return the verdict with a sentence for each tuned kernel that base and head run in different ways."""
        key = CaseKey(verdict.key.suite, verdict.key.variant, verdict.key.case)
        base, head = (self.choices(key, side) for side in (BASE, HEAD))
        return replace(verdict, code=(*verdict.code, *differences(base, head)))

    def _progress(self, line: str) -> None:
        self._tell(f"{line} ({summary(self.stages.take())})")

    def _observed(self, suite: Suite, variant: str, draws: Sequence[Buffers]) -> Observed:
        begin = functools.partial(self._listener, "observe", variant)
        try:
            return observe(self.families.pair(suite, variant), draws, self.device, self._codes, begin)
        except DeviceLost as lost:
            raise DeviceLost(f"{variant}@{lost.variant}", lost.reason) from lost

    def _judge_calls(self, suite: Suite, request: GroupRequest, deadline: float) -> Iterator[Verdict]:
        self._begin(request.group)
        case = suite.case(request.group.case)
        for key in request.group.cases():
            if refused := self._refuse(suite, case, key, twins=False):
                yield refused
                continue
            pair, least = self.families.pair(suite, key.variant), request.tests[key.variant].min_effect
            yield self._call_checks.judge(suite, case, key, pair, self.families.trusted, least, deadline)

    def _bench(self, suite: Suite, request: GroupRequest) -> Iterator[Verdict | Bench]:
        """Check base and head in the cases of a group. Yield the refused ones' verdicts, then a bench of the others."""
        group, case = request.group, suite.case(request.group.case)
        self._begin(group)
        if refusal := self._cannot_measure(group.quantity, suite):
            yield from (Verdict(key, "na", refusal) for key in group.cases())
            return
        timers: dict[SeriesKey, PairTimer] = {}
        for key in group.cases():
            with self.stages.stage("check"):
                refused = self._refuse(suite, case, key, request.twins)
            if refused is not None:
                yield refused
            else:
                timers[key] = self._timer(key, self.families.pair(suite, key.variant, twins=request.twins))
        if not timers:
            return
        try:
            count = self._set_count(suite, case, group.l2, [timer.contenders[1] for timer in timers.values()])
        except NotImplementedError as error:
            yield from (Verdict(key, "na", str(error)) for key in timers)
            return
        trials = {key: Trial(request.tests[key.variant], ratios_of=at_one_clock, twins=request.twins) for key in timers}
        yield Bench(suite, case, group, count, timers, trials)

    def _timer(self, key: SeriesKey, pair: Sequence[Contender]) -> PairTimer:
        meter, trusted = None, self.families.trusted
        if key.quantity != LATENCY:
            meter = self.meters.new(key.quantity, self.pace, trusted, alike=True)
        return PairTimer(pair, self.device, self.pace, trusted, self._listener_of(key.variant), meter)

    def _listener_of(self, variant: str) -> Callable[[str, str], None]:
        return lambda stage, side: self._listener(stage, variant, side)

    def _refuse(self, suite: Suite, case: Case, key: SeriesKey, twins: bool) -> Verdict | None:
        """Return a verdict if the case cannot be timed or needs no timing, else ``None``.

        With ``twins``, base takes the place of head.
        """
        base, head = (self._check(suite, case, key.variant, side) for side in (BASE, BASE if twins else HEAD))
        if isinstance(base, NotInCommit) and isinstance(head, NotInCommit):
            # The suite's import is misspelt. The variant itself does not refuse the case.
            return Verdict(key, "failed", f"base and head have no {head.lacks}", in_base=True)
        if isinstance(head, NotImplementedError):
            reason = f"head has no {head.lacks}" if isinstance(head, NotInCommit) else str(head)
            if isinstance(base, Exception):
                beside = f"; base cannot run it here: {base}" if isinstance(head, NotInCommit) else ""
                return Verdict(key, "na", f"{reason}{beside}" or "not supported")
            return Verdict(key, "removed", reason or "head does not support it any more")
        if head is not None:
            # If the case fails in base as well, the change did not break it.
            broken_before = base is not None and not isinstance(base, NotImplementedError)
            return Verdict(key, "failed", brief(head), in_base=broken_before)
        if isinstance(base, NotImplementedError):
            reason = f"base has no {base.lacks}" if isinstance(base, NotInCommit) else str(base)
            return Verdict(key, "new", reason or "base does not support it")
        if base is not None:
            unimported = isinstance(base, ImportError)
            return Verdict(key, "new", f"nothing to compare with, base failed: {brief(base)}", in_base=unimported)
        return None

    def _check(self, suite: Suite, case: Case, variant: str, side: str) -> Exception | None:
        """Return the error of checking base or head (``side``) against the reference, or ``None``."""
        contender = self.families.contender(suite, variant, side, side)
        if contender is None:
            return NotImplementedError(f"{side} has no such variant")
        try:
            self._checks.of(suite, case, contender, self.families.trusted, twice=False)
        except DeviceLost:
            raise
        except Exception as error:
            return error
        return None

    def _set_count(self, suite: Suite, case: Case, l2: str, contenders: Sequence[Contender]) -> int:
        """Return the number of argument sets that the calls of a replay use in turn, from the bytes that calls touch.

        Raise ``NotImplementedError`` if the case is too large for a warm or too small for a cold series.
        """
        sizes = self._checks.sizes(suite, case, contenders)
        largest = max(sizes.touched.values())
        if l2 == "warm" and largest > self.device.cache_bytes:
            raise NotImplementedError(f"no warm L2: the case's {largest / 1e6:.0f} MB do not fit into the cache")
        floor_s = self.floor_s(cost_of(suite, case)) or 0.0
        return sizes.count(floor_s, self.device, l2, MOST_SET_BYTES)

    def _cannot_measure(self, quantity: str, suite: Suite) -> str:
        if quantity == LATENCY:
            return ""
        if quantity == "energy" and suite.inout:
            return "its calls write their inputs, so they cannot be repeated"
        return self.meters.refusal(quantity)

    def _epoch(self, bench: Bench, keys: Sequence[SeriesKey]) -> None:
        """Time one epoch of some cases of a bench, all on one draw of buffers."""
        self._begin(bench.group)
        self._checks.forget()
        seed = self._chance.getrandbits(48)
        try:
            with self.sides.active(HEAD), self.stages.stage("draw"):
                sets = draw_sets(bench.suite, bench.case, self.device, bench.sets, seed, bench.used)
                self.device.synchronize()
            buffers = Buffers(sets, seed, bench.suite.inout)
        except torch.cuda.OutOfMemoryError:
            self.device.release()
            bench.refuse(keys, "the device has too little memory for its argument sets")
            return
        before = self._before or self.controls.take(self.device)
        with self.stages.stage("time"):
            epochs = {key: self._timed(bench, key, buffers) for key in keys}
        # A control that follows other costs may differ from one that follows replays.
        self._before = self.controls.take(self.device) if bench.group.quantity in GUARDED else None
        moved = self.controls.moved(before, self._before) if self._before else ""
        for key, epoch in epochs.items():
            if epoch is not None:
                bench.trials[key].add(epoch, moved)

    def _timed(self, bench: Bench, key: SeriesKey, buffers: Buffers) -> Measured | None:
        """Time one epoch of a case; ``None`` if base or head fails, which ends its trial."""
        trial, started = bench.trials[key], time.monotonic()
        verify = functools.partial(self._verify, bench, key, buffers.seed)
        try:
            epoch = bench.timers[key].epoch(buffers, verify if trial.count == trial.verified else None)
            self.families.require_code()
            return epoch
        except ArmFailed as failure:
            if failure.arm == BASE:
                trial.refusal = Verdict(key, "unsure", f"base cannot be timed: {failure}")
            else:
                trial.refusal = Verdict(key, "failed", f"cannot be timed: {failure}")
            if not self.device.healthy():
                raise DeviceLost(f"{key.variant}@{failure.arm}", str(failure)) from failure
            return None
        finally:
            trial.wall_s += time.monotonic() - started

    def _verify(
        self, bench: Bench, key: SeriesKey, seed: int, arms: Sequence[Arm], replays: Mapping[str, ArmReplay]
    ) -> Mapping[str, Exception]:
        """Verify an epoch's replays on other values; return the errors by side."""
        cost = "" if key.quantity == LATENCY else key.quantity
        families = {contender.arm: contender.family for contender in bench.timers[key].contenders}
        timed = [Timed(arm, replays[arm.name], families[arm.name], key.variant, cost) for arm in arms]
        verifier = Verifier(bench.suite, bench.case, self.device, self._listener_of(key.variant))
        with self.sides.active(HEAD), self.stages.stage("verify"):
            verified = verifier.verify(timed, seed)
            verifier.restore(timed, seed)  # other variants are timed on these buffers
        return verified.failures
