"""Record what a call allocates and launches, and make a plan of it.

Every tensor that a step takes must be an argument of the call, a workspace, memory that the call allocated, or a view
of one of these. A call that uses another tensor, or computes with torch in another way, gets no plan.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from kernels.call_plans.launcher import RUN, Place, Unsupported, launch_text
from kernels.common import cublaslt, workspace

_aten = torch.ops.aten

#: Views memory: tensor, shape, strides, offset in elements → tensor. ``Tensor.as_strided`` takes twice as long.
_view: Any = torch._C._dynamo.guards._reinterpret_tensor  # type: ignore[attr-defined]

#: Operators that return new memory without content.
_ALLOCATING = frozenset(
    {
        _aten.empty.memory_format,
        _aten.empty_like.default,
        _aten.empty_strided.default,
        _aten.new_empty.default,
        _aten.new_empty_strided.default,
    }
)

#: Operators that write a product into ``out``, and the functions of torch that call them.
_PRODUCTS: dict[Any, Callable[..., Any]] = {
    _aten.mm.out: torch.mm,
    _aten.addmm.out: torch.addmm,
    _aten.bmm.out: torch.bmm,
}


class _Product(NamedTuple):
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Called(NamedTuple):
    """A function of the addresses of tensors, and of the stream."""

    function: Callable[..., None]
    tensors: Sequence[torch.Tensor]


@dataclass(frozen=True)
class Plan:
    """The steps of a call. Tensors have numbers: those among the arguments, then ``buffers``, then ``fresh``.

    Attributes:
        current_stream: Triton's function that returns the current stream of a GPU.
        buffers: the key of each workspace, and the remainder of its address modulo 16.
        fresh: shape, strides and dtype of each tensor to allocate on the current device.
        hooks: the hooks of each kernel. A call with a hook runs as it is written.
        run: function of all tensors, their addresses and the stream that launches, multiplies and returns the result.
            Python runs the text of a call in half the time of loops over its arguments.
    """

    current_stream: Callable[[int], int]
    buffers: tuple[tuple[Any, int], ...]
    fresh: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]
    hooks: tuple[list[Any], ...]
    run: Callable[[list[torch.Tensor], list[int], int], Any]


class _Launched(NamedTuple):
    kernel: Any
    compiled: Any
    grid: Any
    arguments: dict[str, Any]


class Recorder(TorchDispatchMode):
    """Records the allocations, launches and products of the thread that enters the recorder.

    Args:
        inputs: the tensors among the call's arguments, all different.
    """

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._roots = list(inputs)
        self._fresh: list[torch.Tensor] = []
        self._steps: list[_Launched | _Product | _Called] = []
        self._names: dict[str, Any] = {}
        self._workspaces = len(workspace.BUFFERS)
        self._refusal = ""

    @property
    def made_workspace(self) -> bool:
        """Return whether the call made a workspace, which it computes with torch."""
        return len(workspace.BUFFERS) > self._workspaces

    def __enter__(self) -> Recorder:
        thread = threading.get_ident()

        def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
            compiled = RUN(kernel, *args, grid=grid, warmup=warmup, **options)
            if threading.get_ident() == thread:
                bound = dict(zip(kernel.arg_names, args, strict=False)) | options
                self._steps.append(_Launched(kernel, compiled, grid, bound))
                # ``kernel[grid]`` is a lambda. An autotuner calls this function itself.
                if callable(grid) or warmup or sys._getframe(1).f_code.co_name != "<lambda>":
                    self._refusal = "the launch is tuned, or its grid is a function"
            return compiled

        def multiply(call: Callable[..., None], tensors: Sequence[torch.Tensor]) -> None:
            cublaslt.run_directly(call, tensors)
            if threading.get_ident() == thread:
                self._steps.append(_Called(call, tensors))

        JITFunction.run, cublaslt.RUN = run, multiply
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        JITFunction.run, cublaslt.RUN = RUN, cublaslt.run_directly

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator of torch, and record the operator's effect on the plan."""
        result = func(*args, **(kwargs or {}))
        if func in _ALLOCATING:
            self._fresh.append(result)
        elif func in _PRODUCTS:
            self._steps.append(_Product(_PRODUCTS[func], args, kwargs))
        elif not func.is_view:
            self._refusal = f"the call runs {func}"
        return result

    def plan(self, result: Any) -> Plan | None:
        """Return the plan of the recorded call, which returned ``result``; None if the call cannot have one."""
        if self._refusal or not self._steps:
            return None
        try:
            return self._plan(result)
        except Exception:  # the call itself has succeeded, so an error here must not fail the call
            return None

    def _plan(self, result: Any) -> Plan:
        device = self._roots[0].device
        if device.index != driver.active.get_current_device():
            raise Unsupported("the tensors are not on the current device")
        parts = list(result) if type(result) in (tuple, list) else [result]
        used = [part for part in parts if isinstance(part, torch.Tensor)]
        for step in self._steps:
            used += [base for one in _values(step) if isinstance(base := getattr(one, "base", one), torch.Tensor)]
        memory = {tensor.untyped_storage()._cdata for tensor in used}
        buffers = [(key, one) for key, one in workspace.BUFFERS.items() if one.untyped_storage()._cdata in memory]
        fresh = [tensor for tensor in self._fresh if tensor.untyped_storage()._cdata in memory]
        if any(not one.is_contiguous() or one.data_ptr() & 15 or one.device != device for one in fresh):
            raise Unsupported("an allocated tensor is not contiguous, not aligned, or on another GPU")
        self._roots += [*(buffer for _, buffer in buffers), *fresh]
        results = ", ".join(map(self._text, parts))
        returned = f"({results},)" if type(result) is tuple else f"[{results}]" if type(result) is list else results
        text = f"lambda t, a, stream: ({', '.join(map(self._step, self._steps))}, {returned})[-1]"
        return Plan(
            driver.active.get_current_stream,
            tuple((key, buffer.data_ptr() & 15) for key, buffer in buffers),
            tuple((tuple(one.shape), one.stride(), one.dtype) for one in fresh),
            tuple(step.kernel.pre_run_hooks for step in self._steps if isinstance(step, _Launched)),
            # The text names these values alone: it imports nothing, so this file shows all that a plan runs.
            FunctionType(compile(text, "<plan>", "eval"), self._names)(),
        )

    def _step(self, step: _Launched | _Product | _Called) -> str:
        if isinstance(step, _Launched):
            values = {name: self._argument(value) for name, value in step.arguments.items()}
            return launch_text(step.compiled, step.grid, values, self._name)
        if isinstance(step, _Called):
            addresses = [self._argument(tensor).text for tensor in step.tensors]
            return f"{self._name(step.function)}({', '.join(addresses)}, stream)"
        arguments = [*map(self._text, step.args), *(f"{name}={self._text(one)}" for name, one in step.kwargs.items())]
        return f"{self._name(step.function)}({', '.join(arguments)})"

    def _argument(self, value: Any) -> Any:
        """Return a launch's argument as ``launch_text`` takes it."""
        base = getattr(value, "base", None)
        descriptor = value if isinstance(base, torch.Tensor) else None
        tensor = base if descriptor is not None else value
        if not isinstance(tensor, torch.Tensor):
            return value
        root = self._root(tensor)
        return Place(root, tensor.data_ptr() - self._roots[root].data_ptr(), descriptor)

    def _name(self, value: Any) -> str:
        self._names[name := f"c{len(self._names)}"] = value
        return name

    def _text(self, value: Any) -> str:
        """Return Python text for a result or an argument of a product; for a tensor a view of the plan's tensor."""
        if value is None or type(value) in (bool, int, float, str):
            return self._name(value)
        if not isinstance(value, torch.Tensor):
            raise Unsupported(f"a product takes or returns a {type(value).__name__}")
        root = self._root(value)
        base = self._roots[root]
        if value is base:
            return f"t[{root}]"
        if value.dtype != base.dtype:
            raise Unsupported("a view has another dtype than the viewed tensor")
        # Autograd does not know that a view and the tensor share memory, as it does not know what a kernel writes.
        offset = int(value.storage_offset() - base.storage_offset())
        return f"{self._name(_view)}(t[{root}], {tuple(value.shape)}, {value.stride()}, {offset})"

    def _root(self, tensor: torch.Tensor) -> int:
        """Return the number of the plan's tensor that this tensor is, or that it is a view of."""
        for number, root in enumerate(self._roots):
            if root is tensor:
                return number
        memory = tensor.untyped_storage()._cdata
        matches = [number for number, root in enumerate(self._roots) if root.untyped_storage()._cdata == memory]
        if len(matches) != 1:
            raise Unsupported("a tensor comes from outside the call" if not matches else "arguments share memory")
        return matches[0]


def _values(step: _Launched | _Product | _Called) -> Iterable[Any]:
    if isinstance(step, _Launched):
        return step.arguments.values()
    return step.tensors if isinstance(step, _Called) else (*step.args, *step.kwargs.values())
