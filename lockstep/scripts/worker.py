"""The worker of ``--script``: runs a script of one or two versions, and measures or compares its timed calls.

Its command line is a ``lockstep.scripts.plan.Plan``. Events: ``stage``, ``told``, ``ready`` (host, clocks), ``found``
(the calls, why a script ends early, and before a comparison the shared modules that hold code under test), ``verdict``
or ``record`` (one for each call), ``controls``, ``ended`` (why a script ended early, and which points could not be set
up).

After ``found`` it waits for the request ``{"take": [numbers of calls]}``. With ``Plan.served`` further requests follow
at each of these calls, which the event ``at`` tells: ``{"output": file}`` and ``{"time"}`` any number of times, and
``{"next"}``. The script's end is at -1.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.gate.model import Verdict
from lockstep.processes.import_torch import load_torch
from lockstep.processes.worker import WorkerProcess
from lockstep.scripts.call_names import CallKey, CallName, CallNames
from lockstep.scripts.plan import BASE, HEAD, Plan

#: The side whose run of the script only counts its calls, with head's packages.
FIND = "find"

if TYPE_CHECKING:
    from lockstep.gate.namespaces import Sides
    from lockstep.scripts.closure_arms import Namespace
    from lockstep.scripts.compare_calls import CallComparer
    from lockstep.scripts.measure_call import CallMeasurer
    from lockstep.scripts.script_run import ScriptRun
    from lockstep.scripts.taken_calls import Hook
    from lockstep.scripts.timed_call import TimedCall
    from lockstep.timing.device import Device


def main() -> int:
    """Run the script and send what its calls gave; return the exit status."""
    process = WorkerProcess()
    plan = process.specification(Plan)
    load_torch()
    from lockstep.gate.namespaces import Sides
    from lockstep.gate.operators import keep_apart
    from lockstep.record.provenance import host_facts, with_clocks
    from lockstep.scripts import own_memory, replace_timers
    from lockstep.scripts.taken_calls import Hook
    from lockstep.timing.device import DeviceLost, open_device
    from lockstep.timing.tuners.choices import Choices, where_of
    from lockstep.timing.tuners.held_choices import Tuners

    local = {name: Path(folder) for name, folder in plan.local.items()}
    roots = {side: Path(version.root) for side, version in plan.sides.items()}
    roots[FIND] = roots[HEAD]
    sides = Sides(plan.packages, {**local, "__main__": Path(plan.sides[HEAD].file).parent}, **roots)
    device, facts = open_device(), host_facts()
    process.emit("ready", host=facts, clock_state=with_clocks(facts).clock_label)
    hook = Hook()
    replace_timers.install(hook)
    own_memory.install()
    take_back = keep_apart(sides, BASE, FIND)
    choices = Choices(Path(plan.tuned) if plan.tuned else None)
    tuners = Tuners(choices, device, where_of(facts), tell=process.tell)
    with tempfile.TemporaryDirectory(prefix="lockstep-script-") as folder:
        os.chdir(folder)  # what the script writes beside itself
        try:
            with tuners.held(), _stream():
                _Session(process, plan, sides, device, hook, take_back).run()
        except DeviceLost as lost:
            return process.lost(lost.variant, lost.reason)
        finally:
            os.chdir("/")
    sys.stdout.flush()
    # A library of the script may keep threads that never end.
    os._exit(0)


def _stream() -> AbstractContextManager[Any]:
    """Return a context in which all work of a thread runs on the stream of captures.

    Autograd runs a backward pass on the stream of the forward pass. A capture allows that only on its own stream.
    """
    import torch

    if not torch.cuda.is_available():
        return nullcontext()
    graph = torch.cuda.graph
    graph.default_capture_stream = graph.default_capture_stream or torch.cuda.Stream()
    return torch.cuda.stream(graph.default_capture_stream)


@dataclass
class _Session:
    """Runs the script once to count its calls, then once for each version, call by call."""

    process: WorkerProcess
    plan: Plan
    sides: Sides
    device: Device
    hook: Hook
    take_back: Callable[[str], None]

    def __post_init__(self) -> None:
        self._left_s = self.plan.budget_s
        self._requests = self.process.requests()
        self._sharers: list[str] = []
        self._names = CallNames(())
        self._numbers: dict[CallName, int] = {}
        self._chosen: frozenset[int] = frozenset()
        self._runs: dict[str, ScriptRun] = {}
        self._number = -1

    def run(self) -> None:
        """Find the calls, then measure or compare those that the parent takes, while the time allows."""
        self.process.stage("find", "")
        found, error = self._find(FIND)
        compare, served = BASE in self.plan.sides, self.plan.served
        # The script may end before its comparison reaches the place where head's ends early.
        errors = {HEAD: error, BASE: self._find(BASE)[1] if error and compare else ""}
        self._names = CallNames(found)
        self._numbers = {self._names.of(key): number for number, key in enumerate(found)}
        calls = [name.labels for name in self._numbers]
        self.process.emit("found", calls=calls, errors=errors, sharers=self._sharers)
        self._chosen = frozenset(next(self._requests, {"take": ()})["take"])
        alone = self._serve if served else self._write if self.plan.adopt else self._measure
        if self._chosen:
            (self._compare if compare else alone)()
        for run in self._runs.values():
            run.stop()
        errors = {side: run.error for side, run in self._runs.items()}
        refused = {
            side: {number: why for key, why in run.refused.items() if (number := self._number_of(key)) is not None}
            for side, run in self._runs.items()
        }
        if served:
            self.process.emit("at", number=-1, error=errors.get(HEAD, ""), refused=refused.get(HEAD, {}))
        self.process.emit("ended", errors=errors, refused=refused)

    def _new(self, side: str, wanted: Callable[[CallKey], bool]) -> ScriptRun:
        from lockstep.scripts.script_run import ScriptRun

        file = Path(self.plan.sides[HEAD if side == FIND else side].file)
        return ScriptRun(file, self.plan.arguments, self.hook, wanted, _stream())

    def _number_of(self, key: CallKey) -> int | None:
        """Return the number of a call among those of head's script; ``None`` for a call that only base makes."""
        return self._numbers.get(self._names.of(key))

    def _is_chosen(self, key: CallKey) -> bool:
        return self._number_of(key) in self._chosen

    def _find(self, side: str) -> tuple[list[CallKey], str]:
        """Return the calls that a side's script makes, and why it ends early. Nothing is measured, no point is set up.

        The modules that this run imports are dropped, and the operators that they register. Otherwise head's imports
        would be over when its calls are compared, and those of base would not: a module that sets a seed would give
        them other inputs.
        """
        keys: list[CallKey] = []

        def counted(key: CallKey) -> bool:
            keys.append(key)
            return False

        run = self._new(side, counted)
        while (call := self._advance(run, side)) is not None:
            keys.append(call.key)
        if BASE in self.plan.sides:  # looks at all modules
            self._sharers = self.sides.sharers()
        self.sides.forget(side)
        self.take_back(side)
        return keys, run.error

    def _advance(self, run: ScriptRun, side: str, milliseconds: float = 1.0) -> TimedCall | None:
        self.process.stage("load", f"@{side}")
        with self.sides.active(side):
            return run.advance(milliseconds)

    @contextlib.contextmanager
    def _spending(self, number: int) -> Iterator[None]:
        """Take the time of the block from the budget; add the call's number to an error of a broken device."""
        from lockstep.timing.device import DeviceLost

        started, self._number = time.monotonic(), number
        try:
            yield
        except DeviceLost as lost:
            raise DeviceLost(f"{number}@{lost.variant}", lost.reason) from lost
        finally:
            self._left_s -= time.monotonic() - started

    def _measurer(self) -> CallMeasurer:
        from lockstep.gate.measuring.pairing import pace_on
        from lockstep.scripts.measure_call import CallMeasurer

        pace = pace_on(self.device, quick=self.plan.quick)
        return CallMeasurer(self.device, pace, self.plan.version, partial(self.sides.active, HEAD))

    def _measure(self) -> None:
        from lockstep.scripts.measure_call import EPOCHS

        plan, measurer = self.plan, self._measurer()

        def measure(number: int, call: TimedCall) -> float:
            record = measurer.measure(plan.key(self._names.labels(call.key)), call, 1 if plan.quick else EPOCHS)
            self.process.emit("record", number=number, record=asdict(record))
            return record.latency.value * 1e3 if record.latency else 1.0

        self._each("time", measure)

    def _serve(self) -> None:
        """Let the parent decide at each call how often it is timed."""
        from lockstep.scripts.compare_outputs import compare_with_file

        plan, measurer, self._left_s = self.plan, self._measurer(), math.inf

        def serve(number: int, call: TimedCall) -> float:
            self.process.emit("at", number=number, place=call.place)
            for request in self._requests:
                if "next" in request:
                    break
                self.process.stage("check" if "output" in request else "time", str(number))
                if "output" in request:
                    file, keep = Path(request["output"]), request.get("keep", ())
                    output = compare_with_file(call, measurer.namespace, file, keep, self.plan.scratch)
                    self.process.emit("output", **output)
                else:
                    record = measurer.measure(plan.key(self._names.labels(call.key)), call, 1)
                    self.process.emit("record", record=asdict(record))
            return 1.0

        self._each("check", serve)

    def _write(self) -> None:
        from lockstep.scripts.adopted_suite import Adoption

        adoption = Adoption(self.plan.local, self.plan.packages, self.device.torch_device)

        def write(number: int, call: TimedCall) -> float:
            with self.sides.active(HEAD):
                adoption.add(self._names.of(call.key), call)
            return 1.0

        self._each("check", write)
        text = adoption.text(Path(self.plan.sides[HEAD].file).name, [*self._numbers])
        self.process.emit("adopted", text=text, left_out=adoption.left_out)

    def _each(self, stage: str, take: Callable[[int, TimedCall], float]) -> None:
        """Run head's script, and let ``take`` deal with each chosen call while the time allows; it returns ms."""
        self._runs[HEAD] = run = self._new(HEAD, self._is_chosen)
        milliseconds = 1.0
        while self._left_s > 0 and (call := self._advance(run, HEAD, milliseconds)) is not None:
            known, milliseconds = self._number_of(call.key), 1.0
            number = -1 if known is None else known
            if number > max(self._chosen):
                break  # no later call is asked for
            if number in self._chosen:
                self.process.stage(stage, str(number))
                with self._spending(number):
                    milliseconds = take(number, call)
            del call

    def _compare(self) -> None:
        """Run both scripts, which wait for each other, and compare each chosen call while the time allows."""
        self._runs = {
            # A point that only base has is set up, to be told.
            BASE: self._new(BASE, lambda key: self._number_of(key) is None or self._is_chosen(key)),
            HEAD: self._new(HEAD, self._is_chosen),
        }
        comparer, left = self._comparer(), len(self._chosen)
        calls = {side: self._advance(run, side) for side, run in self._runs.items()}
        position = -1
        while any(calls.values()) and self._left_s > 0:
            base, head = calls[BASE], calls[HEAD]
            # A call that only one version makes: that version's script goes on alone.
            alone = self._alone(base, head)
            known = base if alone == BASE else head
            assert known is not None
            if position >= max(self._chosen) and not alone:
                break  # no later call is asked for
            number = self._number_of(known.key)
            number = position + (alone != BASE) if number is None else number
            position = position if alone == BASE else number
            key, answers = self.plan.key(self._names.labels(known.key)), {BASE: 1.0, HEAD: 1.0}
            if alone:
                other = BASE if alone == HEAD else HEAD
                refused = map(self._names.of, self._runs[other].refused)
                if self._names.of(known.key) not in refused:  # a failed set-up is told at the end
                    error = self._runs[other].error
                    lacks = f"{other}'s script {f'ended early: {error}' if error else 'makes no such call'}"
                    self._tell(number, Verdict(key, "new" if alone == HEAD else "removed", lacks))
            elif number in self._chosen:
                assert base is not None
                assert head is not None
                # Most calls need seconds; a slow one may take half of what is left, and another then gets no verdict.
                seconds = max(self._left_s / (2 if left > 1 else 1), self.plan.least_s)
                left -= 1
                with self._spending(number):
                    verdict = comparer.compare(key, base, head, seconds)
                answers = {BASE: (verdict.base_s or 1e-3) * 1e3, HEAD: (verdict.head_s or 1e-3) * 1e3}
                self._tell(number, verdict)
            del base, head, known
            for side in [alone] if alone else [BASE, HEAD]:
                calls[side] = None  # its buffers are free before the script goes on
                calls[side] = self._advance(self._runs[side], side, answers[side])
        self.process.emit("controls", controls=comparer.controls_summary())

    def _comparer(self) -> CallComparer:
        from lockstep.gate.measuring.pairing import pace_on
        from lockstep.scripts.compare_calls import CallComparer

        def stage(name: str, side: str) -> None:
            self.process.stage(name, f"{self._number}@{side}" if side else str(self._number))

        pace = pace_on(self.device, quick=self.plan.quick)
        namespaces: dict[str, Namespace] = {side: partial(self.sides.active, side) for side in (BASE, HEAD)}
        cases = len(self.plan.selected([name.labels for name in self._numbers]))
        return CallComparer(self.device, pace, self.plan, cases, namespaces, stage)

    def _tell(self, number: int, verdict: Verdict) -> None:
        self.process.emit("verdict", number=number, verdict=asdict(verdict))

    def _alone(self, base: TimedCall | None, head: TimedCall | None) -> str:
        """Return the side whose call the other side does not make next; "" if both make the same call."""
        if base is None or head is None:
            return HEAD if base is None else BASE
        if self._names.of(base.key) == self._names.of(head.key):
            return ""
        place = self._number_of(base.key)
        return BASE if place is None or place < (self._number_of(head.key) or 0) else HEAD


if __name__ == "__main__":
    sys.exit(main())
