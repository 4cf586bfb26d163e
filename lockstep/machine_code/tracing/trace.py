"""Trace the host side of a kernel, step by step, on tensors that have a shape but no content.

A variant is called on meta tensors. Launches are recorded (``recorded_launches``), and calls of torch pass through a
dispatch mode. Views and allocations are not steps: they cost nothing on the device, and their effect shows in the
arguments. Memory is finite, so the end of a trace states how many gigabytes were allocated.

To the code under test the tensors are on the target (``simulated_target``). A question that has no answer without a GPU
leaves the case without a trace, with the question as the reason. A trace proves nothing: ``docs/machine-code.md`` says
what it cannot see.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep.machine_code.model import Memory
from lockstep.machine_code.targets import Target
from lockstep.machine_code.tracing.device_memory import Allocations
from lockstep.machine_code.tracing.recorded_launches import Launch, Request, noted
from lockstep.machine_code.tracing.tensor_contents import content_of, made_by
from lockstep.machine_code.tracing.trace_listener import capturing, heard_by
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import buffers_of, inputs_of
from lockstep.suite.inputs import Draw
from lockstep.suite.missing_files import without_tree
from lockstep.suite.variants import Family, NotInCommit, takes_out

ALLOCATIONS = frozenset(
    {
        "aten.empty.memory_format",
        "aten.empty_strided.default",
        "aten.empty_like.default",
        "aten.new_empty.default",
        "aten.new_empty_strided.default",
    }
)


#: Allocations of a case are stated in whole units of this many bytes.
GIGABYTE = 1 << 30


class Trace:
    """The steps of one case's host side: launches and calls of torch. Tensors are numbered by storage, as they appear.

    Attributes:
        steps: one line for each step.
        requests: requests to compile for the launches among the steps, in order.
        unknown: why the trace cannot be trusted, or "".
        muted: whether launches and calls of torch are not added to the steps, as during the first of two calls.
        allocated: bytes allocated by the code under test itself.
        memory: device memory of the call; ``None`` until the call has ended, and for a case without a trace.
    """

    def __init__(self, *, contents: bool = False) -> None:
        """Start an empty trace.

        Args:
            contents: whether steps show the contents of tensors.
        """
        self._contents = contents
        self.steps: list[str] = []
        self.requests: list[Request] = []
        self.unknown = ""
        self.muted = False
        self.allocated = 0
        self.memory: Memory | None = None
        self._first: list[Launch] = []
        self._traced: set[Any] = set()
        self._numbers: dict[int, int] = {}
        self._places: dict[int, int] = {}
        # A weak reference prevents reuse of a freed storage's identity by another storage.
        self._seen: dict[int, tuple[StorageWeakRef, int]] = {}

    def distrust(self, reason: str) -> None:
        """Record why this trace cannot be trusted; only the first reason is stored."""
        self.unknown = self.unknown or reason

    def launch(self, launch: Launch) -> None:
        """Add a launch to the trace's steps; while ``muted``, store the launch for ``end``."""
        if self.muted:
            self._first.append(launch)
        else:
            self._traced.add(_identity(launch))
            self._add(launch, "launch")

    def end(self) -> None:
        """Add to the trace the launches that only the first call makes: they may fill tensors that later calls read."""
        for launch in self._first:
            if _identity(launch) not in self._traced:
                self._add(launch, "first call: launch")
        self._first.clear()

    @property
    def storages(self) -> dict[int, int]:
        """Return the storages in the steps so far that are still alive: bytes on the device by identity."""
        return {identity: size for identity, (reference, size) in self._seen.items() if not reference.expired()}

    def _add(self, launch: Launch, what: str) -> None:
        self.requests.append(launch.request)
        grid = "×".join(str(size) for size in launch.grid)
        self.steps.append(f"{what} [{grid}] ({', '.join(self.spell(argument) for argument in launch.arguments)})")

    def step(self, step: str) -> None:
        """Add to the trace a step of the host side that is neither a launch nor a call of a torch operator."""
        if not self.muted:
            self.steps.append(step)

    def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Add a call of a torch operator to the trace's steps, with the call's arguments and result."""
        arguments = [self.spell(value) for value in args]
        arguments += [f"{key}={self.spell(value)}" for key, value in kwargs.items() if key != "device"]
        self.steps.append(f"{name}({', '.join(arguments)}) → {self.spell(result)}")

    def make(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Record which operator made tensors in a call that is not a step, because kernels may read their content."""
        new = [tensor for tensor in _tensors(result) if tensor.untyped_storage()._cdata not in self._numbers]
        if new:
            alone = Trace(contents=True)
            alone.call(name, args, kwargs, None)
            made_by(alone.steps[0], new)

    def spell(self, value: Any) -> str:
        """Return a value as text without addresses: ``t0 bf16[8,4096]``, with unusual strides or offset."""
        if isinstance(value, torch.Tensor):
            return self._spell_tensor(value)
        if isinstance(value, list | tuple):
            return f"[{', '.join(self.spell(item) for item in value)}]"
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            parts = [
                f"{attribute.name}={self.spell(getattr(value, attribute.name))}"
                for attribute in dataclasses.fields(value)
            ]
            return f"{type(value).__name__}({', '.join(parts)})"
        text = repr(value)
        return getattr(value, "__name__", type(value).__name__) if " at 0x" in text else text

    def place(self, tensor: torch.Tensor) -> int:
        """Return a made-up address for a tensor without memory: storages lie at round numbers, far apart."""
        number = self._places.setdefault(self._storage(tensor), len(self._places) + 1)
        return (number << 40) + int(tensor.storage_offset()) * tensor.element_size()

    def _spell_tensor(self, tensor: torch.Tensor) -> str:
        number = self._numbers.setdefault(self._storage(tensor), len(self._numbers))
        dtype = str(tensor.dtype).removeprefix("torch.").replace("bfloat", "bf").replace("float", "f")
        text = f"t{number} {dtype}[{','.join(str(size) for size in tensor.shape)}]"
        if tensor.stride() != _usual_strides(tensor.shape):
            text += f" by {','.join(str(step) for step in tensor.stride())}"
        marks = [f"on {tensor.device.type}"] if tensor.device.type != "meta" else []
        marks += ["conjugated"] if tensor.is_conj() else []
        marks += ["negated"] if tensor.is_neg() else []
        marks += [f"holding {content}"] if self._contents and (content := content_of(tensor)) else []
        text = " ".join([text, *marks])
        return text + (f" at {tensor.storage_offset()}" if tensor.storage_offset() else "")

    def _storage(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        identity: int = storage._cdata
        if identity not in self._numbers and identity not in self._places:
            self._seen[identity] = StorageWeakRef(storage), storage.nbytes() if tensor.device.type == "meta" else 0
        return identity


def _identity(launch: Launch) -> Any:
    """Return a key that is equal for two launches if they differ only in their tensors and these have equal shapes."""
    alone = Trace()
    spelled = [alone.spell(argument).partition(" ")[2] if isinstance(argument, torch.Tensor) else alone.spell(argument)
               for argument in launch.arguments]  # fmt: skip
    return id(launch.request), launch.grid, tuple(spelled)


def _usual_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a new tensor. ``is_contiguous`` ignores dimensions of size 1, whose strides matter too."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def trace_case(
    suite: Suite, case: Case, family: Family, variant: str, target: Target, packages: frozenset[str]
) -> Trace:
    """Return the trace of ``variant`` at ``case`` for ``target``: its offline preparation, then the call.

    Args:
        variant: name of a variant in the family.
        target: the target that Triton compiles for.
        packages: top-level packages with code under test.

    Raises:
        NotInCommit: the tree lacks what the variant imports.
    """
    _forget(packages, len(sys.modules))
    trace = Trace(contents=True)
    call = family.variants[variant]
    new = Draw("meta", 0)
    try:
        inputs = inputs_of(suite, case, new)
        with noted(target, trace.launch), heard_by(trace.distrust, trace.step, trace.place):
            with _Calls(trace):
                arguments = family.arguments(variant, inputs)
            out = buffers_of(suite, case, new)
            if out is not None and takes_out(call):
                arguments["out"] = out
            inputs_text = ", ".join(f"{name}={trace.spell(arguments[name])}" for name in sorted(arguments))
            trace.steps.append(f"given {inputs_text}")
            known = trace.storages
            # The first call fills what the code stores between calls; the second is like every later call.
            trace.muted = True
            with _Calls(trace):
                call(**arguments)
            trace.muted, allocations = False, Allocations()
            with capturing(), _Calls(trace, allocations):
                call(**arguments)
            # A tensor that the call uses but neither got nor made was stored by the code, perhaps before this case.
            used = {storage for storage in trace.storages if storage not in known and storage not in allocations}
            trace.end()
            remaining = {
                storage: size for storage, size in trace.storages.items() if storage in used
            } | allocations.live
            if not trace.unknown:
                trace.memory = Memory(allocations.count, allocations.peak, sum(remaining.values()))
            if trace.allocated >= GIGABYTE:
                trace.steps.append(f"allocates {trace.allocated // GIGABYTE} GiB")
    except NotInCommit:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, NotImplementedError) and _raised_in(error) in packages:
            # The variant itself refuses this shape or GPU, and would do so on a GPU as well.
            trace.steps.append(f"refuses: {_first_line(error)}")
        else:
            trace.distrust(f"cannot be followed without a GPU ({type(error).__name__}: {_first_line(error)})")
    if not trace.steps or trace.steps[-1].startswith("given "):
        trace.distrust("launches nothing and calls nothing of torch, as far as can be seen")
    return trace


def _forget(packages: frozenset[str], modules: int) -> None:
    """Empty the caches of the code under test, so that results stored in an earlier case do not affect this one."""
    for clear in _caches(packages, modules):
        clear()


@functools.lru_cache(maxsize=1)
def _caches(packages: frozenset[str], modules: int) -> list[Callable[[], None]]:
    """Return ``cache_clear`` of each cached function in the packages.

    The result is cached; ``modules``, the number of loaded modules, is part of the cache's key.
    """
    own_modules = [module for name, module in sys.modules.items() if name.partition(".")[0] in packages]
    values = [value for module in own_modules for value in vars(module).values()]
    members = [part for value in values if isinstance(value, type) for part in vars(value).values()]
    clearing = (getattr(value, "cache_clear", None) for value in (*values, *members))
    return [clear for clear in clearing if callable(clear)]


def _raised_in(error: BaseException) -> str:
    """Return the top-level package of the function that raised an error."""
    last = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        last = frame
    return str(last.f_globals.get("__name__", "")).split(".", 1)[0] if last else ""


def _first_line(error: BaseException) -> str:
    return without_tree(str(error).strip().split("\n", 1)[0])


class _Mode(TorchDispatchMode):
    """A dispatch mode that does not make torch import its compiler, because that import takes as long as torch's."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _Calls(_Mode):
    """Records each operator that runs on a device, and what it allocates there."""

    def __init__(self, trace: Trace, allocations: Allocations | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._trace = trace
        self._allocations = allocations or Allocations()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            result = func(*args, **(kwargs or {}))
        except Exception as error:
            # Recorded at once, because the caller may treat the error as a refusal and take another branch.
            self._trace.distrust(f"cannot be followed without a GPU ({_first_line(error)})")
            raise
        if torch.Tag.nondeterministic_seeded in func.tags and "cpu" in _device_types(result):
            self._trace.distrust(f"draws random numbers on the CPU ({func})")
        if func.namespace not in ("aten", "prims") or func.__name__.partition(".")[0] not in operators():
            self._trace.distrust(f"calls the operator {func.namespace}::{func.__name__}, whose code is not torch's")
        if any(tensor_type.__torch_dispatch__ != torch.Tensor.__torch_dispatch__ for tensor_type in types):
            self._trace.distrust("uses tensors that have operators of their own (__torch_dispatch__)")
        self._allocations.note((args, kwargs), result)
        if str(func) in ALLOCATIONS:
            self._trace.allocated += 0 if self._trace.muted else result.numel() * result.element_size()
        elif not func.is_view:
            note = self._trace.make if self._trace.muted else self._trace.call
            note(str(func), args, kwargs or {}, result)
        return result


class Importing(_Mode):
    """Records which operators make tensors while modules are imported, because kernels may read these tensors later."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if str(func) not in ALLOCATIONS and not func.is_view:
            Trace().make(str(func), args, kwargs or {}, result)
        return result


@functools.cache
def operators() -> frozenset[str]:
    """Return the names of torch's own operators that exist after its import: "add", "_softmax"."""
    names = (name.partition("::") for name in torch._C._dispatch_get_all_op_names())
    return frozenset(name.partition(".")[0] for space, _, name in names if space in ("aten", "prims"))


def _device_types(result: Any) -> set[str]:
    """Return the types of the devices that the tensors of a result are on."""
    return {part.device.type for part in _tensors(result)}


def _tensors(result: Any) -> list[torch.Tensor]:
    parts = result if isinstance(result, list | tuple) else [result]
    return [part for part in parts if isinstance(part, torch.Tensor)]
