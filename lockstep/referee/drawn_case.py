"""The values that the judge draws for a case, and what it learns from them about the problem."""

from __future__ import annotations

import math
import random
from typing import Any

import torch

from lockstep.referee.contestant import Contestant, Inputs
from lockstep.referee.distributions import DISTRIBUTIONS, moved, off, random_problem, rounded_elsewhere
from lockstep.referee.problem import Problem
from lockstep.suite.case import Case
from lockstep.suite.definition import SuiteError
from lockstep.suite.evaluate import inputs_of
from lockstep.suite.inputs import Draw, tensors_of
from lockstep.timing.arms.argument_rotation import size_of
from lockstep.timing.checks.check import Checker, WrongResult
from lockstep.timing.device import Device

#: Bytes that alignment may add to an argument set in shared memory.
_GAPS = 512 * 64


class DrawnCase:
    """A case of a problem: draws values from seeds that nobody knows. Raise ``SuiteError`` if the problem's result is
    random.

    Attributes:
        inputs, out, results: an argument set, by which both processes lay out their memory.
        set_bytes: bytes of a set in shared memory.
        most_sets: sets of a run by the time of the incumbent.
        sets: sets of a run by the times of incumbent and candidate.
        moved: inputs of other distributions, by name.
        note: what a reader of the verdicts must know, or "".
    """

    def __init__(self, problem: Problem, case: Case, device: Device) -> None:
        self._problem, self.case, self._device = problem, case, device
        self._chance = random.SystemRandom()
        self.most_sets = self.sets = 1
        self.moved: dict[str, Inputs] = {}
        first = Checker.draw(problem.suite, case, device.torch_device, self._chance.getrandbits(63))
        self.note = "" if problem.compares else self._examined(first)
        self.inputs, self.out = first.inputs, first.out
        buffers = tensors_of(first.out)
        if [buffer.shape for buffer in buffers] == [tensor.shape for tensor in first.reference]:
            self.results = first.out
        else:
            self.results = [torch.empty(t.shape, dtype=_narrowed(t.dtype), device=t.device) for t in first.reference]
        own = [] if self.results is first.out else tensors_of(self.results)
        self.set_bytes = size_of([*tensors_of(first.inputs), *buffers, *own]) + _GAPS

    def draw(self) -> dict[str, Any]:
        """Return new inputs."""
        seed = self._chance.getrandbits(63)
        return inputs_of(self._problem.suite, self.case, Draw(self._device.torch_device, seed))

    def values(self) -> list[Inputs]:
        """Return new inputs for each set of a run."""
        return [self.draw() for _ in range(self.sets)]

    def move(self, rival: Contestant) -> None:
        """Find the distributions on which the problem is well conditioned and the incumbent right.

        There a rounding of each input moves the result by less than a third of the tolerance.
        """
        self.moved = {}
        if not self._problem.varied or self._problem.compares:
            return
        for name in DISTRIBUTIONS:
            inputs = moved(self.draw(), name)
            try:
                checker = Checker.of(self._problem.suite, self.case, inputs)
                rounded = Checker.of(self._problem.suite, self.case, rounded_elsewhere(inputs))
                if off(checker.reference, rounded.reference) < max(checker.tolerances) / 3:
                    _, [outputs] = rival.run([inputs], [0])
                    checker.compare(rival.name, outputs)
                    self.moved[name] = inputs
            except (SuiteError, WrongResult):
                continue

    def _examined(self, first: Checker) -> str:
        """Return a note if the problem's result is the same for all inputs."""
        again = Checker.of(self._problem.suite, self.case, first.inputs)
        apart = off(first.reference, again.reference)
        if first.reference and apart > max(first.tolerances) and math.isfinite(apart):
            raise random_problem(apart)
        other = Checker.of(self._problem.suite, self.case, self.draw())
        same = off(first.reference, other.reference) <= 1e-6
        return f"the result is the same for all inputs at {self.case.label}" if same else ""


def _narrowed(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of an output: that of the reference, but float32 for a reference in float64."""
    return torch.float32 if dtype == torch.float64 else dtype
