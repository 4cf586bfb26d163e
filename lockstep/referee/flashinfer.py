"""Problems of FlashInfer-Bench: a definition, its workloads, and solutions, as JSON.

Source: https://github.com/flashinfer-ai/flashinfer-bench at 40e6ca7: ``definition.py``, ``workload.py`` and
``solution.py`` of ``flashinfer_bench/data`` for the format, ``bench/utils.py`` for the ranges of random inputs,
``bench/config.py`` for the tolerance.

A definition names axes, inputs, outputs and the text of a reference ``run``. A workload gives the variable axes and the
source of each input. A solution holds source files and an entry point. The entry point takes the inputs in the
definition's order, followed by the outputs unless ``destination_passing_style`` is false.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from lockstep.referee.problem import REFERENCE, Candidate, Problem, chosen, import_file, member
from lockstep.referee.problem_definition import ProblemDefinition, Submission
from lockstep.suite.case import Case
from lockstep.suite.definition import Cost, Suite, SuiteError
from lockstep.suite.inputs import Draw
from lockstep.timing.device import Device

#: Range of random integers by dtype, from ``_rand_tensor``.
_INTEGERS = {"int8": (-128, 128), "int16": (-1024, 1024), "int32": (-1024, 1024), "int64": (-1024, 1024)}

#: Languages of solutions that can be imported as Python.
_LANGUAGES = ("python", "triton")


class FlashInferBench(Suite):
    """The suite that a FlashInfer-Bench definition describes; its cases are the definition's workloads."""

    family = "flashinfer"

    def __init__(self, source: ProblemDefinition) -> None:
        path = Path(source.definition)
        self._definition = _json(path.read_text(encoding="utf-8"), str(path))
        for key in ("name", "axes", "inputs", "outputs", "reference"):
            if key not in self._definition:
                raise SuiteError(f"{path} is not a FlashInfer-Bench definition: it has no {key!r}")
        if self._definition.get("op_type") == "sampling" and "checker" not in self._definition:
            raise SuiteError(
                f"{path}: results of op_type sampling are random, so they cannot be compared; give the definition a "
                '"checker" (docs/referee.md)'
            )
        file = Path(source.workloads) if source.workloads else _workloads_of(path, self._definition["name"])
        self._root = file.resolve().parents[1]
        self.files = (path, file)
        rows = [_json(line, str(file)) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        self._workloads = {row["workload"]["uuid"][:8]: row["workload"] for row in rows}
        cases = tuple(Case(**row["axes"], workload=uuid) for uuid, row in self._workloads.items())
        vars(self).update(
            op=self._definition["name"],
            cases=cases,
            quick=cases,
            baseline=REFERENCE,
            # The value of rtol and atol in ``ResolvedEvalConfig``. This suite applies the value to the relative norm.
            tolerance=1e-2 if source.tolerance is None else source.tolerance,
        )
        super().__init__()
        self._run = _function(self._definition["reference"], "run")
        checker = self._definition.get("checker")
        self._check = _function(checker, "check") if checker else None

    def draw(self, new: Draw, /, workload: str, **axes: Any) -> dict[str, Any]:
        """Return the inputs of a workload: random tensors, given numbers, or tensors of a safetensors file."""
        inputs = self._workloads[workload]["inputs"]
        return {
            name: self._input(new, name, inputs.get(name, {"type": "random"}), axes)
            for name in self._definition["inputs"]
        }

    def buffers(self, new: Draw, /, *args: Any, **axes: Any) -> Any:
        """Return uninitialised output tensors, in the definition's order."""
        return tuple(new.empty(*self._shape(spec, axes), dtype=spec["dtype"]) for spec in self._outputs)

    def reference(self, *args: Any, **inputs: Any) -> Any:
        """Return the outputs of the definition's ``run``, in the definition's order."""
        return self.ordered(self._run)(**inputs)

    def compare(self, outputs: Any, expected: Any, inputs: Any) -> str | None:
        """Return what ``check`` of the definition's own ``checker`` says; None if the definition has none."""
        return None if self._check is None else str(self._check(outputs, expected, **inputs))

    def cost(self, *args: Any, **axes: Any) -> Cost:
        """Return nothing: a definition does not state its work."""
        return Cost(0.0, 0.0)

    def ordered(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a variant that calls ``run`` with positional inputs and returns outputs in the definition's order."""

        @torch.no_grad()
        def call(**inputs: Any) -> Any:
            result = run(*(inputs[name] for name in self._definition["inputs"]))
            if isinstance(result, Mapping):
                return tuple(result[name] for name in self._definition["outputs"])
            return result

        return call

    def filling(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a variant that calls ``run`` in destination-passing style."""

        @torch.no_grad()
        def call(*, out: tuple[torch.Tensor, ...], **inputs: Any) -> Any:
            run(*(inputs[name] for name in self._definition["inputs"]), *out)
            return out

        return call

    def solution(self, path: Path, name: str) -> Candidate:
        """Return the candidate in a solution's file. Its sources are written into a temporary folder.

        Raise ``SuiteError`` if the solution is for another definition, or in a language that must be built.
        """
        content = _json(path.read_text(encoding="utf-8"), str(path))
        spec, definition = content.get("spec", {}), self._definition["name"]
        if content.get("definition") != definition:
            raise SuiteError(
                f"{path} solves {content.get('definition')!r}, but the definition given is {definition!r}; "
                "pass a solution of that definition"
            )
        if spec.get("language") not in _LANGUAGES:
            raise SuiteError(f"{path}: a solution in {spec.get('language')!r} must be built first; use {_LANGUAGES}")
        file, _, function = spec["entry_point"].partition("::")
        package = Path(tempfile.mkdtemp(), path.stem)
        for source in content["sources"]:
            target = (package / source["path"]).resolve()
            if not target.is_relative_to(package.resolve()):
                raise SuiteError(f"{path}: the source path {source['path']!r} is outside the solution's folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(source["content"], encoding="utf-8")
        sys.path.insert(0, str(package.parent))
        module = importlib.import_module(".".join((package.name, *Path(file).with_suffix("").parts)))
        run = member(module, name or function)
        return Candidate(self.filling(run) if spec.get("destination_passing_style", True) else self.ordered(run))

    @functools.cached_property
    def _outputs(self) -> tuple[Mapping[str, Any], ...]:
        specs = tuple(self._definition["outputs"].values())
        if any(spec["shape"] is None for spec in specs):
            raise SuiteError(f"definition {self._definition['name']}: outputs must be tensors, not Python numbers")
        return specs

    def _shape(self, spec: Mapping[str, Any], axes: Mapping[str, Any]) -> list[int]:
        known = {name: axis["value"] for name, axis in self._definition["axes"].items() if "value" in axis} | dict(axes)
        return [known[axis] for axis in spec["shape"]]

    def _input(self, new: Draw, name: str, source: Mapping[str, Any], axes: Mapping[str, Any]) -> Any:
        spec = self._definition["inputs"][name]
        if source["type"] == "scalar":
            return source["value"]
        if source["type"] == "safetensors":
            # Imported here: safetensors is not a dependency: only workloads that name a file need it.
            tensors = importlib.import_module("safetensors.torch").load_file(self._root / source["path"])
            return tensors[source["tensor_key"]].to(new.device)
        shape, dtype = self._shape(spec, axes) if spec["shape"] is not None else [], spec["dtype"]
        if dtype in _INTEGERS:
            low, high = _INTEGERS[dtype]
            values = new.integers(*shape, low=low, high=high, dtype=dtype)
        elif dtype == "bool":
            values = new.integers(*shape, low=0, high=2, dtype=dtype)
        elif dtype.startswith("float8"):
            values = new.normal(*shape, dtype="float32").clamp_(-2.0, 2.0).to(getattr(torch, dtype))
        else:
            values = new.normal(*shape, dtype=dtype)
        return values.item() if spec["shape"] is None else values


def flashinfer_problem(source: ProblemDefinition, device: Device) -> Problem:
    """Return a definition's problem, its reference the incumbent; ``SuiteError`` if fields or workloads are missing."""
    try:
        suite = FlashInferBench(source)
    except (KeyError, TypeError) as error:
        raise SuiteError(f"{source.definition}: a field is missing or of the wrong type: {error}") from error

    def load(submission: Submission | None) -> Candidate:
        if submission is None:
            return Candidate(suite.ordered(suite._run))
        return suite.solution(Path(submission.path), submission.function)

    cases = chosen(source, suite, device)
    return Problem(suite, cases, load, compares=suite._check is not None, varied=True, readable=suite.files)


def _function(text: str, name: str) -> Callable[..., Any]:
    """Return a function of a module that a definition holds as text."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, f"{name}.py")
        written.write_text(text, encoding="utf-8")
        function: Callable[..., Any] = member(import_file(written), name)
    return function


def _workloads_of(definition: Path, name: str) -> Path:
    """Return the path of ``workloads/…/NAME.jsonl`` in the data set that holds a definition."""
    for parent in definition.resolve().parents:
        for file in sorted((parent / "workloads").rglob(f"{name}.jsonl")):
            return file
    raise SuiteError(f"no workloads/{name}.jsonl in any folder above {definition}; name the file: --workloads FILE")


def _json(text: str, where: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise SuiteError(f"{where} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise SuiteError(f"{where}: expected an object, got {type(content).__name__}")
    return content
