"""Compare base and head in a group of cases: check the results of both, then time epochs until each case is decided."""

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

from lockstep.gate.case_verdict import CHECKS, LATENCY, GroupRequest, SeriesKey, SideFacts, Verdict
from lockstep.gate.measuring.buffers import BASE, HEAD, Buffers, Contender, SideFailed
from lockstep.gate.measuring.call_checks import CallChecks
from lockstep.gate.measuring.cost_pairing import CostPairs
from lockstep.gate.measuring.decision import CaseRound, verdict_of
from lockstep.gate.measuring.observe import Observed, observe
from lockstep.gate.measuring.pairing import Epoch, Pace, run_epoch
from lockstep.gate.namespaces import Sides
from lockstep.gate.same_work.read_graph import GraphError, TritonCode
from lockstep.gate.sequential import LOOKS, Test
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
from lockstep.timing.device import Device, DeviceLost
from lockstep.timing.rules.rule import Disqualified
from lockstep.timing.rules.trusted import Trusted

_T = TypeVar("_T")

#: Epochs of a round that may be voided because a control moved; later epochs count even if a control moves.
MOST_VOID = LOOKS[0]

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
    ) -> None:
        self.sides = sides
        self.device = device
        self.pace = pace
        self._costs = costs
        self.seed = seed
        self._chance = random.Random(seed)
        self._listener = listener
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

    def judge(self, suite: Suite, request: GroupRequest) -> Iterator[Verdict]:
        """Yield the verdict of each case of a group as soon as the case is decided.

        Raises:
            DeviceLost: a call of base or head broke the CUDA context.
        """
        case, l2 = suite.case(request.group.case), request.group.l2
        deadline = time.monotonic() + request.deadline_s
        if request.group.quantity in CHECKS:
            for key in request.group.cases():
                refused, least = self._refuse(suite, case, key, twins=False), request.min_effect[key.variant]
                yield refused or self._call_checks.judge(suite, case, key, least, deadline)
            return
        contenders: dict[SeriesKey, Contender] = {}
        if refusal := self._cost_pairs().refusal(request.group.quantity, suite):
            yield from (Verdict(key, "na", refusal) for key in request.group.cases())
            return
        for key in request.group.cases():
            refused = self._refuse(suite, case, key, request.twins)
            if refused is not None:
                yield refused
            else:
                contenders[key] = self._contender(suite, key.variant, request.twins)
        if not contenders:
            return
        try:
            count = self._set_count(suite, case, l2, contenders.values())
        except NotImplementedError as error:
            yield from (Verdict(key, "na", str(error)) for key in contenders)
            return
        self._checker = None  # freed before the sets are drawn, because both may not fit in memory
        tests = {}
        for key in contenders:
            name = key.variant
            tests[key] = Test(request.min_effect[name], request.alpha[name], request.cases, request.same_within[name])
        first = {key: CaseRound(contender, tests[key]) for key, contender in contenders.items()}
        for key in self._round(suite, case, l2, count, first, deadline):
            if first[key].decision not in ("slower", "faster") or request.twins:
                yield verdict_of(key, first[key], None)
        second = {
            key: CaseRound(contenders[key], tests[key])
            for key, trial in first.items()
            if trial.decision in ("slower", "faster") and not request.twins
        }
        for key in self._round(suite, case, l2, count, second, deadline):
            yield verdict_of(key, first[key], second[key])

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
        checker = self._checker_of(suite, case)
        out = [checker.out] if checker.out is not None else list(checker.reference)
        touched = []
        for contender in contenders:
            with self.sides.active(contender.trees[HEAD]):
                arguments = checker.arguments(contender.families[HEAD], contender.name)
            touched.append(tensors_of([arguments, out]))
        sizes = [size_of(tensors) for tensors in touched]
        if l2 == "warm" and max(sizes) > self.device.cache_bytes:
            raise NotImplementedError(f"no warm L2: the case's {max(sizes) / 1e6:.0f} MB do not fit into the cache")
        floor = self._ready_controls().floor(*cost_of(suite, case)) if self.device.kind == "cuda" else 0.0
        total_bytes = size_of({id(tensor): tensor for tensors in touched for tensor in tensors}.values())
        return set_count(min(sizes), total_bytes, floor, self.device, l2)

    def _ready_controls(self) -> Controls:
        if self._controls is None:
            self._controls = Controls.of(self.device)
        return self._controls

    def _cost_pairs(self) -> CostPairs:
        self._costs = self._costs or CostPairs.on(self.device, self.pace)
        return self._costs

    def _round(
        self, suite: Suite, case: Case, l2: str, count: int, trials: Mapping[SeriesKey, CaseRound], deadline: float
    ) -> Iterator[SeriesKey]:
        """Run epochs until each case is decided or the time is up.

        Yield each key when its case is decided; at the end, yield the keys of the undecided cases.
        """
        controls = self._ready_controls() if trials else None
        undecided = dict(trials)
        while undecided and controls is not None and time.monotonic() < deadline:
            seed = self._chance.getrandbits(48)
            try:
                with self.sides.active(HEAD):
                    sets = draw_sets(suite, case, self.device, count, seed)
                buffers = Buffers(sets, self.sides, seed, suite.inout)
            except torch.cuda.OutOfMemoryError:
                self.device.release()
                break
            before = controls.take(self.device)
            verifier = Verifier(suite, case, self.device)
            epochs = {
                key: self._epoch(key.quantity, trial, buffers, verifier, seed)
                for key, trial in undecided.items()
                if time.monotonic() < deadline
            }
            # A control that follows the other costs may differ from one that follows replays.
            guarded = all(key.quantity in GUARDED for key in epochs)
            moved = controls.moved(before, controls.take(self.device)) if guarded else ""
            for key, epoch in epochs.items():
                trial = undecided[key]
                if epoch is not None and moved:
                    trial.moved += 1
                # Only a limited number of epochs is voided. A machine that never settles is measured too, and marked.
                if epoch is not None and moved and trial.voided < MOST_VOID:
                    trial.voided += 1
                elif epoch is not None:
                    trial.epochs.append(epoch)
                    trial.decision = trial.test.decide(trial.ratios)
                if trial.over:
                    del undecided[key]
                    yield key
        yield from undecided

    def _epoch(self, quantity: str, trial: CaseRound, buffers: Buffers, verifier: Verifier, seed: int) -> Epoch | None:
        contender = trial.contender
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

        verification_due = len(trial.epochs) == trial.verified
        try:
            checks = verify if verification_due else None
            if quantity == LATENCY:
                epoch = run_epoch(contender, buffers, self.device, self.pace, trial.per_call, checks)
            else:
                epoch = self._cost_pairs().epoch(quantity, contender, buffers, trial.per_call, checks)
            self._require_code()
            return epoch
        except SideFailed as failure:
            trial.failure = failure
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
