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
from kernels.common.triton_launcher import (
    UNPLANNED,
    Described,
    Place,
    Start,
    Unsupported,
    current_device,
    is_plain,
)

T = TypeVar("T")
_aten = torch.ops.aten
_native: Any = torch._C._dynamo.guards
_reinterpret_tensor = _native._reinterpret_tensor

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


class _View(NamedTuple):
    """A view of the plan's tensor number ``root``, from element ``offset`` on; with ``shape`` None the whole tensor."""

    root: int
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] = ()
    offset: int = 0


class _Fresh(NamedTuple):
    """Memory to allocate on the current device by torch's function ``allocate``, which takes the other values."""

    allocate: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


class Recorder(TorchDispatchMode):
    """Records a call's allocations, launches and computations with torch while the recorder is entered.

    Args:
        inputs: the tensors among the arguments of the call, in order, all different.
    """

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._inputs = list(inputs)
        self._fresh: list[torch.Tensor] = []
        self._steps: list[_Launch | _Library] = []
        self._in_library = False
        self.refusal = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator of torch, and record the operator's effect on the plan."""
        result = func(*args, **(kwargs or {}))
        if self._in_library:
            return result
        if func in _ALLOCATING:
            self._fresh.append(result)
        elif not func.is_view:
            self._refuse(f"it calls {func}")
        return result

    def _refuse(self, reason: str) -> None:
        self.refusal = self.refusal or reason

    def launch(
        self, kernel: Any, compiled: Any, grid: Sequence[int], arguments: Sequence[Any], options: dict[str, Any]
    ) -> None:
        """Record a launch that has been made."""
        if not is_plain(kernel) or callable(grid):
            self._refuse(f"it launches a {type(kernel).__name__}, or its grid is a function")
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

    def plan(self, result: Any) -> Plan | None:
        """Return the plan of the recorded call, which returned ``result``; None if the call cannot have a plan."""
        if not self._steps:
            self._refuse("it launches nothing")
        if self.refusal:
            return None
        try:
            return self._plan(result)
        except Exception as error:  # the call itself has succeeded, so an error here must not fail the call
            self._refuse(f"{type(error).__name__}: {error}")
            return None

    def _plan(self, result: Any) -> Plan:
        roots = _Roots(self._inputs)
        used = {id(one) for step in self._steps for one in _tensors_of(step)} | {id(one) for one in _tensors(result)}
        buffers = []
        for key, buffer in list(workspace.BUFFERS.items()):
            if id(buffer) in used and not roots.has(buffer):
                roots.add(buffer)
                buffers.append((key, buffer.data_ptr() & 15))
        storages = {one.untyped_storage()._cdata for step in self._steps for one in _tensors_of(step)}
        storages |= {one.untyped_storage()._cdata for one in _tensors(result)}
        fresh = []
        for one in self._fresh:
            if one.untyped_storage()._cdata in storages and not roots.has(one):
                fresh.append(self._allocation(one))
                roots.add(one)
        steps: list[Callable[[list[Any], list[int], int], None]] = []
        kernels = []
        for step in self._steps:
            if isinstance(step, _Launch):
                if any(roots.is_made(one) for one in _tensors_of(step)):
                    raise Unsupported("a kernel reads what a library call returned")
                values = {name: roots.argument(value) for name, value in step.arguments.items()}
                start = Start(step.compiled, step.grid, values)
                steps.append(_starting(start))
                kernels.append(step.kernel)
            else:
                args = [roots.value(one) for one in step.args]
                kwargs = {name: roots.value(one) for name, one in step.kwargs.items()}
                makes = isinstance(step.result, torch.Tensor) and not roots.hold(step.result)
                steps.append(_calling(step.function, args, kwargs, makes))
                if makes:
                    roots.add(step.result, made=True)
        returns = tuple if type(result) is tuple else list if type(result) is list else None
        if returns is None and not isinstance(result, torch.Tensor):
            raise Unsupported(f"it returns a {type(result).__name__}")
        results = [roots.view(one) for one in (result if returns else (result,))]
        return Plan(tuple(buffers), tuple(fresh), tuple(kernels), tuple(steps), tuple(results), returns)

    def _allocation(self, tensor: torch.Tensor) -> _Fresh:
        if not tensor.is_contiguous() or tensor.data_ptr() & 15 or tensor.device != self._inputs[0].device:
            raise Unsupported(
                "it allocates a tensor that is not contiguous, not aligned to 16 bytes, or not on its arguments' GPU"
            )
        if tensor.device.index != current_device():
            raise Unsupported("its arguments are not on the current GPU")
        # Code from torch.compile calls these functions, which take 0.4 µs; ``new_empty`` takes 1.1.
        allocate = "_empty_strided_cuda" if tensor.is_cuda else "_empty_strided_cpu"
        return _Fresh(allocate, tuple(tensor.shape), tensor.stride(), tensor.dtype)


class _Roots:
    """The numbered tensors ("roots") that a plan finds again at each call; it describes all others as their views."""

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        self._roots: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}
        self._made: set[int] = set()
        for one in inputs:
            self.add(one)

    def add(self, tensor: torch.Tensor, *, made: bool = False) -> None:
        if made:
            self._made.add(len(self._roots))
        self._numbers[id(tensor)] = len(self._roots)
        self._roots.append(tensor)

    def is_made(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor lies in a library call's result. No kernel may take it: its alignment may change."""
        return self._root(tensor) in self._made

    def has(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._numbers

    def hold(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor lies in a root, as the result of a library function that returns its ``out``."""
        storage = tensor.untyped_storage()._cdata
        return any(one.untyped_storage()._cdata == storage for one in self._roots)

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
        found = [number for number, one in enumerate(self._roots) if one.untyped_storage()._cdata == storage]
        if len(found) != 1:
            raise Unsupported("a tensor comes from outside the call" if not found else "arguments share memory")
        return found[0]

    def view(self, value: Any) -> _View:
        """Describe a tensor that a library function takes or the call returns as a view of a root."""
        if not isinstance(value, torch.Tensor):
            raise Unsupported(f"a {type(value).__name__} where a tensor was expected")
        root = self._root(value)
        base = self._roots[root]
        if value is base:
            return _View(root)
        if value.dtype != base.dtype or value.device != base.device:
            raise Unsupported("a view has another dtype")
        return _View(root, tuple(value.shape), value.stride(), int(value.storage_offset() - base.storage_offset()))

    def value(self, value: Any) -> Any:
        """Return ``view(value)`` for a tensor. Return any value that holds no tensor unchanged."""
        if isinstance(value, torch.Tensor):
            return self.view(value)
        if value is not None and not isinstance(value, bool | int | float | str):
            raise Unsupported(f"a {type(value).__name__} for a library function")
        return value


class Plan(NamedTuple):
    """The steps of a call: find workspaces, allocate, launch, and return tensors or views of them.

    The numbers of tensors count the arguments first, then ``buffers``, ``fresh`` and the results of library calls.
    """

    buffers: tuple[tuple[Any, int], ...]
    fresh: tuple[_Fresh, ...]
    kernels: tuple[Any, ...]
    steps: tuple[Callable[[list[Any], list[int], int], None], ...]
    results: tuple[_View, ...]
    returns: Callable[[Any], Any] | None

    def run(self, tensors: list[Any], addresses: list[int], stream: int) -> Any:
        """Run the plan for a call's tensors at ``addresses``. Launch nothing and return ``UNPLANNED`` if it cannot."""
        for key, alignment in self.buffers:
            buffer = workspace.BUFFERS.get(key)
            if buffer is None or buffer.data_ptr() & 15 != alignment:
                return UNPLANNED
            tensors.append(buffer)
            addresses.append(buffer.data_ptr())
        for allocate, shape, strides, dtype in self.fresh:
            new = getattr(_native, allocate)(shape, strides, dtype)
            address = new.data_ptr()
            if address & 15:
                return UNPLANNED
            tensors.append(new)
            addresses.append(address)
        for kernel in self.kernels:
            if kernel.pre_run_hooks:
                return UNPLANNED
        for step in self.steps:
            step(tensors, addresses, stream)
        found = _found(self.results, tensors)
        return found[0] if self.returns is None else self.returns(found)


def _found(values: Sequence[Any], tensors: list[Any]) -> list[Any]:
    """Return the tensors that views locate, and other values unchanged."""
    inference = torch.is_inference_mode_enabled()
    found: list[Any] = []
    number = -1
    for value in values:
        if type(value) is not _View:
            found.append(value)
            continue
        root, shape, strides, offset = value
        if root != number:  # most views are of one root
            number, tensor = root, tensors[root]
            tracked = tensor.requires_grad or tensor.is_inference() is not inference
        if shape is None:
            found.append(tensor)
        elif tracked:
            found.append(tensor.as_strided(shape, strides, tensor.storage_offset() + offset))
        else:
            # As code from torch.compile does: it takes a third of the time of a view that autograd tracks.
            found.append(_reinterpret_tensor(tensor, shape, strides, offset))
    return found


def _starting(start: Start) -> Callable[[list[Any], list[int], int], None]:
    return lambda _tensors, addresses, stream: start(addresses, stream)


def _calling(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], makes: bool
) -> Callable[[list[Any], list[int], int], None]:
    given, count, names = [*args, *kwargs.values()], len(args), tuple(kwargs)

    def call(tensors: list[Any], addresses: list[int], _stream: int) -> None:
        found = _found(given, tensors)
        result = function(*found[:count], **dict(zip(names, found[count:], strict=True)))
        if makes:
            tensors.append(result)
            addresses.append(result.data_ptr())

    return call


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [one for part in value for one in _tensors(part)]
    base = getattr(value, "base", None)
    return [base] if isinstance(base, torch.Tensor) else []


def _tensors_of(step: _Launch | _Library) -> list[torch.Tensor]:
    if isinstance(step, _Launch):
        return _tensors(list(step.arguments.values()))
    return [*_tensors(step.args), *_tensors(list(step.kwargs.values()))]
