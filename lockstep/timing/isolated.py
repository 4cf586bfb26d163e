"""Judge a variant from another process: the code under test can reach neither the clock nor the verdict.

The judge draws inputs with secret seeds, holds the reference, and shares only buffers with a contestant process
(``lockstep.timing.arena``). The judge never imports the code under test. One run has these steps: stop the contestant's
processes, draw other values into every set, fill the outputs with NaN, and let the contestant continue. Ask the
contestant for one call on each of the first n sets, copy the outputs of a few sets that only the judge knows, and stop
the clock. The copies are compared with the reference, so an answer given too early gains nothing.

``lockstep.timing.whole_runs`` computes the time of a call from the times of the runs.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import torch

from lockstep.processes.watched import Watched
from lockstep.suite.case import Case
from lockstep.suite.evaluate import inputs_of
from lockstep.suite.inputs import Draw, map_tensors, tensors_of
from lockstep.suite.model import Suite
from lockstep.timing.arena import Arena, Layout, decode, encode
from lockstep.timing.argument_sets import size_of
from lockstep.timing.check import Checker, WrongResult
from lockstep.timing.device import Device
from lockstep.timing.outputs import poison, span
from lockstep.timing.rules import Disqualified, Rule
from lockstep.timing.whole_runs import SLACK_S, Isolated, require_growth, time_of_call, waiting

#: Number of runs of each length, and the factor by which the number grows if the runs do not resolve the time of a
#: call.
RUNS = 7
MOST_ROUNDS = 3

#: Maximum number of sets of a run, and the bytes that all sets may take, by kind of device.
MOST_SETS = 128
ARENA_BYTES = {"cpu": 32 << 20, "cuda": 2 << 30}

#: Sets of a run whose outputs are compared; the contestant does not know which.
SAMPLED = 3


class Under(Protocol):
    """Describes the code under test and the process that runs it."""

    @property
    def module(self) -> str:
        """Return the module that the process runs; it calls ``lockstep.timing.contestant.serve``."""

    @property
    def silence_s(self) -> float:
        """Return the maximum seconds until an answer."""

    def arguments(self, suite: str, variant: str) -> list[str]:
        """Return the process's arguments for a variant, without ``--scratch``."""


@dataclass(frozen=True)
class Checkout:
    """A folder that holds the packages under test.

    Attributes:
        folder: the folder of the packages.
        packages: top-level packages imported from that folder.
        benchmark_dir: the folder of the suites.
        silence_s: maximum seconds until an answer.
    """

    folder: Path
    packages: tuple[str, ...]
    benchmark_dir: Path
    silence_s: float
    module: str = "lockstep.timing.contestant"

    def arguments(self, suite: str, variant: str) -> list[str]:
        """Return the arguments of ``lockstep.timing.contestant``."""
        where = ["--benchmarks", str(self.benchmark_dir), "--checkout", str(self.folder), "--packages", *self.packages]
        return [*where, "--suite", suite, "--variant", variant]


class Refused(RuntimeError):
    """The contestant cannot run the variant; the message says why."""


def judge(under: Under, suite: Suite, case: Case, variant: str, device: Device) -> Isolated:
    """Run one variant at one case in a separate process, and judge the variant.

    Raises:
        Disqualified: outputs of a timed run are wrong, inputs or a canary changed, or the time does not grow with the
            number of calls.
        WorkerDied: the contestant hung or died.
        Refused: the variant raised an error.
        NotImplementedError: the variant or the suite cannot be judged this way; the message says why.
    """
    with _Trial(under, suite, case, variant, device) as trial:
        trial.set_up()
        runs: dict[int, list[float]] = {length: [] for length in trial.lengths}
        for _ in range(MOST_ROUNDS):
            for _ in range(RUNS):
                # Random order: the length of one run does not reveal the next.
                for length in trial.shuffled():
                    runs[length].append(trial.run(length))
            seen = time_of_call(trial.idle, runs, SLACK_S[device.kind], trial.notes)
            if seen.low > 0 and not waiting(trial.idle, runs):
                break
        require_growth(variant, trial.idle, runs)
        return seen


class _Trial(contextlib.ExitStack):
    """One contestant with its buffers."""

    def __init__(self, under: Under, suite: Suite, case: Case, variant: str, device: Device) -> None:
        super().__init__()
        self.suite, self.case, self.variant, self.device = suite, case, variant, device
        self._chance = random.SystemRandom()
        self._inout: tuple[str, ...] = getattr(suite, "inout", ())
        first = Checker.draw(suite, case, device.torch_device, self._chance.getrandbits(63))
        wanted = first.out if _alike(tensors_of(first.out), first.reference) else [_plain(t) for t in first.reference]
        size = size_of(tensors_of([first.inputs, wanted]))
        sets = min(MOST_SETS, ARENA_BYTES[device.kind] // max(size, 1)) // 2 * 2
        if sets < 2:
            raise NotImplementedError(f"two sets of {size / 1e6:.0f} MB do not fit into the buffers of an isolated run")
        short = range(max(1, sets // 4), sets // 2 + 1)
        self.lengths = (*sorted(self._chance.sample(short, min(2, len(short)))), sets)
        layout = Layout()
        self._shapes = {name: _shape(value) for name, value in first.inputs.items()}
        texts = []
        for _ in range(sets):
            out = encode(first.out, layout.place)
            results = out if wanted is first.out else encode(wanted, layout.place)
            texts.append({"dict": [["inputs", encode(first.inputs, layout.place)], ["out", out], ["results", results]]})
        self._arena = Arena(layout, device.torch_device)
        self.callback(self._arena.close)
        self._sets = [decode(text, self._arena.buffer) for text in texts]
        scratch = Path(tempfile.mkdtemp(prefix="lockstep-"))
        self.callback(shutil.rmtree, scratch, ignore_errors=True)
        self._worker = self._start(under, scratch)
        self.callback(self._worker.close, patience_s=0.0)
        self._worker.wait("up")
        self._worker.ask({"address": self._arena.address, "sets": texts})
        self._answer("idle")
        #: Seconds of runs without code under test.
        self.idle = [self._idle_run() for _ in range(RUNS)]
        self._worker.ask({"load": self.variant})
        ready = self._answer("ready")
        # Activations are drawn after the preparation, even if the preparation takes them as inputs.
        self._prepared = [n for n in first.inputs if n in ready["prepares"] and n not in suite.activations]
        self.notes = tuple(str(reason) for reason in ready["missing"])
        if self._prepared and all(name in self._prepared for name, value in first.inputs.items() if tensors_of(value)):
            self.notes += ("it prepares from every input, so its preparation may do the work of the timed call",)

    def _start(self, under: Under, scratch: Path) -> Watched:
        folders = {"TMPDIR": "", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
        environment = {**os.environ, **{name: str(scratch / folder) for name, folder in folders.items()}}
        return Watched(
            under.module,
            [*under.arguments(self.suite.name, self.variant), "--scratch", str(scratch)],
            under.silence_s,
            environment=environment,
            pass_fds=self._arena.fds,
        )

    def set_up(self) -> None:
        """Let the contestant compile and capture, on values that no run uses again."""
        for one in self._sets:
            self._fill(one, self._draw())
        self.device.synchronize()
        self._ask({"setup": self.lengths})

    def shuffled(self) -> list[int]:
        """Return the lengths in random order."""
        return self._chance.sample(self.lengths, len(self.lengths))

    def _idle_run(self) -> float:
        with self._worker.paused():
            self.device.synchronize()
        return self._timed({"idle": 0}, range(min(SAMPLED, len(self._sets))))[0]

    def run(self, length: int) -> float:
        """Return the seconds of one run. Raises the same errors as ``judge``."""
        sampled = self._chance.sample(range(length), min(SAMPLED, length))
        with self._worker.paused():
            drawn = [self._draw() for _ in range(length)]
            checkers = {number: Checker.of(self.suite, self.case, drawn[number]) for number in sampled}
            for one, values in zip(self._sets, drawn, strict=False):
                # Inputs of the preparation are drawn first: the preparation must not see the other inputs.
                self._fill(one, {name: value for name, value in values.items() if name in self._prepared})
                for result in tensors_of([one["out"], one["results"]]):
                    poison(result)
            self.device.synchronize()
        if self._prepared:
            self._ask({"prepare": length})
        with self._worker.paused():
            for one, values in zip(self._sets, drawn, strict=False):
                self._fill(one, {name: value for name, value in values.items() if name not in self._prepared})
            self.device.synchronize()
        seconds, outputs = self._timed({"run": length}, sampled)
        for number, checker in checkers.items():
            self._compare(number, checker, outputs[number])
        return seconds

    def _timed(self, request: dict[str, Any], sampled: Sequence[int]) -> tuple[float, dict[int, list[torch.Tensor]]]:
        """Return the seconds until the answer and the copies of the outputs of ``sampled``, and those copies."""
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
            shared = tensors_of(self._sets[number]["inputs"][name])
            if name not in self._inout and not all(map(_same_bits, shared, tensors_of(value))):
                raise Disqualified(Rule.WRITTEN_INPUT, f"{self.variant} wrote into its input {name}")
        if not self._arena.intact():
            raise Disqualified(Rule.WRITTEN_INPUT, f"{self.variant} wrote outside of its buffers")

    def _draw(self) -> dict[str, Any]:
        return inputs_of(self.suite, self.case, Draw(self.device.torch_device, self._chance.getrandbits(63)))

    def _fill(self, one: dict[str, Any], values: dict[str, Any]) -> None:
        for name, value in values.items():
            if _shape(value) != self._shapes[name]:
                raise NotImplementedError(f"the suite draws a different shape or number each time ({name})")
            for target, tensor in zip(tensors_of(one["inputs"][name]), tensors_of(value), strict=True):
                span(target).copy_(span(tensor))

    def _ask(self, request: dict[str, Any]) -> None:
        self._worker.ask(request)
        self._answer("done")

    def _answer(self, event: str) -> dict[str, Any]:
        answer = self._worker.wait(event)
        if answer.get("error"):
            raise Refused(f"in a process of its own: {answer['error']}")
        return answer


def _shape(value: Any) -> Any:
    """Return a value in which each tensor is replaced by its shape, strides and dtype."""

    def describe(tensor: torch.Tensor) -> Any:
        return tuple(tensor.shape), tensor.stride(), tensor.dtype

    return map_tensors(value, describe)


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(*(tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)))


def _plain(reference: torch.Tensor) -> torch.Tensor:
    """Return a float32 buffer for an output of this shape, whatever precision the reference has."""
    dtype = torch.float32 if reference.dtype == torch.float64 else reference.dtype
    return torch.empty(reference.shape, dtype=dtype, device=reference.device)


def _alike(buffers: Sequence[torch.Tensor], reference: Sequence[torch.Tensor]) -> bool:
    return [buffer.shape for buffer in buffers] == [tensor.shape for tensor in reference]
