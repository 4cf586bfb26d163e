"""A problem that external candidates solve: a suite, its cases, the incumbent, and a loader of candidates."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from lockstep.referee.problem_definition import ProblemDefinition
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite, SuiteError
from lockstep.suite.discovery import match_cases, nearest
from lockstep.suite.variants import Family, Variant
from lockstep.timing.device import Device

#: Name of a problem's own incumbent if it has no other name.
REFERENCE = "reference"


@dataclass(frozen=True)
class Candidate:
    """A variant from outside the repository.

    Attributes:
        variant: function that takes tensors by name.
        prepare: function that returns further named arguments from the suite's inputs, outside the timed part; or None.
        weights: tensors that the candidate stores between calls. The harness moves them to other addresses each epoch.
    """

    variant: Variant
    prepare: Callable[..., dict[str, Any]] | None = None
    weights: tuple[torch.Tensor, ...] = ()


@dataclass(frozen=True)
class Problem:
    """A problem: what candidates compute, at which shapes, and how they are compared.

    Attributes:
        suite: inputs, reference, costs and tolerance.
        load: returns the candidate in a file; the second argument names a function or class in the file, or is "".
        name: name of the problem's own incumbent.
        incumbent: the problem's own incumbent; None if the caller must give one.
        scratch: device buffers that the suite's own module stores between calls.
    """

    suite: Suite
    cases: tuple[Case, ...]
    l2: str
    load: Callable[[Path, str], Candidate]
    name: str = REFERENCE
    incumbent: Candidate | None = None
    scratch: MutableMapping[Any, torch.Tensor] = field(default_factory=dict)

    def against(self, incumbent: str) -> Suite:
        """Return a copy of the suite with this incumbent as its baseline and no skipped cases."""
        suite = copy.copy(self.suite)
        # These are usually attributes of the class; this one suite gets its own values.
        vars(suite).update(baseline=incumbent, skips=Suite.skips.__get__(suite))
        return suite

    def family(self, entries: dict[str, Candidate]) -> Family:
        """Return a family with these candidates as variants, by name."""
        weights = [tensor for candidate in entries.values() for tensor in candidate.weights]
        return Family(
            variants={name: candidate.variant for name, candidate in entries.items()},
            prepare={name: candidate.prepare for name, candidate in entries.items() if candidate.prepare},
            scratch=Weights(weights) if weights else self.scratch,
            activations=self.suite.activations,
        )


class Weights(MutableMapping[int, torch.Tensor]):
    """A model's weights, by number. Setting an entry gives the weight new storage, as ``bound_arms.move`` needs."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors

    def __getitem__(self, number: int) -> torch.Tensor:
        return self._tensors[number].data

    def __setitem__(self, number: int, value: torch.Tensor) -> None:
        self._tensors[number].data = value

    def __delitem__(self, number: int) -> None:
        raise TypeError("a model's weights cannot be removed")

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._tensors)))

    def __len__(self) -> int:
        return len(self._tensors)


def chosen(source: ProblemDefinition, suite: Suite, device: Device) -> tuple[Case, ...]:
    """Return the cases to measure: those that ``source`` selects, by default the first one for this device.

    Raises:
        SuiteError: a text selects no case, or the device measures none.
    """
    cases = suite.quick if device.kind == "cpu" else suite.cases
    if source.cases:
        cases = tuple(dict.fromkeys(case for text in source.cases for case in match_cases(suite, text)))
    if not cases:
        kind = "quick cases, which a CPU measures" if device.kind == "cpu" else "cases"
        raise SuiteError(f"suite {suite.name} has no {kind}")
    return cases if source.cases or source.every else cases[:1]


def cache_state(source: ProblemDefinition, device: Device) -> str:
    """Return the cache state to measure: the requested one, by default "warm" on a CPU and "cold" on a GPU."""
    return source.l2 or ("warm" if device.kind == "cpu" else "cold")


def import_file(path: Path) -> ModuleType:
    """Import a file under a unique module name, so that two files of the same name do not collide."""
    name = f"lockstep_referee_{abs(hash(path.resolve())):x}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SuiteError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Triton and dataclasses look up a function's module in sys.modules
    spec.loader.exec_module(module)
    return module


def member(module: ModuleType, name: str) -> Any:
    """Return the member ``name`` of a file's module.

    Raises:
        SuiteError: the file has no such name.
    """
    if not hasattr(module, name):
        raise SuiteError(
            f"{module.__file__} has no {name}{nearest(name, [n for n in vars(module) if not n.startswith('_')])}"
        )
    return getattr(module, name)


def function_in(module: ModuleType, name: str) -> Variant:
    """Return a function of a file: the named function, or the only public function that the file defines.

    Raises:
        SuiteError: the file has no such function, or several functions and no name is given.
    """
    if name:
        function: Variant = member(module, name)
        return function
    public = {
        key: value
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_")
    }
    if len(public) != 1:
        contents = f"{len(public)} public functions ({', '.join(public)})" if public else "no public function"
        raise SuiteError(f"{module.__file__} has {contents}; name the function to judge: FILE.py:FUNCTION")
    [only] = public.values()
    return only
