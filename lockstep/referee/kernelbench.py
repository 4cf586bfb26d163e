"""Problems of KernelBench: ``Model``, ``get_inputs`` and ``get_init_inputs`` in one file, ``ModelNew`` in another.

Source: https://github.com/ScalingIntelligence/KernelBench, ``src/kernelbench/eval.py`` at 423217d. As in that file,
both models are built with one seed, so that they have the same weights. Inputs and models are converted to one dtype.
Models stay in training mode and are called under ``no_grad``. The differences from that file are:

- Inputs are drawn on the device, with a seed that a candidate does not know; integers stay integers, and must be equal.
- The reference is ``Model`` in float64, or in float32 without TF32 if float64 fails or is slow.
- The error is the relative norm, not the error of each element, and the norm around the mean. The tolerance is
  KernelBench's number for the dtype or twice the error of ``Model`` itself, whichever is larger, but at most ten times
  KernelBench's number. ``Model`` may be less exact because torch computes convolutions in TF32, whose error is 3e-4.
- A file may define ``check(outputs, expected, *inputs)``, which returns what is wrong, or "". It is for problems with
  several right results (the order of ties, signs of a factorisation).
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from lockstep.referee.distributions import off, random_problem
from lockstep.referee.problem import Candidate, Problem, import_file, member
from lockstep.referee.problem_definition import ProblemDefinition, Submission
from lockstep.suite.case import Case
from lockstep.suite.definition import Cost, Suite, SuiteError
from lockstep.suite.evaluate import blamed
from lockstep.suite.inputs import Draw, map_tensors, tensors_of
from lockstep.timing.checks.accuracy import accuracy_of
from lockstep.timing.device import Device

#: Tolerance by dtype: ``get_tolerance_for_precision`` of ``eval.py``, which names torchbench as its source.
TOLERANCES = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}

#: Error of ``Model`` from which its result is only rounding noise.
NOISE = 0.1


#: Most seconds that a call of ``Model`` in float64 may take to be the reference.
SLOW_S = 0.5


class KernelBench(Suite):
    """The suite of one KernelBench problem, with a single case, because a problem has one shape."""

    family = "kernelbench"

    def __init__(self, source: ProblemDefinition, device: torch.device) -> None:
        path = Path(source.definition)
        if source.precision not in TOLERANCES:
            raise SuiteError(f"precision {source.precision!r} is not one of {', '.join(TOLERANCES)}")
        module = import_file(path)
        self.model, self._inputs = member(module, "Model"), member(module, "get_inputs")
        self._init_inputs, self._check = member(module, "get_init_inputs"), getattr(module, "check", None)
        self._dtype, self._device, self._seed = getattr(torch, source.precision), device, source.seed
        self._stated, self._tolerance = source.tolerance, TOLERANCES[source.precision]
        case = Case(problem=path.stem)
        vars(self).update(cases=(case,), quick=(case,), baseline="Model", tolerance=self._tolerance)
        super().__init__()

    def build(self, kind: Any) -> torch.nn.Module:
        """Return a model built with the problem's seed, device and dtype."""
        with _seeded(self._seed):
            arguments = map_tensors(list(self._init_inputs()), self._cast)
            with torch.no_grad(), _seeded(self._seed):
                model: torch.nn.Module = kind(*arguments)
        return model.to(device=self._device, dtype=self._dtype)

    def facts(self) -> list[str]:
        """Choose reference and tolerance by the errors of ``Model`` itself.

        Raise ``SuiteError`` if the model fails, or its result is random or rounding noise.
        """
        with blamed(self, "Model"):
            model = self.build(self.model)
        with blamed(self, "get_inputs"):
            inputs = self.draw(Draw(self._device, random.SystemRandom().getrandbits(63)), problem="")
        self._exact, self._wide = copy.deepcopy(model).float(), torch.float32
        with torch.no_grad():
            with blamed(self, "Model"):
                outputs, again = (copy.deepcopy(model)(*inputs.values()) for _ in range(2))
            if not self.compares and (apart := off(outputs, again)) > self._tolerance:
                raise random_problem(apart)
            try:
                double = copy.deepcopy(model).double()
                started = perf_counter()
                tensors_of(double(*map_tensors(list(inputs.values()), torch.Tensor.double)))
                if perf_counter() - started < SLOW_S:
                    self._exact, self._wide = double, torch.float64
            except (RuntimeError, TypeError, ValueError):
                pass  # a model that insists on its dtype
        pairs = list(zip(tensors_of(outputs), tensors_of(self.reference(**inputs)), strict=True))
        errors = [accuracy_of(*pair) for pair in pairs if pair[0].is_floating_point()]
        worst = max((error.norm for error in errors), default=0.0)
        if worst > NOISE:
            raise SuiteError(
                f"the result of this problem is rounding noise: Model is off by {worst:.2g} of the norm of its "
                f"result in {self._wide}, so no error of a candidate means anything"
            )
        most = 10 * self._tolerance
        centred = max((error.centred for error in errors), default=0.0)
        vars(self)["centred"] = max(self._tolerance, 2 * centred) if self._dtype == torch.float32 else None
        tolerance = min(max(self._tolerance, 2 * worst), most)
        vars(self)["tolerance"] = tolerance if self._stated is None else self._stated
        return []

    def draw(self, new: Draw, /, *args: Any, **axes: Any) -> dict[str, Any]:
        """Return the values that ``get_inputs`` draws, named by position."""
        seed = int(new.integers(1, low=0, high=2**31 - 1, dtype="int64"))
        with _seeded(seed), new.device:
            values = map_tensors(list(self._inputs()), self._cast)
        return {f"input_{number}": value for number, value in enumerate(values)}

    def reference(self, *args: Any, **inputs: Any) -> Any:
        """Return the result of a new copy of ``Model`` in float64 or float32."""
        values = [value for name, value in inputs.items() if name.startswith("input_")]
        with torch.no_grad(), _without_tf32():
            # A copy, because a layer in training mode updates its statistics.
            return copy.deepcopy(self._exact)(*map_tensors(values, self._widened))

    @property
    def compares(self) -> bool:
        """Return whether the file has a ``check`` of its own."""
        return self._check is not None

    def compare(self, outputs: Any, expected: Any, inputs: Any) -> str | None:
        """Return what the file's own ``check`` says; None if the file has none."""
        return None if self._check is None else str(self._check(outputs, expected, *inputs.values()))

    def cost(self, *args: Any, **axes: Any) -> Cost:
        """Return nothing: a problem does not state its work."""
        return Cost(0.0, 0.0)

    def _widened(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._wide) if tensor.is_floating_point() else tensor

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device, self._dtype if tensor.is_floating_point() else tensor.dtype)


def kernelbench_problem(source: ProblemDefinition, device: Device) -> Problem:
    """Return a file's problem, ``Model`` its incumbent; ``SuiteError`` if a name is missing or ``Model`` raises."""
    suite = KernelBench(source, device.torch_device)

    def load(submission: Submission | None) -> Candidate:
        kind = suite.model
        if submission is not None:
            kind = member(import_file(Path(submission.path)), submission.function or "ModelNew")
        model = suite.build(kind)

        def call(**inputs: Any) -> Any:
            with torch.no_grad():
                return model(*inputs.values())

        return Candidate(call)

    readable = (Path(source.definition),)
    return Problem(suite, suite.cases, load, "Model", suite.facts, suite.compares, varied=True, readable=readable)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch's generators for the block and restore them after it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def _without_tf32() -> Iterator[None]:
    former = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = former
