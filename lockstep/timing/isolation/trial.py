"""One contestant: a process that runs one variant at one case, on buffers that it shares with its judge.

One run has these steps: stop the contestant's processes, draw other values into every set, fill the outputs with NaN,
and let the contestant continue. Ask the contestant for one call on each of the first n sets, copy the outputs of a few
sets that only the judge knows, and stop the clock. The copies are compared with the reference, so an answer given too
early gains nothing.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import torch

from lockstep.processes.template import Template
from lockstep.processes.watched_worker import Watched
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import inputs_of
from lockstep.suite.inputs import Draw, map_tensors, tensors_of
from lockstep.timing.arms.argument_sets import size_of
from lockstep.timing.checks.check import Checker, WrongResult, bits_of
from lockstep.timing.checks.outputs import poison, span
from lockstep.timing.device import Device
from lockstep.timing.isolation.arena import Arena, Layout, SharedBuffer, decode, encode
from lockstep.timing.rules.rule import Disqualified, Rule
from lockstep.timing.stage_times import Stages

#: Number of runs without code under test, of runs with a call on every set, and of runs of each shorter length.
IDLE_RUNS, RUNS, SHORT_RUNS = 4, 5, 2

#: Maximum number of sets of a run, and the bytes that all sets may take, by kind of device. On an H200 a run costs
#: 0.7 ms besides its calls, give or take 0.05 ms, so a call of 10 µs needs hundreds of sets. Repeated calls on the same
#: values are no substitute: a contestant could skip them.
MOST_SETS = {"cpu": 128, "cuda": 512}
ARENA_BYTES = {"cpu": 32 << 20, "cuda": 6 << 30}

#: Sets of a run whose outputs are compared; the contestant does not know which.
SAMPLED = 3


class Launcher(Protocol):
    """How to start the process that runs the code under test, and how long it may stay silent."""

    @property
    def module(self) -> str:
        """Return the module that the process runs; it calls ``lockstep.timing.isolation.contestant_process.serve``."""

    @property
    def silence_s(self) -> float:
        """Return the seconds without an answer after which the process counts as hung and is killed."""

    def arguments(self, suite: str, variant: str) -> list[str]:
        """Return the command line arguments with which the process runs a variant, without ``--scratch``."""


class Refused(RuntimeError):
    """The process that runs one variant cannot run that variant; the message says why."""


class Trial:
    """Runs one contestant, the process of one variant, on buffers shared with this process, until ``stack`` closes."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        suite: Suite,
        case: Case,
        variant: str,
        device: Device,
        stages: Stages,
        most_sets: int | None = None,
    ) -> None:
        self._stack, self._stages = stack, stages
        self.suite, self.case, self.variant, self.device = suite, case, variant, device
        self._chance = random.SystemRandom()
        self._inout: tuple[str, ...] = getattr(suite, "inout", ())
        #: Seconds of runs without code under test.
        self.idle_s: list[float] = []
        first = Checker.draw(suite, case, device.torch_device, self._chance.getrandbits(63))
        self._first = first.inputs
        outputs = first.out if _alike(tensors_of(first.out), first.reference) else [_plain(t) for t in first.reference]
        size = size_of(tensors_of([first.inputs, outputs]))
        sets = min(most_sets or MOST_SETS[device.kind], arena_bytes(device) // max(size, 1)) // 2 * 2
        if sets < 2:
            raise NotImplementedError(
                f"an isolated run needs two sets of arguments; two of {size / 1e6:.0f} MB do not fit its buffers"
            )
        short = range(max(1, sets // 4), sets // 2 + 1)
        self.lengths = (*sorted(self._chance.sample(short, min(2, len(short)))), sets)
        self.layout = Layout()
        self._shapes = {name: _shape(value) for name, value in first.inputs.items()}
        self._texts = []
        for _ in range(sets):
            inputs, out = encode(first.inputs, self.layout.place), encode(first.out, self.layout.place)
            results = out if outputs is first.out else encode(outputs, self.layout.place)
            self._texts.append({"dict": [["inputs", inputs], ["out", out], ["results", results]]})

    def start(self, launcher: Launcher, shared: SharedBuffer, template: Template | None, scratch: Path) -> None:
        """Start the contestant, the process that runs the variant, and share the buffers with it."""
        with self._stages.stage("start"):
            self._arena = Arena(self.layout, shared)
            self._sets = [decode(text, shared.bytes) for text in self._texts]
            self._worker = self._contestant(launcher, scratch, shared.fds, template)
            self._stack.callback(self._worker.close, patience_s=0.0)
            self._worker.wait("up")
            self._worker.ask({"address": shared.address, "sets": self._texts})
            self._answer("idle")

    def idle(self) -> None:
        """Time runs that make no calls: the judge draws and copies as in other runs, but no code under test runs."""
        for _ in range(IDLE_RUNS):
            checkers = self._draw_sets(self.lengths[-1], self._shapes)
            with self._stages.stage("run"):
                self.idle_s.append(self._timed({"idle": 0}, list(checkers))[0])

    def load(self) -> None:
        """Let the contestant process import the code under test."""
        with self._stages.stage("import"):
            self._worker.ask({"load": self.variant})
            ready = self._answer("ready")
        # Activations are drawn after the preparation, even if the preparation takes them as inputs.
        prepared = [name for name in self._first if name in ready["prepares"] and name not in self.suite.activations]
        self._prepared = frozenset(prepared)
        self.notes = tuple(str(reason) for reason in ready["missing"])
        if prepared and all(name in self._prepared for name, value in self._first.items() if tensors_of(value)):
            self.notes += ("it prepares from every input, so its preparation may do the work of the timed call",)

    def _contestant(self, launcher: Launcher, scratch: Path, fds: Sequence[int], template: Template | None) -> Watched:
        folders = {"TMPDIR": "", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
        environment = {**os.environ, **{name: str(scratch / folder) for name, folder in folders.items()}}
        return Watched(
            launcher.module,
            [*launcher.arguments(self.suite.name, self.variant), "--scratch", str(scratch)],
            launcher.silence_s,
            environment=environment,
            pass_fds=fds,
            template=template,
        )

    def set_up(self) -> None:
        """Let the contestant process compile and capture the variant, on values that no run uses again."""
        with self._stages.stage("draw"), _one_thread(self.device):
            for argument_set in self._sets:
                self._fill(argument_set, self._draw(self._seed()), self._shapes)
            self.device.synchronize()
        with self._stages.stage("set up"):
            self._ask({"setup": self.lengths})

    def order(self) -> list[int]:
        """Return the numbers of calls of the next runs, in a random order that code under test cannot foresee."""
        lengths = [length for length in self.lengths for _ in range(RUNS if length == self.lengths[-1] else SHORT_RUNS)]
        self._chance.shuffle(lengths)
        return lengths

    def run(self, length: int) -> float:
        """Return the seconds of one call of the variant on each of ``length`` sets of new values; check some outputs.

        Raises the errors of ``Judge.judge``.
        """
        # Inputs of the preparation are drawn first: the preparation must not see the other inputs.
        checkers = self._draw_sets(length, self._prepared or self._shapes)
        if self._prepared:
            with self._stages.stage("prepare"):
                self._ask({"prepare": length})
            with self._stages.stage("draw"), self._worker.paused(), _one_thread(self.device):
                for number, seed in enumerate(self._seeds):
                    # The values of all sets would need as much memory as the sets.
                    values = checkers[number].inputs if number in checkers else self._draw(seed)
                    self._fill(self._sets[number], values, self._shapes.keys() - self._prepared)
                self.device.synchronize()
        with self._stages.stage("run"):
            seconds, outputs = self._timed({"run": length}, list(checkers))
        with self._stages.stage("compare"):
            for number, checker in checkers.items():
                self._compare(number, checker, outputs[number])
            if not self._arena.intact():
                raise Disqualified(Rule.WRITTEN_INPUT, f"{self.variant} wrote outside of its buffers")
        return seconds

    def _draw_sets(self, length: int, names: Container[str]) -> dict[int, Checker]:
        """Draw other values of the named inputs into the first sets, and fill their outputs with NaN.

        Returns:
            The checkers of a few sets, by the number of the set. Only the judge knows which sets.
        """
        sampled = self._chance.sample(range(length), min(SAMPLED, length))
        self._seeds = [self._seed() for _ in range(length)]
        checkers: dict[int, Checker] = {}
        with self._stages.stage("draw"), self._worker.paused(), _one_thread(self.device):
            for number, seed in enumerate(self._seeds):
                argument_set, values = self._sets[number], self._draw(seed)
                self._fill(argument_set, values, names)
                for result in tensors_of([argument_set["out"], argument_set["results"]]):
                    poison(result)
                if number in sampled:
                    checkers[number] = Checker.of(self.suite, self.case, values)
            self.device.synchronize()
        return checkers

    def _timed(self, request: dict[str, Any], sampled: Sequence[int]) -> tuple[float, dict[int, list[torch.Tensor]]]:
        """Send a request, then copy the outputs of the sets ``sampled``; return the seconds of both, and the copies."""
        started = perf_counter()
        self._ask(request)
        outputs = {number: [t.clone() for t in tensors_of(self._sets[number]["results"])] for number in sampled}
        self.device.synchronize()
        return perf_counter() - started, outputs

    def _compare(self, number: int, checker: Checker, outputs: Sequence[torch.Tensor]) -> None:
        try:
            checker.compare(self.variant, outputs)
        except WrongResult as error:
            raise Disqualified(Rule.TIMED_RESULT, f"seen from another process, {error.evidence}") from error
        for name, value in checker.inputs.items():
            shared, drawn = (map(bits_of, tensors_of(of)) for of in (self._sets[number]["inputs"][name], value))
            if name not in self._inout and not all(map(torch.equal, shared, drawn)):
                raise Disqualified(Rule.WRITTEN_INPUT, f"{self.variant} wrote into its input {name}")

    def _seed(self) -> int:
        return self._chance.getrandbits(63)

    def _draw(self, seed: int) -> dict[str, Any]:
        return inputs_of(self.suite, self.case, Draw(self.device.torch_device, seed))

    def _fill(self, argument_set: dict[str, Any], values: dict[str, Any], names: Container[str]) -> None:
        """Copy the values of the named inputs into a set."""
        for name, value in values.items():
            if name not in names:
                continue
            if _shape(value) != self._shapes[name]:
                raise NotImplementedError(
                    f"input {name!r} of the suite has another shape or value in each draw; --isolated needs the same"
                )
            for target, tensor in zip(tensors_of(argument_set["inputs"][name]), tensors_of(value), strict=True):
                span(target).copy_(span(tensor))

    def _ask(self, request: dict[str, Any]) -> None:
        self._worker.ask(request)
        self._answer("done")

    def _answer(self, event: str) -> dict[str, Any]:
        answer = self._worker.wait(event)
        if answer.get("error"):
            raise Refused(f"the variant failed in a separate process: {answer['error']}")
        return answer


@contextlib.contextmanager
def _one_thread(device: Device) -> Iterator[None]:
    """Let torch use one thread on a CPU: on a busy machine several threads wait for each other at short operations."""
    if device.kind != "cpu":
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def arena_bytes(device: Device) -> int:
    """Return how many bytes of the device's memory the argument sets of an isolated run may use."""
    return min(ARENA_BYTES[device.kind], device.memory_bytes)


def _shape(value: Any) -> Any:
    """Return the form of an input: its value with each tensor replaced by shape, strides and dtype."""

    def describe(tensor: torch.Tensor) -> Any:
        return tuple(tensor.shape), tensor.stride(), tensor.dtype

    return map_tensors(value, describe)


def _plain(reference: torch.Tensor) -> torch.Tensor:
    """Return a buffer for an output, with the reference's shape and dtype, but float32 instead of float64."""
    dtype = torch.float32 if reference.dtype == torch.float64 else reference.dtype
    return torch.empty(reference.shape, dtype=dtype, device=reference.device)


def _alike(buffers: Sequence[torch.Tensor], reference: Sequence[torch.Tensor]) -> bool:
    return [buffer.shape for buffer in buffers] == [tensor.shape for tensor in reference]
