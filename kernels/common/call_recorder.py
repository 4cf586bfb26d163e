"""Record the launches of a function's first call as a plan, which later calls repeat (``kernels.common.call_plan``).

Every tensor that a launch takes must be an argument of the call, a workspace, memory that the call allocated, the
result of a library call, or a view of one of these. A call that uses another tensor, or computes with torch in another
way, gets no plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.common import workspace
from kernels.common.plan_code import Fresh, Plan, PlanCode, Product, Run, View
from kernels.common.triton_launcher import Described, Place, Start, Unsupported, cuda_functions, is_plain

T = TypeVar("T")
_aten = torch.ops.aten

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


class _Launch(NamedTuple):
    kernel: Any
    compiled: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]


class _Library(NamedTuple):
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


class Recorder(TorchDispatchMode):
    """Records a call's allocations, launches and computations with torch while the recorder is entered.

    Args:
        code: code that recognises calls like this one. The tensors among its arguments are all different.
    """

    def __init__(self, code: PlanCode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._code = code
        self._inputs = list(code.tensors)
        self._fresh: list[torch.Tensor] = []
        self._steps: list[_Launch | _Library] = []
        self._in_library = False
        self._workspaces = len(workspace.BUFFERS)
        self.refusal = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator of torch, and record the operator's effect on the plan."""
        result = func(*args, **(kwargs or {}))
        if self._in_library:
            return result
        if func in _ALLOCATING:
            self._fresh.append(result)
        elif not func.is_view:
            self._refuse(f"the call runs {func}")
        return result

    @property
    def again(self) -> bool:
        """Return whether to record the next call too: the recorded call has no plan, but it made a workspace."""
        return bool(self.refusal) and len(workspace.BUFFERS) > self._workspaces

    def _refuse(self, reason: str) -> None:
        self.refusal = self.refusal or reason

    def launch(
        self, kernel: Any, compiled: Any, grid: Sequence[int], arguments: Sequence[Any], options: dict[str, Any]
    ) -> None:
        """Record a kernel launch that the call has made."""
        if not is_plain(kernel) or callable(grid):
            self._refuse(f"the call launches a {type(kernel).__name__}, or its grid is a function")
            return
        bound = dict(zip(kernel.arg_names, arguments, strict=False))
        bound |= {name: value for name, value in options.items() if name in kernel.arg_names}
        self._steps.append(_Launch(kernel, compiled, tuple(grid), bound))

    def library(self, function: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Call a function that computes with torch alone, and record the call."""
        self._in_library = True
        try:
            result = function(*args, **kwargs)
        finally:
            self._in_library = False
        self._steps.append(_Library(function, args, kwargs, result))
        return result

    def function(self, result: Any) -> Run:
        """Return the function for calls like the recorded one, which returned ``result``.

        The function returns ``UNPLANNED`` if the call cannot have a plan.
        """
        if not self._steps:
            self._refuse("the call launches nothing")
        if not self.refusal:
            try:
                return self._code.function(self._plan(result))
            except Exception as error:  # the call itself has succeeded, so an error here must not fail the call
                self._refuse(f"{type(error).__name__}: {error}")
        return self._code.function(None)

    def _plan(self, result: Any) -> Plan:
        roots = _Roots(self._inputs)
        used = {id(tensor) for step in self._steps for tensor in _tensors_of(step)} | {
            id(tensor) for tensor in _tensors(result)
        }
        buffers = []
        for key, buffer in list(workspace.BUFFERS.items()):
            if id(buffer) in used and not roots.has(buffer):
                roots.add(buffer)
                buffers.append((key, buffer.data_ptr() & 15))
        storages = {tensor.untyped_storage()._cdata for step in self._steps for tensor in _tensors_of(step)}
        storages |= {tensor.untyped_storage()._cdata for tensor in _tensors(result)}
        fresh = []
        for tensor in self._fresh:
            if tensor.untyped_storage()._cdata in storages and not roots.has(tensor):
                fresh.append(self._allocation(tensor))
                roots.add(tensor, guarded=True)
        steps: list[Start | Product] = []
        kernels = []
        for step in self._steps:
            if isinstance(step, _Launch):
                if any(roots.is_made(tensor) for tensor in _tensors_of(step)):
                    raise Unsupported("a kernel takes the result of a library call")
                values = {name: roots.argument(value) for name, value in step.arguments.items()}
                steps.append(Start(step.compiled, step.grid, values))
                kernels.append(step.kernel)
            else:
                args = tuple(roots.value(argument) for argument in step.args)
                kwargs = {name: roots.value(argument) for name, argument in step.kwargs.items()}
                makes = isinstance(step.result, torch.Tensor) and not roots.hold(step.result)
                steps.append(Product(step.function, args, kwargs, makes))
                if makes:
                    roots.add(step.result, made=True)
        returns = tuple if type(result) is tuple else list if type(result) is list else None
        if returns is None and not isinstance(result, torch.Tensor):
            raise Unsupported(f"the call returns a {type(result).__name__}, not tensors")
        results = tuple(roots.view(part) for part in (result if returns else (result,)))
        return Plan(tuple(buffers), tuple(fresh), tuple(kernels), tuple(steps), results, returns)

    def _allocation(self, tensor: torch.Tensor) -> Fresh:
        if not tensor.is_contiguous() or tensor.data_ptr() & 15 or tensor.device != self._inputs[0].device:
            raise Unsupported(
                "the call allocates a tensor that is not contiguous, not aligned to 16 bytes, or on another GPU"
            )
        current_device, _ = cuda_functions()
        if tensor.device.index != current_device():
            raise Unsupported("the call's arguments are not on the current GPU")
        # Code from torch.compile calls these functions, which take 0.4 µs; ``new_empty`` takes 1.1.
        allocate = "_empty_strided_cuda" if tensor.is_cuda else "_empty_strided_cpu"
        return Fresh(allocate, tuple(tensor.shape), tensor.stride(), tensor.dtype)


class _Roots:
    """The numbered tensors ("roots") that a plan finds again at each call. All other tensors are views of a root."""

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        self._roots: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}
        self._made: set[int] = set()
        self._guarded: set[int] = set()
        self._inference = torch.is_inference_mode_enabled()
        for tensor in inputs:
            self.add(tensor, guarded=True)

    def add(self, tensor: torch.Tensor, *, made: bool = False, guarded: bool = False) -> None:
        """Give a tensor a number.

        Args:
            made: whether a library call returned the tensor.
            guarded: whether the plan ensures that torch treats the tensor alike at each call.
        """
        for number, holds in ((self._made, made), (self._guarded, guarded)):
            if holds:
                number.add(len(self._roots))
        self._numbers[id(tensor)] = len(self._roots)
        self._roots.append(tensor)

    def is_made(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor lies in a library call's result. No kernel may take it, as its alignment may vary."""
        return self._root(tensor) in self._made

    def has(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._numbers

    def hold(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor shares memory with a root, such as the result of a library function with ``out``."""
        storage = tensor.untyped_storage()._cdata
        return any(root.untyped_storage()._cdata == storage for root in self._roots)

    def argument(self, value: Any) -> Any:
        """Return a launch's argument as ``Start`` takes it: for a tensor, its root and its offset in the root."""
        if isinstance(value, torch.Tensor):
            return self._place(value)
        base = getattr(value, "base", None)
        return Described(self._place(base), value) if isinstance(base, torch.Tensor) else value

    def _place(self, tensor: torch.Tensor) -> Place:
        root = self._root(tensor)
        return Place(root, tensor.data_ptr() - self._roots[root].data_ptr())

    def _root(self, tensor: torch.Tensor) -> int:
        if id(tensor) in self._numbers:
            return self._numbers[id(tensor)]
        storage = tensor.untyped_storage()._cdata
        matches = [number for number, root in enumerate(self._roots) if root.untyped_storage()._cdata == storage]
        if len(matches) != 1:
            raise Unsupported("a tensor comes from outside the call" if not matches else "arguments share memory")
        return matches[0]

    def view(self, value: Any) -> View:
        """Return a tensor that a library function takes, or that the call returns, as a view of its root."""
        if not isinstance(value, torch.Tensor):
            raise Unsupported(f"the call returns a {type(value).__name__} in place of a tensor")
        root = self._root(value)
        base = self._roots[root]
        if value is base:
            return View(root)
        if value.dtype != base.dtype or value.device != base.device:
            raise Unsupported("a view has another dtype than the viewed tensor")
        same_mode = root in self._guarded and base.is_inference() is self._inference
        offset = int(value.storage_offset() - base.storage_offset())
        return View(root, tuple(value.shape), value.stride(), offset, tracked=base.requires_grad or not same_mode)

    def value(self, value: Any) -> Any:
        """Return ``view(value)`` for a tensor. Return any value that holds no tensor unchanged."""
        if isinstance(value, torch.Tensor):
            return self.view(value)
        if value is not None and not isinstance(value, bool | int | float | str):
            raise Unsupported(f"a library function takes a {type(value).__name__}")
        return value


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _tensors(part)]
    base = getattr(value, "base", None)
    return [base] if isinstance(base, torch.Tensor) else []


def _tensors_of(step: _Launch | _Library) -> list[torch.Tensor]:
    if isinstance(step, _Launch):
        return _tensors(list(step.arguments.values()))
    return [*_tensors(step.args), *_tensors(list(step.kwargs.values()))]
