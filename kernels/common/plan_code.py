"""Write the function that recognises the calls of a plan and repeats them (``kernels.common.call_plan``).

The function is written as Python, because loops over arguments and steps took the host longer than a short library
call does. The function of ``hgemm`` with ``out``, where cuBLAS is the best variant, is::

    def run(values):
        t0, t1, t2, = values
        if not fits(t0, t1, t2): return OTHER
        a0 = t0.data_ptr(); a1 = t1.data_ptr(); a2 = t2.data_ptr()
        if (a0 | a1 | a2) & 15 or current_device() != 0: return OTHER
        function0(t0, t1, out=t2)
        return t2
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from kernels.common import workspace
from kernels.common.triton_launcher import OTHER, TENSORS, UNPLANNED, Start, cuda_functions

#: The function of a plan takes the values of a call's arguments, and returns what the call returns. It launches nothing
#: and returns ``OTHER`` for a call with other facts, and ``UNPLANNED`` for a call that must run as it is written.
Run = Callable[[tuple[Any, ...]], Any]

_native: Any = torch._C._dynamo.guards


class View(NamedTuple):
    """A view of the plan's tensor number ``root``, from element ``offset`` on; with ``shape`` None the whole tensor.

    ``tracked`` states whether autograd may track the tensor, or torch may treat the tensor and its view differently.
    """

    root: int
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] = ()
    offset: int = 0
    tracked: bool = True


class Fresh(NamedTuple):
    """Memory to allocate on the current device by torch's function ``allocate``, which takes the other fields."""

    allocate: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


class Product(NamedTuple):
    """A call of a library function. ``makes`` states whether the result is a new tensor, which gets a number."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    makes: bool


class Plan(NamedTuple):
    """The steps of a call: find workspaces, allocate, launch, and return tensors or views of them.

    Tensors have numbers: first those among the arguments, then ``buffers``, ``fresh`` and results of ``Product``.

    Attributes:
        buffers: the key of each workspace, and the remainder of its address modulo 16.
        steps: launches and library calls in order.
        returns: the type of a returned tuple or list; None if the call returns its only result.
    """

    buffers: tuple[tuple[Any, int], ...]
    fresh: tuple[Fresh, ...]
    kernels: tuple[Any, ...]
    steps: tuple[Start | Product, ...]
    results: tuple[View, ...]
    returns: type | None


class PlanCode:
    """The code of a plan for calls with the facts of one call.

    Attributes:
        tensors: the tensors among the call's values, in the order of their numbers.

    Args:
        values: the values of the call's arguments: tensors, numbers, strings, dtypes, None, or tuples of such.

    Raises:
        RuntimeError: a tensor has no address.
    """

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.tensors: list[torch.Tensor] = []
        current_device, current_stream = cuda_functions()
        self._device = current_device()
        self._names: dict[str, Any] = {
            "BUFFERS": workspace.BUFFERS,
            "OTHER": OTHER,
            "UNPLANNED": UNPLANNED,
            "current_device": current_device,
            "current_stream": current_stream,
            "len": len,
            "native": _native,
            "reinterpret": _native._reinterpret_tensor,
            "type": type,
        }
        self._lines: list[str] = []
        self._compare(values, "values")
        self._compare_tensors()

    def function(self, plan: Plan | None) -> Run:
        """Return the function that runs the plan, or returns ``UNPLANNED`` for a call that cannot have a plan."""
        lines = [*self._lines, "return UNPLANNED"] if plan is None else [*self._lines, *self._steps(plan)]
        text = "def run(values):\n" + "".join(f"    {line}\n" for line in lines)
        # The text uses the names of this module alone. Without builtins it cannot import, so this file shows all that
        # it can import. The text does not use ``plan``, which shows a reader of the function what it does.
        exec(text, names := {**self._names, "plan": plan, "__builtins__": {}})
        run: Run = names["run"]
        return run

    def _compare(self, values: tuple[Any, ...], values_name: str) -> None:
        """Write the comparison of all values but tensors. ``values_name`` is the name of a call's values."""
        targets: list[str] = []
        tests: list[str] = []
        tuples: list[tuple[tuple[Any, ...], str]] = []
        for at, value in enumerate(values):
            if type(value) in TENSORS:
                targets.append(f"t{len(self.tensors)}")
                self.tensors.append(value)
                continue
            targets.append(target := f"{values_name}_{at}")
            if isinstance(value, tuple):
                tests.append(f"type({target}) is not {self._name(type(value))} or len({target}) != {len(value)}")
                tuples.append((value, target))
            else:
                tests.append(self._difference(value, target))
        if targets:
            self._lines.append(f"{', '.join(targets)}, = {values_name}")
        if tests:
            self._lines.append(f"if {' or '.join(tests)}: return OTHER")
        for value, target in tuples:
            self._compare(value, target)

    def _difference(self, value: Any, target: str) -> str:
        """Return Python text that is true if ``target`` differs from a value; -0.0 and 0.0, 1 and True differ too."""
        if value is None or type(value) in (bool, torch.dtype):
            return f"{target} is not {self._name(value)}"
        other_type = f"type({target}) is not {self._name(type(value))}"
        if type(value) is float and (not value or math.isnan(value)):
            return f"{other_type} or {target}.hex() != {value.hex()!r}"
        return f"{other_type} or {target} != {self._name(value)}"

    def _compare_tensors(self) -> None:
        """Write the comparison of tensors, and of the current device.

        torch's guards compare type, shape, strides, dtype, device, ``requires_grad`` and dispatch of each tensor. They
        also check that all tensors are different. For three tensors they take 0.26 µs, Python 1.6.
        """
        guards = _native.TensorGuards(*self.tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        self._names["fits"] = guards.check
        numbers = range(len(self.tensors))
        aligned = [number for number in numbers if not self.tensors[number].data_ptr() & 15]
        tests = [f"({' | '.join(f'a{number}' for number in aligned)}) & 15"] if aligned else []
        tests += [
            f"a{number} & 15 != {self.tensors[number].data_ptr() & 15}" for number in numbers if number not in aligned
        ]
        tests.append(f"current_device() != {self._device}")
        self._lines += [
            f"if not fits({', '.join(f't{number}' for number in numbers)}): return OTHER",
            *(f"a{number} = t{number}.data_ptr()" for number in numbers),
            f"if {' or '.join(tests)}: return OTHER",
        ]

    def _steps(self, plan: Plan) -> list[str]:
        lines = []
        number = len(self.tensors)
        for key, alignment in plan.buffers:
            lines += [
                f"t{number} = BUFFERS.get({self._name(key)})",
                f"if t{number} is None or (a{number} := t{number}.data_ptr()) & 15 != {alignment}: return UNPLANNED",
            ]
            number += 1
        for allocate, shape, strides, dtype in plan.fresh:
            lines += [
                f"t{number} = native.{allocate}({shape}, {strides}, {self._name(dtype)})",
                f"if (a{number} := t{number}.data_ptr()) & 15: return UNPLANNED",
            ]
            number += 1
        if plan.kernels:
            hooks = " or ".join(f"{self._name(kernel)}.pre_run_hooks" for kernel in plan.kernels)
            lines += [f"if {hooks}: return UNPLANNED", f"stream = current_stream({self._device})"]
        for step in plan.steps:
            if isinstance(step, Start):
                lines.append(step.text(self._name))
                continue
            arguments = [self._text(value) for value in step.args]
            arguments += [f"{name}={self._text(value)}" for name, value in step.kwargs.items()]
            made = f"t{number} = " if step.makes else ""
            number += step.makes
            lines.append(f"{made}{self._name(step.function)}({', '.join(arguments)})")
        results = ", ".join(self._text(view) for view in plan.results)
        if plan.returns is not None:
            results = f"[{results}]" if plan.returns is list else f"({results},)"
        return [*lines, f"return {results}"]

    def _text(self, value: Any) -> str:
        """Return Python text for a value: an expression for a view, a name for any other value."""
        if not isinstance(value, View):
            return self._name(value)
        root, shape, strides, offset, tracked = value
        if shape is None:
            return f"t{root}"
        if tracked:
            return f"t{root}.as_strided({shape}, {strides}, t{root}.storage_offset() + {offset})"
        # As code from torch.compile does: it takes half of the time of a view that autograd tracks.
        return f"reinterpret(t{root}, {shape}, {strides}, {offset})"

    def _name(self, value: Any) -> str:
        """Return Python text for a value: a literal for a small constant, a new name for any other value."""
        if value is None or type(value) in (bool, int):
            return repr(value)
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name
