"""The judge's side of one process that runs a candidate or an incumbent on buffers shared with it.

For each run the judge stops the process, draws other values into every argument set, fills the outputs with NaN, and
starts its clock. Then it lets the process continue, asks for one call on each set, and copies the outputs of a few sets
that only the judge knows. So no timed call sees values that an earlier call saw, and what is timed is what is checked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from lockstep.processes import stopping
from lockstep.processes.watched_worker import Watched
from lockstep.processes.worker import spelled
from lockstep.referee import sandbox
from lockstep.referee.arena import Layout, SharedBuffer, decode, encode
from lockstep.referee.problem_definition import Contest, ProblemDefinition, Refused, Submission
from lockstep.suite.inputs import tensors_of
from lockstep.timing.checks.output_memory import poison, span
from lockstep.timing.checks.refill_arguments import fits
from lockstep.timing.device import Device
from lockstep.timing.rules.rule import Disqualified, Rule

#: Number of runs without code under test, whose fastest is the cost of a run.
IDLE_RUNS = 4

#: Launches by which the judge sees whether the GPU still works for a stopped process, and the most seconds that the
#: median of them may take. A launch takes some 10 µs; beside another context it waits for its slice of time.
_LOOKS, _LOOK_S = 9, 2e-4

#: Values of an argument set: the inputs by name, and the suite's output buffers.
Inputs = Mapping[str, Any]


class Contestant:
    """A running process with one candidate, or with the problem's own incumbent. Call ``close`` at the end.

    Args:
        readable: files and folders that the process must read besides the candidate's file.
        size: bytes of the memory that both processes share.
        silence_s: seconds without an answer after which the process counts as hung and is killed.

    Attributes:
        idle_s: seconds of a run without code under test; the least that a run costs.
        prepared: names of the inputs that the candidate prepares from, outside the timed part.

    Raises:
        Refused: the candidate cannot be loaded.
        WorkerDied: the process hung or died.
    """

    def __init__(
        self,
        source: ProblemDefinition,
        submission: Submission | None,
        readable: Sequence[Path],
        device: Device,
        size: int,
        silence_s: float,
    ) -> None:
        self.name = submission.name if submission else "the incumbent"
        self._device = device
        self._shared = SharedBuffer(size, device.torch_device)
        files = [*readable, *([Path(submission.path)] if submission and submission.path else [])]
        filter_fd = sandbox.filter_fd()
        self._worker = Watched(
            "lockstep.referee.contestant_process",
            [spelled(Contest(source, submission))],
            silence_s,
            silence_s,
            environment=sandbox.variables(),
            pass_fds=(self._shared.fd, filter_fd),
            prefix=() if sandbox.missing() else sandbox.command(files, filter_fd),
            look=_hoards,
        )
        os.close(filter_fd)
        self._stopped: dict[int, float] | None = None
        try:
            self._ask({"arena": self._shared.address})
            self.idle_s = min(self._timed({"idle": None}) for _ in range(IDLE_RUNS))
            self.prepared = tuple(self._ask({"load": None})["prepares"])
        except BaseException:
            self.close()
            raise

    def begin(self, inputs: Inputs, out: Any, results: Any, sets: int) -> None:
        """Let the process compile its candidate for a case, on values that no run uses again.

        Args:
            inputs, out, results: an argument set like those of the case.
            sets: number of argument sets of a run.
        """
        layout = Layout()
        texts = []
        for _ in range(sets):
            given, buffers = encode(dict(inputs), layout.place), encode(out, layout.place)
            own = buffers if results is out else encode(results, layout.place)
            texts.append({"dict": [["inputs", given], ["out", buffers], ["results", own]]})
        self._sets = [decode(text, self._shared.bytes) for text in texts]
        for argument_set in self._sets:
            _fill(argument_set["inputs"], inputs)
        self._device.synchronize()
        self._ask({"case": texts})
        self.stop()

    def run(self, values: Sequence[Inputs], sampled: Sequence[int]) -> tuple[float, list[list[torch.Tensor]]]:
        """Return the seconds of one call on each set of these values, and copies of the outputs of sets ``sampled``.

        Inputs that the candidate prepares from keep their values.

        Raises:
            Disqualified: the process worked while it was stopped, or wrote into an input.
            Refused: the candidate raised an error.
            WorkerDied: the process hung or died.
        """
        self.stop()
        for argument_set, drawn in zip(self._sets, values, strict=True):
            _fill(argument_set["inputs"], {name: drawn[name] for name in drawn if name not in self.prepared})
            for result in tensors_of([argument_set["out"], argument_set["results"]]):
                poison(result)
        self._device.synchronize()
        self._require_still()
        started = perf_counter()
        self._ask({"run": None})
        outputs = [[tensor.clone() for tensor in tensors_of(self._sets[number]["results"])] for number in sampled]
        self._device.synchronize()
        seconds = perf_counter() - started
        self.stop()
        return seconds, outputs

    def inputs(self, number: int) -> Inputs:
        """Return the inputs of a set as they are now, in the memory that the process can write."""
        inputs: Inputs = self._sets[number]["inputs"]
        return inputs

    def stop(self) -> None:
        """Stop all processes of the candidate until the next run; ``Disqualified`` if one of them does not stop."""
        if self._stopped is not None:
            return
        try:
            self._stopped = stopping.stop(self._worker.pid)
        except stopping.Unstoppable as error:
            raise Disqualified(Rule.OUT_OF_TURN, str(error)) from error

    def close(self) -> None:
        """Kill all processes of the candidate, and free the shared memory."""
        self._worker.kill()
        self._worker.close(patience_s=0.0)
        self._sets = []
        self._shared.close()

    def _timed(self, request: dict[str, Any]) -> float:
        self.stop()
        started = perf_counter()
        self._ask(request)
        return perf_counter() - started

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Let the process continue, send it a request, and return its answer."""
        if self._stopped is not None:
            stopping.resume(self._stopped)
            self._stopped = None
        self._worker.ask(request)
        answer = self._worker.wait("done")
        if answer.get("error"):
            raise Refused(str(answer["error"]))
        return answer

    def _require_still(self) -> None:
        """Check that the process did not work since it was stopped, on no processor and not on the GPU."""
        if self._stopped and (how := stopping.ran_since(self._worker.pid, self._stopped)):
            raise Disqualified(Rule.OUT_OF_TURN, how)
        if self._device.kind != "cuda":
            return
        number = torch.zeros(1, device=self._device.torch_device)
        seconds = []
        for _ in range(_LOOKS):
            started = perf_counter()
            number.add_(1)
            self._device.synchronize()
            seconds.append(perf_counter() - started)
        if median(seconds) > _LOOK_S:
            evidence = f"keeps the GPU busy while it is stopped: a launch takes {median(seconds) * 1e6:.0f} µs"
            raise Disqualified(Rule.OUT_OF_TURN, evidence)


def _hoards(process: int) -> str:
    size = stopping.resident_bytes(process)
    return f"used {size / 2**30:.1f} GiB of memory" if size > sandbox.most_memory() else ""


def _fill(inputs: Inputs, values: Inputs) -> None:
    """Copy values into the inputs of a set."""
    for name, value in values.items():
        if not fits(inputs[name], value):
            shapes = [[tuple(tensor.shape) for tensor in tensors_of(one)] for one in (inputs[name], value)]
            raise Refused(
                f"input {name!r} had shapes {shapes[0]} in the first draw and has {shapes[1]} now: draw equal shapes"
            )
        for target, tensor in zip(tensors_of(inputs[name]), tensors_of(value), strict=True):
            span(target).copy_(span(tensor))
