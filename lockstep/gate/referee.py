"""Judges groups of cases: both sides checked, then timed epoch by epoch until each case is decided."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

import torch

from lockstep.arms import draw_sets, set_count, size_of
from lockstep.check import Checker
from lockstep.controls import Controls
from lockstep.device import Device
from lockstep.family import Family
from lockstep.gate.client import Alone
from lockstep.gate.duel import BASE, HEAD, Buffers, Contender, Epoch, Pace, SideFailed, run_epoch, time_alone
from lockstep.gate.namespaces import Sides
from lockstep.gate.sequential import LOOKS, Decision, Test, interval, relative
from lockstep.gate.verdict import UNREACHED, Asked, SeriesKey, SideFacts, Verdict
from lockstep.inputs import tensors_of
from lockstep.measure import DeviceLost
from lockstep.suite import Case, Suite, bind

#: Epochs of a round that are thrown out because a control moved; further ones count all the same.
MOST_VOID = LOOKS[0]

#: Told before anything that may hang or crash: what is done ("check", "time"), variant and side ("" for both).
Listener = Callable[[str, str, str], None]


@dataclass
class _Trial:
    """One round of one case: its epochs so far."""

    contender: Contender
    test: Test
    epochs: list[Epoch] = field(default_factory=list)
    per_call: dict[str, float] = field(default_factory=dict)
    moved: int = 0
    decision: Decision | None = None
    failure: SideFailed | None = None
    wall_s: float = 0.0

    @property
    def ratios(self) -> list[float]:
        return [epoch.log_ratio for epoch in self.epochs]

    @property
    def over(self) -> bool:
        undecidable = len(self.epochs) >= LOOKS[-1] or self.test.hopeless(self.ratios)
        return self.decision is not None or self.failure is not None or undecidable


class Referee:
    """Judges cases on one device; keeps controls and checks for the life of the process.

    Args:
        sides: "base" and "head".
        device: where.
        pace: how long an epoch is.
        seed: of inputs, places and order.
        listener: told of each stage.
    """

    def __init__(self, sides: Sides, device: Device, pace: Pace, seed: int, listener: Listener) -> None:
        self.sides = sides
        self.device = device
        self.pace = pace
        self._chance = random.Random(seed)
        self._listener = listener
        self._controls: Controls | None = None
        self._families: dict[tuple[str, str], Family] = {}
        self._checked: dict[tuple[str, str, str, str], Exception | None] = {}
        self._checker: Checker | None = None

    def load(self, suite: Suite, side: str) -> SideFacts:
        """Import one side of a suite and say what is there."""
        try:
            family = self.sides.load_family(suite, side)
        except ModuleNotFoundError as error:
            absent = error.name is not None and f"{suite.package}.{suite.family}".startswith(error.name)
            return SideFacts(missing=absent, error="" if absent else _brief(error))
        except Exception as error:
            return SideFacts(error=_brief(error))
        self._families[suite.name, side] = family
        return SideFacts({name: self._where(function, side) for name, function in family.variants.items()})

    def judge(self, suite: Suite, asked: Asked) -> Iterator[Verdict]:
        """Verdicts of a group's cases, each as soon as it is known.

        Raises:
            DeviceLost: a side broke the CUDA context.
        """
        case, l2 = suite.case(asked.group.case), asked.group.l2
        deadline = time.monotonic() + asked.deadline_s
        contenders: dict[SeriesKey, Contender] = {}
        for key in asked.group.cases():
            refused = self._refuse(suite, case, key, asked.twins)
            if refused is not None:
                yield refused
            else:
                contenders[key] = self._contender(suite, key.variant, asked.twins)
        if not contenders:
            return
        try:
            count = self._set_count(suite, case, l2, contenders.values())
        except NotImplementedError as error:
            yield from (Verdict(key, "na", str(error)) for key in contenders)
            return
        self._checker = None  # its tensors go before the sets are drawn: both together may not fit
        tests = {key: Test(asked.min_effect[key.variant], asked.alpha[key.variant], asked.cases) for key in contenders}
        first = {key: _Trial(contender, tests[key]) for key, contender in contenders.items()}
        for key in self._round(suite, case, l2, count, first, deadline):
            if first[key].decision not in ("slower", "faster") or asked.twins:
                yield _verdict(key, first[key], None)
        again = {
            key: _Trial(contenders[key], tests[key])
            for key, trial in first.items()
            if trial.decision in ("slower", "faster") and not asked.twins
        }
        for key in self._round(suite, case, l2, count, again, deadline):
            yield _verdict(key, first[key], again[key])

    def time_alone(self, suite: Suite, asked: Alone) -> dict[str, dict[str, Any]]:
        """An epoch of one side; by variant seconds a call and rotations, or an outcome and its reason.

        Raises:
            DeviceLost: it broke the CUDA context.
        """
        case, l2 = suite.case(asked.group.case), asked.group.l2
        answer: dict[str, dict[str, Any]] = {}
        for key in asked.group.cases():
            error = self._check(suite, case, key.variant, asked.side)
            if error is not None:
                outcome = "na" if isinstance(error, NotImplementedError) else "failed"
                answer[key.variant] = {"outcome": outcome, "reason": _brief(error)}
                continue
            self._listener("time", key.variant, asked.side)
            family = self._families[suite.name, asked.side]
            contender = Contender(
                key.variant, dict.fromkeys((BASE, HEAD), family), dict.fromkeys((BASE, HEAD), asked.side)
            )
            try:
                count = self._set_count(suite, case, l2, [contender])
                with self.sides.active(asked.side):
                    sets = draw_sets(suite, case, self.device, count, asked.seed)
                buffers = Buffers(sets, self.sides, asked.seed)
                rotations = asked.rotations.get(key.variant, 0)
                seconds, rotations = time_alone(contender, buffers, self.device, self.pace, rotations)
                answer[key.variant] = {"outcome": "", "seconds": seconds, "rotations": rotations}
            except NotImplementedError as error:
                answer[key.variant] = {"outcome": "na", "reason": str(error)}
            except (SideFailed, torch.cuda.OutOfMemoryError) as error:
                self.device.release()
                answer[key.variant] = {"outcome": "failed", "reason": _brief(error)}
        return answer

    def controls_summary(self) -> dict[str, dict[str, float | str]]:
        """Median, spread and rate of each control so far."""
        return self._controls.summary() if self._controls else {}

    def _contender(self, suite: Suite, variant: str, twins: bool) -> Contender:
        trees = {BASE: BASE, HEAD: BASE if twins else HEAD}
        families = {side: self._families[suite.name, tree] for side, tree in trees.items()}
        return Contender(variant, families, trees)

    def _refuse(self, suite: Suite, case: Case, key: SeriesKey, twins: bool) -> Verdict | None:
        """A verdict if the case cannot or need not be timed."""
        base, head = (self._check(suite, case, key.variant, side) for side in (BASE, BASE if twins else HEAD))
        if isinstance(head, NotImplementedError):
            if isinstance(base, Exception):
                return Verdict(key, "na", str(head) or "not supported")
            return Verdict(key, "removed", str(head) or "head does not support it any more")
        if head is not None:
            # What base does not do right either was not broken by the change.
            broken_before = base is not None and not isinstance(base, NotImplementedError)
            return Verdict(key, "failed", _brief(head), in_base=broken_before)
        if isinstance(base, NotImplementedError):
            return Verdict(key, "new", str(base) or "base does not support it")
        if base is not None:
            return Verdict(key, "new", f"base is no measure, it failed: {_brief(base)}")
        return None

    def _check(self, suite: Suite, case: Case, variant: str, side: str) -> Exception | None:
        """What is wrong with a side's variant at a case; remembered, because cold and warm share it."""
        name = suite.name, case.label, variant, side
        family = self._families.get((suite.name, side))
        if family is None or variant not in family.variants:
            return NotImplementedError(f"{side} has no such variant")
        if name not in self._checked:
            self._listener("check", variant, side)
            self._checked[name] = None
            try:
                with self.sides.active(side):
                    self._checker_of(suite, case).error(family, variant)
            except torch.cuda.OutOfMemoryError:
                self.device.release()
                self._checked[name] = MemoryError("no room on the device for its check")
            except Exception as error:
                self._checked[name] = error
                if not isinstance(error, NotImplementedError) and not self.device.healthy():
                    raise DeviceLost(f"{variant}@{side}", _brief(error)) from error
        return self._checked[name]

    def _checker_of(self, suite: Suite, case: Case) -> Checker:
        if self._checker is None or self._checker.suite is not suite or self._checker.case != case:
            self._checker = Checker.draw(suite, case, self.device.torch_device, self._chance.getrandbits(32))
        return self._checker

    def _set_count(self, suite: Suite, case: Case, l2: str, contenders: Any) -> int:
        """Argument sets to rotate through, by what one call of each variant touches.

        Raises:
            NotImplementedError: too large to be warm or too small to be cold.
        """
        checker = self._checker_of(suite, case)
        out = [checker.out] if checker.out is not None else list(checker.reference)
        touched = []
        for contender in contenders:
            with self.sides.active(contender.trees[HEAD]):
                arguments = contender.families[HEAD].arguments(contender.name, checker.inputs)
            touched.append(tensors_of([arguments, out]))
        sizes = [size_of(tensors) for tensors in touched]
        if l2 == "warm" and max(sizes) > self.device.cache_bytes:
            raise NotImplementedError(f"its {max(sizes) / 1e6:.0f} MB do not fit the cache")
        axes = dict(case)
        cost = float(suite.flops(**bind(suite.flops, axes))), float(suite.bytes(**bind(suite.bytes, axes)))
        floor = self._ready_controls().floor(*cost) if self.device.kind == "cuda" else 0.0
        whole = size_of({id(tensor): tensor for mine in touched for tensor in mine}.values())
        return set_count(min(sizes), whole, floor, self.device, l2)

    def _ready_controls(self) -> Controls:
        if self._controls is None:
            self._controls = Controls.of(self.device)
            for _ in range(3):  # the floor is asked for before the first epoch
                self._controls.take(self.device)
        return self._controls

    def _round(
        self, suite: Suite, case: Case, l2: str, count: int, trials: Mapping[SeriesKey, _Trial], deadline: float
    ) -> Iterator[SeriesKey]:
        """Epochs for all trials until each is over or the time is; keys as they are decided."""
        controls = self._ready_controls() if trials else None
        live = dict(trials)
        while live and controls is not None and time.monotonic() < deadline:
            seed = self._chance.getrandbits(48)
            try:
                with self.sides.active(HEAD):
                    sets = draw_sets(suite, case, self.device, count, seed)
                buffers = Buffers(sets, self.sides, seed)
            except torch.cuda.OutOfMemoryError:
                self.device.release()
                break
            before = controls.take(self.device)
            taken = {key: self._epoch(trial, buffers) for key, trial in live.items() if time.monotonic() < deadline}
            moved = controls.moved(before, controls.take(self.device))
            for key, epoch in taken.items():
                trial = live[key]
                if epoch is not None and moved:
                    trial.moved += 1
                # Not void for ever: a machine that never settles is measured all the same, and marked.
                if epoch is not None and (not moved or trial.moved > MOST_VOID):
                    trial.epochs.append(epoch)
                    trial.decision = trial.test.decide(trial.ratios)
                if trial.over:
                    del live[key]
                    yield key
        yield from live

    def _epoch(self, trial: _Trial, buffers: Buffers) -> Epoch | None:
        self._listener("time", trial.contender.name, "")
        started = time.monotonic()
        try:
            return run_epoch(trial.contender, buffers, self.device, self.pace, trial.per_call)
        except SideFailed as failure:
            trial.failure = failure
            if not self.device.healthy():
                raise DeviceLost(f"{trial.contender.name}@{failure.side}", str(failure)) from failure
            return None
        finally:
            trial.wall_s += time.monotonic() - started

    def _where(self, function: Any, side: str) -> tuple[str, int]:
        """File (relative to the tree) and line of a variant; ("", 0) for what is no Python function of the tree."""
        while isinstance(function, functools.partial):
            function = function.func
        code = getattr(inspect.unwrap(function), "__code__", None)
        with contextlib.suppress(ValueError):
            if code is not None:
                return str(self.sides.relative(side, code.co_filename)), int(code.co_firstlineno)
        return "", 0


def _verdict(key: SeriesKey, first: _Trial, second: _Trial | None) -> Verdict:
    """What one or two rounds say. The last round's numbers are told: the first was picked for its difference."""
    told = second if second is not None and second.epochs else first
    epochs = first.epochs + (second.epochs if second else [])
    verdict = Verdict(
        key,
        "unsure",
        min_effect=first.test.min_effect,
        epochs=len(epochs),
        moved=first.moved + (second.moved if second else 0),
        shared=all(epoch.shared for epoch in epochs),
        wall_s=first.wall_s + (second.wall_s if second else 0.0),
    )
    failure = (second.failure if second else None) or first.failure
    if failure is not None:
        if failure.side == BASE:
            return replace(verdict, outcome="unsure", reason=f"base cannot be timed: {failure}")
        return replace(verdict, outcome="failed", reason=f"cannot be timed: {failure}")
    if not told.epochs:
        return replace(verdict, reason="controls moved in every epoch" if told.moved else UNREACHED)
    log = interval(told.ratios, first.test.alpha)
    verdict = replace(
        verdict,
        change=relative(log),
        base_s=fmean(epoch.seconds[BASE] for epoch in told.epochs),
        head_s=fmean(epoch.seconds[HEAD] for epoch in told.epochs),
    )
    if second is None:
        if first.decision == "same":
            return replace(verdict, outcome="same")
        if first.decision is not None:  # a comparison of base with itself: said, not confirmed
            return replace(verdict, outcome=first.decision, reason="one round")
        return replace(verdict, reason=_undecided(first))
    if second.decision == first.decision and first.decision is not None:
        return replace(verdict, outcome=first.decision, confirmed=True)
    seen = f"{math.expm1(fmean(first.ratios)):+.2%} in a first round"
    if second.decision == "same":
        return replace(verdict, outcome="same", reason=f"{seen}, not in the second")
    return replace(verdict, reason=f"{seen}, not confirmed by a second: {_undecided(second)}")


def _undecided(trial: _Trial) -> str:
    count = len(trial.epochs)
    if trial.test.hopeless(trial.ratios):
        return f"too noisy: {stdev(trial.ratios):.1%} from epoch to epoch, {count} epochs"
    if count >= LOOKS[-1]:
        return f"too close to call after {count} epochs"
    return f"out of time after {count} epochs"


def _brief(error: BaseException) -> str:
    """Type and first line of an error: a reason that fits a table."""
    first = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
