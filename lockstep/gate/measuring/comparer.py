"""Compare base and head in groups of cases: check the results of both, observe their work, time epochs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch

from lockstep.gate.case_verdict import CHECKS, LATENCY, Group, GroupRequest, SeriesKey, SideFacts, Verdict
from lockstep.gate.measuring.buffers import BASE, HEAD, Buffers, Contender, SideFailed
from lockstep.gate.measuring.call_checks import CallChecks
from lockstep.gate.measuring.cost_pairing import CostPairs
from lockstep.gate.measuring.observe import Observed, observe
from lockstep.gate.measuring.pairing import Pace, at_one_clock, run_epoch
from lockstep.gate.measuring.schedule import Bench, Scatter, Schedule
from lockstep.gate.namespaces import Sides
from lockstep.gate.same_work.read_graph import GraphError, TritonCode
from lockstep.gate.sequential import Test
from lockstep.gate.trial import Measured, Trial
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import cost_of
from lockstep.suite.inputs import tensors_of
from lockstep.suite.variants import Family, NotInCommit
from lockstep.timing.arms.argument_sets import draw_sets, set_count, size_of
from lockstep.timing.arms.bound_arms import Arm, ArmReplay
from lockstep.timing.arms.verify_replays import Timed, Verifier
from lockstep.timing.checks.check import Checker, brief, without_frames
from lockstep.timing.controls import Controls
from lockstep.timing.device import Device, DeviceLost, Timing
from lockstep.timing.rules.rule import Disqualified
from lockstep.timing.rules.trusted import Trusted

_T = TypeVar("_T")

#: Draws of the inputs on which base and head are captured to compare their work.
DRAWS = 2

#: Quantities whose epochs end with replays, so that a control can show whether the machine changed during them.
GUARDED = (LATENCY, "behind")

#: Called before each step that may hang or crash, with the stage ("check", "time"), variant and side ("" for both).
Listener = Callable[[str, str, str], None]


class Comparer:
    """Compares base and head on one device. Stores controls and results of checks for the life of the process.

    Args:
        sides: the trees "base" and "head".
        seed: seed of inputs, placement of buffers, and order.
        listener: called before each step that may hang or crash.
        begin: called with the group of each case before the case is checked or timed.
        tell: called with lines of progress.
        costs: measures quantities other than the latency; by default those that the device can measure.
    """

    def __init__(
        self,
        sides: Sides,
        device: Device,
        pace: Pace,
        seed: int,
        listener: Listener,
        costs: CostPairs | None = None,
        begin: Callable[[Group], None] = lambda group: None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.sides = sides
        self.device = device
        self.pace = pace
        self._costs = costs
        self.seed = seed
        self._chance = random.Random(seed)
        self._listener = listener
        self._begin = begin
        self._tell = tell
        self._scatter = Scatter()
        self._before: dict[str, Timing] | None = None
        self._touched: dict[tuple[str, str, tuple[str, ...]], tuple[list[int], int]] = {}
        self._controls: Controls | None = None
        self._families: dict[tuple[str, str], Family] = {}
        self._checked: dict[tuple[str, str, str, str], Exception | None] = {}
        self._call_checks = CallChecks(self._families, self._call, self._checker_of)
        self._checker: Checker | None = None
        self._trusted = Trusted()
        self._codes = TritonCode.listening() if device.kind == "cuda" else TritonCode()

    def load(self, suite: Suite, side: str) -> SideFacts:
        """Import a suite's variants from base or head (``side``); return them, or why the import fails."""
        try:
            family = self.sides.load_family(suite, side)
        except NotInCommit:
            return SideFacts(missing=True)
        except Exception as error:
            return SideFacts(error=brief(error))
        self._families[suite.name, side] = family
        self._trusted.accept_settings()
        self._trusted = self._trusted.with_variants(family.variants)
        return SideFacts({name: self._where(function, side) for name, function in family.variants.items()})

    def judge(self, asked: Sequence[tuple[Suite, GroupRequest]]) -> Iterator[Verdict]:
        """Yield the verdict of each case of some groups as soon as the case is decided.

        Groups that calls decide come first. The epochs of all others are scheduled together
        (``lockstep.gate.measuring.schedule``), until the first deadline of a request.

        Raises:
            DeviceLost: a call of base or head broke the CUDA context.
        """
        started = time.monotonic()
        timed = []
        for suite, request in asked:
            if request.group.quantity not in CHECKS:
                timed.append((suite, request))
                continue
            for key in request.group.cases():
                self._begin(request.group)
                case, deadline = suite.case(request.group.case), started + request.deadline_s
                refused, least = self._refuse(suite, case, key, twins=False), request.min_effect[key.variant]
                yield refused or self._call_checks.judge(suite, case, key, least, deadline)
        if timed:
            deadline = started + min(request.deadline_s for _, request in timed)
            yield from Schedule(self._bench, self._epoch, self._scatter, self._tell).run(timed, deadline)

    def _bench(self, suite: Suite, request: GroupRequest) -> Iterator[Verdict | Bench]:
        """Check base and head in the cases of a group. Yield the refused ones' verdicts, then a bench of the others."""
        group, case = request.group, suite.case(request.group.case)
        self._begin(group)
        if refusal := self._cost_pairs().refusal(group.quantity, suite):
            yield from (Verdict(key, "na", refusal) for key in group.cases())
            return
        contenders: dict[SeriesKey, Contender] = {}
        for key in group.cases():
            refused = self._refuse(suite, case, key, request.twins)
            if refused is not None:
                yield refused
            else:
                contenders[key] = self._contender(suite, key.variant, request.twins)
        if not contenders:
            return
        try:
            count = self._set_count(suite, case, group.l2, contenders.values())
        except NotImplementedError as error:
            yield from (Verdict(key, "na", str(error)) for key in contenders)
            return
        trials = {}
        for key in contenders:
            name = key.variant
            test = Test(request.min_effect[name], request.alpha[name], request.cases, request.same_within[name])
            trials[key] = Trial(test, ratios_of=at_one_clock, twins=request.twins)
        yield Bench(suite, case, group, count, contenders, trials)

    def observe(self, suite: Suite, label: str, variants: Sequence[str]) -> Iterator[tuple[str, Observed]]:
        """Yield for each variant what captured graphs say of base and head at a case; see ``lockstep.gate.same_work``.

        Raises:
            DeviceLost: a call of base or head broke the CUDA context.
        """
        case = suite.case(label)
        try:
            with self.sides.active(HEAD):
                seeds = [self._chance.getrandbits(48) for _ in range(DRAWS)]
                sets = {seed: draw_sets(suite, case, self.device, 1, seed) for seed in seeds}
            draws = [Buffers(argument_sets, self.sides, seed, suite.inout) for seed, argument_sets in sets.items()]
        except torch.cuda.OutOfMemoryError:
            self.device.release()
            yield from ((name, Observed("the device has too little memory to capture it")) for name in variants)
            return
        for name in variants:
            yield name, self._observed(self._contender(suite, name, twins=False), draws)

    def _observed(self, contender: Contender, draws: Sequence[Buffers]) -> Observed:
        try:
            return self._trusted.guarded(
                lambda: observe(
                    contender,
                    draws,
                    self.device,
                    self._codes,
                    lambda side: self._listener("observe", contender.name, side),
                )
            )
        except SideFailed as failure:
            self.device.release()
            if not self.device.healthy():
                raise DeviceLost(f"{contender.name}@{failure.side}", str(failure)) from failure
            return Observed(f"{failure.side} cannot be captured: {failure}")
        except torch.cuda.OutOfMemoryError:
            self.device.release()
            return Observed("the device has too little memory to capture it")
        except (GraphError, Disqualified) as error:
            return Observed(brief(error))

    def controls_summary(self) -> dict[str, dict[str, float | str]]:
        """Return median, spread and rate of each control (a fixed kernel that shows whether the machine is steady)."""
        return self._controls.summary() if self._controls else {}

    def _contender(self, suite: Suite, variant: str, twins: bool) -> Contender:
        trees = {BASE: BASE, HEAD: BASE if twins else HEAD}
        families = {side: self._families[suite.name, tree] for side, tree in trees.items()}
        return Contender(variant, families, trees)

    def _refuse(self, suite: Suite, case: Case, key: SeriesKey, twins: bool) -> Verdict | None:
        """Return a verdict if the case cannot be timed or needs no timing, else ``None``.

        With ``twins``, base takes the place of head.
        """
        base, head = (self._check(suite, case, key.variant, side) for side in (BASE, BASE if twins else HEAD))
        if isinstance(base, NotInCommit) and isinstance(head, NotInCommit):
            # The suite's import is misspelt. The variant itself does not refuse the case.
            return Verdict(key, "failed", f"base and head have no {head.lacks}", in_base=True)
        if isinstance(head, NotImplementedError):
            if isinstance(base, Exception):
                return Verdict(key, "na", str(head) or "not supported")
            reason = f"head has no {head.lacks}" if isinstance(head, NotInCommit) else str(head)
            return Verdict(key, "removed", reason or "head does not support it any more")
        if head is not None:
            # If the case fails in base as well, the change did not break it.
            broken_before = base is not None and not isinstance(base, NotImplementedError)
            return Verdict(key, "failed", brief(head), in_base=broken_before)
        if isinstance(base, NotImplementedError):
            reason = f"base has no {base.lacks}" if isinstance(base, NotInCommit) else str(base)
            return Verdict(key, "new", reason or "base does not support it")
        if base is not None:
            return Verdict(key, "new", f"nothing to compare with, base failed: {brief(base)}")
        return None

    def _check(self, suite: Suite, case: Case, variant: str, side: str) -> Exception | None:
        """Return the error of checking base or head (``side``) against the reference, or ``None``."""
        name = suite.name, case.label, variant, side
        family = self._families.get((suite.name, side))
        if family is None or variant not in family.variants:
            return NotImplementedError(f"{side} has no such variant")
        if name not in self._checked:
            self._checked[name] = None
            try:
                self._call(variant, side, lambda: self._checker_of(suite, case).accuracy(family, variant))
            except torch.cuda.OutOfMemoryError:
                self._checked[name] = MemoryError("the device has too little memory for its check")
            except DeviceLost:
                raise
            except Exception as error:
                self._checked[name] = without_frames(error)
        return self._checked[name]

    def _call(self, variant: str, side: str, check: Callable[[], _T]) -> _T:
        """Run ``check`` with the modules of base or head (``side``) and return its result.

        Raises:
            torch.cuda.OutOfMemoryError: the device has too little memory; the cached memory is released.
            DeviceLost: the check broke the CUDA context.
        """
        self._listener("check", variant, side)
        try:
            with self.sides.active(side):
                return self._trusted.guarded(check)
        except torch.cuda.OutOfMemoryError:
            self.device.release()
            raise
        except NotImplementedError:
            raise
        except Exception as error:
            if not self.device.healthy():
                raise DeviceLost(f"{variant}@{side}", brief(error)) from error
            raise

    def _checker_of(self, suite: Suite, case: Case, *, fresh: bool = False) -> Checker:
        """Return a case's checker, which holds inputs and reference; with ``fresh``, a checker with other inputs."""
        if fresh:
            self._checker = None  # freed before the next draw, because both may not fit in memory
        if self._checker is None or self._checker.suite is not suite or self._checker.case != case:
            self._checker = Checker.draw(suite, case, self.device.torch_device, self._chance.getrandbits(32))
        return self._checker

    def _set_count(self, suite: Suite, case: Case, l2: str, contenders: Any) -> int:
        """Return the number of argument sets that the calls of a replay use in turn, from the bytes that calls touch.

        Raises:
            NotImplementedError: the case is too large for a warm or too small for a cold series.
        """
        known = suite.name, case.label, tuple(contender.name for contender in contenders)
        if known not in self._touched:
            checker = self._checker_of(suite, case)
            out = [checker.out] if checker.out is not None else list(checker.reference)
            touched = []
            for contender in contenders:
                with self.sides.active(contender.trees[HEAD]):
                    arguments = checker.arguments(contender.families[HEAD], contender.name)
                touched.append(tensors_of([arguments, out]))
            together = {id(tensor): tensor for tensors in touched for tensor in tensors}
            self._touched[known] = [size_of(tensors) for tensors in touched], size_of(together.values())
        sizes, total_bytes = self._touched[known]
        if l2 == "warm" and max(sizes) > self.device.cache_bytes:
            raise NotImplementedError(f"no warm L2: the case's {max(sizes) / 1e6:.0f} MB do not fit into the cache")
        floor = self._ready_controls().floor(*cost_of(suite, case)) if self.device.kind == "cuda" else 0.0
        return set_count(min(sizes), total_bytes, floor, self.device, l2)

    def _ready_controls(self) -> Controls:
        if self._controls is None:
            self._controls = Controls.of(self.device)
        return self._controls

    def _cost_pairs(self) -> CostPairs:
        self._costs = self._costs or CostPairs.on(self.device, self.pace)
        return self._costs

    def _epoch(self, bench: Bench, keys: Sequence[SeriesKey]) -> None:
        """Time one epoch of some cases of a bench, all on one draw of buffers."""
        self._begin(bench.group)
        self._checker = None  # freed before the sets are drawn, because both may not fit in memory
        seed = self._chance.getrandbits(48)
        try:
            with self.sides.active(HEAD):
                sets = draw_sets(bench.suite, bench.case, self.device, bench.sets, seed)
            buffers = Buffers(sets, self.sides, seed, bench.suite.inout)
        except torch.cuda.OutOfMemoryError:
            self.device.release()
            bench.refuse(keys, "the device has too little memory for its argument sets")
            return
        # A control that follows other costs may differ from one that follows replays.
        guarded = bench.group.quantity in GUARDED
        controls = self._ready_controls()
        before = self._before or controls.take(self.device)
        verifier = Verifier(bench.suite, bench.case, self.device)
        epochs = {key: self._timed(bench, key, buffers, verifier, seed) for key in keys}
        self._before = controls.take(self.device) if guarded else None
        moved = controls.moved(before, self._before) if self._before else ""
        for key, epoch in epochs.items():
            if epoch is not None:
                bench.add(key, epoch, moved)

    def _timed(self, bench: Bench, key: SeriesKey, buffers: Buffers, verifier: Verifier, seed: int) -> Measured | None:
        """Time one epoch of a case; ``None`` if base or head fails, which ends its trial."""
        contender, trial, quantity = bench.contenders[key], bench.trials[key], key.quantity
        self._listener("time", contender.name, "")
        started = time.monotonic()

        def verify(arms: Mapping[str, Arm], replays: Mapping[str, ArmReplay]) -> Mapping[str, Exception]:
            cost = "" if quantity == LATENCY else quantity
            timed = [
                Timed(arms[side], replay, contender.families[side], contender.name, cost)
                for side, replay in replays.items()
            ]
            pair_verifier = replace(
                verifier,
                active=lambda side: self.sides.active(contender.trees[side]),
                listener=lambda stage, side: self._listener(stage, contender.name, side),
            )
            with self.sides.active(HEAD):
                verified = pair_verifier.verify(timed, seed)
                pair_verifier.restore(timed, seed)  # other variants are timed on these buffers
            return verified.failures

        per_call = bench.per_call.setdefault(key, {})
        try:
            checks = verify if trial.count == trial.verified else None
            if quantity == LATENCY:
                epoch = run_epoch(contender, buffers, self.device, self.pace, per_call, checks)
            else:
                epoch = self._cost_pairs().epoch(quantity, contender, buffers, per_call, checks)
            self._require_code()
            return epoch
        except SideFailed as failure:
            if failure.side == BASE:
                trial.refusal = Verdict(key, "unsure", f"base cannot be timed: {failure}")
            else:
                trial.refusal = Verdict(key, "failed", f"cannot be timed: {failure}")
            if not self.device.healthy():
                raise DeviceLost(f"{contender.name}@{failure.side}", str(failure)) from failure
            return None
        finally:
            trial.wall_s += time.monotonic() - started

    def _require_code(self) -> None:
        """Raise ``SideFailed`` for head if code was replaced at run time: base is trusted, so head replaced it."""
        try:
            self._trusted.require()
        except Disqualified as changed:
            raise SideFailed(HEAD, brief(changed)) from changed

    def _where(self, function: Any, side: str) -> tuple[str, int]:
        """Return a variant's file, relative to the tree, and line; ("", 0) if no Python code of the tree defines it."""
        function = inspect.unwrap(function)
        while isinstance(function, functools.partial):
            function = inspect.unwrap(function.func)
        code = getattr(function, "__code__", None)
        with contextlib.suppress(ValueError):
            if code is not None:
                return str(self.sides.relative(side, code.co_filename)), int(code.co_firstlineno)
        return "", 0
