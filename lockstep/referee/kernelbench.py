"""Problems of KernelBench: ``Model``, ``get_inputs`` and ``get_init_inputs`` in one file, ``ModelNew`` in another.

Source: https://github.com/ScalingIntelligence/KernelBench, ``src/kernelbench/eval.py`` at 423217d. As in that file,
both models are built with one seed, so that they have the same weights. Inputs and models are converted to one dtype.
Models stay in training mode and are called under ``no_grad``. The differences from that file are:

- Inputs are drawn on the device, with a seed that a candidate does not know; integers stay integers.
- The reference is ``Model`` in float32 without TF32.
- The error is the relative norm, not the error of each element. The tolerance is KernelBench's number for the dtype. If
  twice the error of ``Model`` itself is larger, the tolerance is that, up to ten times KernelBench's number: torch
  computes convolutions in TF32, whose error is 3e-4.
- The weights that a model registers move to other addresses in each epoch.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from lockstep.referee.problem import Candidate, Problem, cache_state, import_file, member
from lockstep.referee.problem_definition import ProblemDefinition
from lockstep.suite.case import Case
from lockstep.suite.definition import Cost, Suite, SuiteError
from lockstep.suite.inputs import Draw, map_tensors, tensors_of
from lockstep.timing.device import Device

#: Tolerance by dtype: ``get_tolerance_for_precision`` of ``eval.py``, which names torchbench as its source.
TOLERANCES = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}


class KernelBench(Suite):
    """The suite of one KernelBench problem, with a single case, because a problem has one shape."""

    family = "kernelbench"

    def __init__(self, source: ProblemDefinition, device: torch.device) -> None:
        path = Path(source.definition)
        if source.precision not in TOLERANCES:
            raise SuiteError(f"precision {source.precision!r} is not one of {', '.join(TOLERANCES)}")
        module = import_file(path)
        self._model, self._inputs = member(module, "Model"), member(module, "get_inputs")
        self._init_inputs = member(module, "get_init_inputs")
        self._dtype, self._device = getattr(torch, source.precision), device
        self._seed = random.SystemRandom().getrandbits(31)
        case = Case(problem=path.stem)
        version = hashlib.sha256(path.read_bytes() + source.precision.encode()).hexdigest()[:16]
        vars(self).update(version=version, cases=(case,), quick=(case,), baseline="Model")
        super().__init__()
        model = self.build(self._model)
        self._exact = copy.deepcopy(model).float()
        # saved now, because a candidate may replace the method, and the reference must not change
        self._forward = type(model).forward
        inputs = self.draw(Draw(device, self._seed), problem="")
        with torch.no_grad():
            outputs = tensors_of(model(*inputs.values()))
        references = tensors_of(self.reference(**inputs))
        # Every output is written at least once, even if outputs share memory.
        self._bytes = sum(output.untyped_storage().nbytes() for output in outputs)
        tolerance = TOLERANCES[source.precision]
        error = max((_distance(*pair) for pair in zip(outputs, references, strict=True)), default=0.0)
        tolerance = min(max(tolerance, 2 * error), 10 * tolerance)
        vars(self)["tolerance"] = tolerance if source.tolerance is None else source.tolerance

    def build(self, kind: Any) -> torch.nn.Module:
        """Return a model built with the problem's seed, device and dtype."""
        with _seeded(self._seed):
            arguments = map_tensors(list(self._init_inputs()), self._cast)
            with torch.no_grad(), _seeded(self._seed):
                model: torch.nn.Module = kind(*arguments)
        return model.to(device=self._device, dtype=self._dtype)

    def draw(self, new: Draw, /, *args: Any, **axes: Any) -> dict[str, Any]:
        """Return the values that ``get_inputs`` draws, named by position."""
        seed = int(new.integers(1, low=0, high=2**31 - 1, dtype="int64"))
        with _seeded(seed), new.device:
            values = map_tensors(list(self._inputs()), self._cast)
        return {f"input_{number}": value for number, value in enumerate(values)}

    def reference(self, *args: Any, **inputs: Any) -> Any:
        """Return the result of a new copy of ``Model`` in float32."""
        values = [value for name, value in inputs.items() if name.startswith("input_")]
        with torch.no_grad(), _without_tf32():
            # A copy, because a layer in training mode updates its statistics.
            return self._forward(copy.deepcopy(self._exact), *map_tensors(values, _wide))

    def cost(self, *args: Any, **axes: Any) -> Cost:
        """Return the bytes of the outputs, a lower bound: a problem does not say which inputs may stay unread."""
        return Cost(0.0, float(self._bytes))

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device, self._dtype if tensor.is_floating_point() else tensor.dtype)


def kernelbench_problem(source: ProblemDefinition, device: Device) -> Problem:
    """Return the problem of a KernelBench file; ``Model`` is its incumbent.

    Raises:
        SuiteError: the file lacks a required name, or ``Model`` raises.
    """
    try:
        suite = KernelBench(source, device.torch_device)
    except SuiteError:
        raise
    except Exception as error:
        raise SuiteError(f"{source.definition} cannot be used: {type(error).__name__}: {error}") from error

    def load(path: Path, name: str) -> Candidate:
        return _candidate(suite.build(member(import_file(path), name or "ModelNew")))

    incumbent = _candidate(suite.build(suite._model))
    return Problem(suite, suite.cases, cache_state(source, device), load, "Model", incumbent)


def _candidate(model: torch.nn.Module) -> Candidate:
    # Saved now: a rival may replace the method of the class, and this candidate must not become slower.
    forward = model.forward

    def call(**inputs: Any) -> Any:
        with torch.no_grad():
            return forward(*inputs.values())

    # Recurrent layers cannot move: cuDNN needs their weights in one allocation.
    movable = not any(isinstance(part, torch.nn.RNNBase) for part in model.modules())
    weights = (*model.parameters(), *model.buffers()) if movable else ()
    return Candidate(call, weights=weights)


def _distance(output: torch.Tensor, reference: torch.Tensor) -> float:
    norm = torch.linalg.vector_norm
    return float(norm(output.float() - reference.float()) / norm(reference.float()))


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


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
