"""A problem that external candidates solve: a suite, its cases, the incumbent, and a loader of candidates."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from lockstep.referee.problem_definition import ProblemDefinition, Submission
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite, SuiteError
from lockstep.suite.evaluate import bind
from lockstep.suite.inputs import tensors_of
from lockstep.suite.selection import match_cases, nearest
from lockstep.suite.variants import Variant, takes_out
from lockstep.timing.device import Device

#: Name of a problem's own incumbent if it has no other name.
REFERENCE = "reference"


@dataclass(frozen=True)
class Candidate:
    """A function from outside the repository, or an incumbent, in the process that runs it.

    Attributes:
        variant: takes tensors by name.
        prepare: returns further named arguments from the suite's inputs, outside the timed part; or None.
        inout: inputs that the function writes, which it need not return.
    """

    variant: Variant
    prepare: Callable[..., dict[str, Any]] | None = None
    inout: tuple[str, ...] = ()

    def prepares(self) -> list[str]:
        """Return the names of the inputs that the preparation takes; [] without a preparation."""
        return list(inspect.signature(self.prepare).parameters) if self.prepare else []

    def call(self, inputs: dict[str, Any], out: Any, results: Any) -> Callable[[], None]:
        """Return a call on these inputs that copies its outputs into ``results``, which the judge reads."""
        prepared = self.prepare(**bind(self.prepare, inputs)) if self.prepare else {}
        arguments = bind(self.variant, {**inputs, **prepared})
        if out is not None and takes_out(self.variant):
            arguments["out"] = out
        targets = tensors_of(results)
        written = [tensor for name in self.inout for tensor in tensors_of(inputs[name])]

        def call() -> None:
            returned = tensors_of(self.variant(**arguments)) or written
            if len(returned) != len(targets):
                raise ValueError(f"it returned {len(returned)} tensors, expected {len(targets)}")
            for target, value in zip(targets, returned, strict=True):
                if target.shape != value.shape:
                    raise ValueError(f"it returned shape {list(value.shape)}, expected {list(target.shape)}")
                if value.data_ptr() != target.data_ptr():
                    target.copy_(value)

        return call


@dataclass(frozen=True)
class Problem:
    """A problem: what candidates compute, at which shapes, and how they are compared.

    Attributes:
        load: returns the candidate of a submission, or the problem's own incumbent for None.
        name: name of the problem's own incumbent; "" without one.
        facts: examines the problem once, in the judge: may set the suite's tolerance, and returns notes for readers.
        compares: whether the problem compares results itself.
        varied: whether inputs may be drawn from other distributions too (``lockstep.referee.distributions``).
        readable: files and folders that the process of a candidate must read.
    """

    suite: Suite
    cases: tuple[Case, ...]
    load: Callable[[Submission | None], Candidate]
    name: str = REFERENCE
    facts: Callable[[], list[str]] = list
    compares: bool = False
    varied: bool = False
    readable: tuple[Path, ...] = ()


def chosen(source: ProblemDefinition, suite: Suite, device: Device) -> tuple[Case, ...]:
    """Return the cases to measure: those that ``source`` selects, by default the first one for this device.

    Of a FlashInfer-Bench definition all are measured by default. Raise ``SuiteError`` if a text selects no case, or the
    device measures none.
    """
    cases = suite.cases_on(device.kind)
    if source.cases:
        cases = tuple(dict.fromkeys(case for text in source.cases for case in match_cases(suite, text)))
    if not cases:
        kind = "quick cases, which a CPU measures" if device.kind == "cpu" else "cases"
        raise SuiteError(f"suite {suite.name} has no {kind}")
    return cases if source.cases or source.every or source.kind == "flashinfer" else cases[:1]


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
    """Return the member ``name`` of a file's module; ``SuiteError`` if there is none."""
    if not hasattr(module, name):
        raise SuiteError(
            f"{module.__file__} has no {name}{nearest(name, [n for n in vars(module) if not n.startswith('_')])}"
        )
    return getattr(module, name)


def function_in(module: ModuleType, name: str) -> Variant:
    """Return a file's named, or only public, function; ``SuiteError`` if there is none, or several without a name."""
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
