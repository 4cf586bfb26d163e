"""Trace the host side of a kernel, step by step, on tensors that have a shape but no content.

A variant is called on meta tensors. Launches are recorded (``recorded_launches``), and calls of torch pass through a
dispatch mode. Views and allocations are not steps: they cost nothing on the device, and their effect shows in the
arguments.

To the code under test the tensors are on the target (``simulated_target``). A question that has no answer without a GPU
leaves the case without a trace, with the question as the reason. A trace proves nothing: ``docs/machine-code.md`` says
what it cannot see.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch._prims_common import make_contiguous_strides_for
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_iter

from lockstep.machine_code.model import Call
from lockstep.machine_code.targets import Target
from lockstep.machine_code.tracing.operators import OF_TORCH, python_kernel
from lockstep.machine_code.tracing.recorded_launches import Request, noted
from lockstep.machine_code.tracing.sources import Frames, Sources
from lockstep.machine_code.tracing.trace_listener import Listener, heard_by
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import buffers_of, inputs_of
from lockstep.suite.inputs import Draw
from lockstep.suite.missing_files import without_tree
from lockstep.suite.variants import Family, NotInCommit, takes_out

#: Operators that allocate and compute nothing.
ALLOCATIONS = {
    *("aten.empty.memory_format", "aten.empty_strided.default", "aten.empty_like.default"),
    *("aten.new_empty.default", "aten.new_empty_strided.default"),
}


class Step(NamedTuple):
    """One step of the host side as text, and for a launch its request to compile and its tuner's configuration."""

    text: str
    request: Request | None = None
    configuration: str = ""


class Trace(TorchDispatchMode):
    """The steps of one case's host side: launches and calls of torch. Tensors are numbered by storage, as they appear.

    While it is entered, as a dispatch mode, it records each call of a torch operator.

    Attributes:
        obstacles: why the trace cannot be trusted: the code's questions, and the line that asks each first.
        refusal: the words with which the code refuses the case, or "".
        call: what the last call did; ``None`` until a call has ended, and for a case without a trace.
    """

    def __init__(self, sources: Sources) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[Step] = []
        self.obstacles: dict[str, str] = {}
        self.refusal = ""
        self._sources = sources
        self.call: Call | None = None
        self._numbers: dict[int, int] = {}
        self._places: dict[int, int] = {}
        # A weak reference prevents reuse of a freed storage's identity by another storage.
        self._seen: dict[int, tuple[StorageWeakRef, int]] = {}
        self._given: frozenset[int] = frozenset()
        self._used: set[int] = set()
        self._made: set[int] = set()
        self._peak = self._operators = 0

    def distrust(self, reason: str, frames: Frames = ()) -> None:
        """Record why this trace cannot be trusted, unless a module asks while it is imported.

        ``frames`` are those of an error that ended the call, the innermost first.
        """
        stack = frames or list(traceback.walk_stack(sys._getframe(1)))
        if frames or not self._sources.note_import(reason, stack):
            self.obstacles.setdefault(reason, self._sources.line(stack))

    def launch(self, request: Request, grid: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        """Add a launch to the steps."""
        configuration = Listener.configuration
        text = f"launch [{'×'.join(map(str, grid))}] ({', '.join(map(self.spell, arguments))})"
        self.steps.append(Step(f"with {configuration}: {text}" if configuration else text, request, configuration))

    def step(self, text: str) -> None:
        """Add a step that is not a launch."""
        self.steps.append(Step(text))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        foreign = func.namespace not in OF_TORCH
        if foreign and (key := python_kernel(func)) is not None:
            with self:  # what the function launches and calls are the steps
                return func._op_dk(key, *args, **(kwargs or {}))
        try:
            result = func(*args, **(kwargs or {}))
        except Exception as error:
            # Recorded at once, because the caller may treat the error as a refusal and take another branch.
            self.distrust(f"cannot be followed without a GPU ({_first_line(error)})")
            raise
        on_cpu = any(part.device.type == "cpu" for part in _tensors(result))
        if on_cpu and torch.Tag.nondeterministic_seeded in func.tags:
            self.distrust(f"draws random numbers on the CPU ({func})")
        if foreign:
            self.distrust(f"calls the operator {func.namespace}::{func.__name__}, whose code is not torch's")
        if any(tensor_type.__torch_dispatch__ != torch.Tensor.__torch_dispatch__ for tensor_type in types):
            self.distrust("uses tensors that have operators of their own (__torch_dispatch__)")
        self._add_operator(func, args, kwargs or {}, result)
        return result

    def _add_operator(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Record what a torch operator allocated; add a step unless the operator is a view or only allocates."""
        for tensor in _tensors((args, kwargs)):
            self._storage(tensor)
        for tensor in _tensors(result):
            if tensor.untyped_storage()._cdata not in self._seen and self._seen[identity := self._storage(tensor)][1]:
                self._made.add(identity)
                self._peak = max(self._peak, self._live(self._made))
        if str(func) in ALLOCATIONS or func.is_view:
            return
        self._operators += 1
        arguments = [self.spell(value) for value in args]
        arguments += [f"{key}={self.spell(value)}" for key, value in kwargs.items() if key != "device"]
        self.step(f"{func}({', '.join(arguments)}) → {self.spell(result)}")

    def give(self, arguments: Mapping[str, Any]) -> None:
        """Add a step that lists the arguments of the calls that follow."""
        self.step(f"given {', '.join(f'{name}={self.spell(arguments[name])}' for name in sorted(arguments))}")
        self._given = frozenset(self._seen)

    def steps_of(self, function: Callable[[], object]) -> list[Step]:
        """Return the steps of a call, and do not add them; store what the call did.

        Numbers of new tensors follow those of the steps so far.
        """
        steps, numbers = self.steps, self._numbers
        self.steps, self._numbers, self._used, self._made = [], dict(numbers), set(), set()
        self._peak = self._operators = 0
        try:
            with self:
                function()
            # A tensor that the call used but neither got nor made was stored by the code, perhaps in an earlier case.
            kept = self._live(self._used - self._given)
            first, count = (sum(step.request is not None for step in part) for part in (steps, self.steps))
            call = Call(first, first + count, self._operators, len(self._made), self._peak, kept)
            self.call = None if self.obstacles else call
            return self.steps
        finally:
            self.steps, self._numbers = steps, numbers

    def _live(self, identities: set[int]) -> int:
        """Return the bytes of these storages that are still alive."""
        return sum(size for each in identities for reference, size in [self._seen[each]] if not reference.expired())

    def spell(self, value: Any) -> str:
        """Return a value as text without addresses: ``t0 bf16[8,4096]``, with unusual strides or offset."""
        if isinstance(value, torch.Tensor):
            return self._spell_tensor(value)
        if isinstance(value, list | tuple):
            return f"[{', '.join(self.spell(item) for item in value)}]"
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            # Without defaults, so that a newer Triton's further fields of a descriptor are no difference.
            parts = [
                f"{attribute.name}={self.spell(getattr(value, attribute.name))}"
                for attribute in dataclasses.fields(value)
                if attribute.default is dataclasses.MISSING or getattr(value, attribute.name) != attribute.default
            ]
            return f"{type(value).__name__}({', '.join(parts)})"
        text = repr(value)
        return getattr(value, "__name__", type(value).__name__) if " at 0x" in text else text

    def place(self, storage: torch.UntypedStorage, offset: int) -> int:
        """Return a made-up address for a byte of a storage without memory; storages lie far apart."""
        return (self._places.setdefault(self._identity(storage), len(self._places) + 1) << 40) + offset

    def _spell_tensor(self, tensor: torch.Tensor) -> str:
        number = self._numbers.setdefault(self._storage(tensor), len(self._numbers))
        dtype = str(tensor.dtype).removeprefix("torch.").replace("bfloat", "bf").replace("float", "f")
        text = f"t{number} {dtype}[{','.join(str(size) for size in tensor.shape)}]"
        # ``is_contiguous`` ignores dimensions of size 1, whose strides matter too.
        if tensor.stride() != make_contiguous_strides_for(tensor.shape):
            text += f" by {','.join(str(step) for step in tensor.stride())}"
        marks = [f"on {tensor.device.type}"] if tensor.device.type != "meta" else []
        marks += ["conjugated"] if tensor.is_conj() else []
        marks += ["negated"] if tensor.is_neg() else []
        marks += [f"holding {_content(tensor)}"] if tensor.device.type == "cpu" else []
        text = " ".join([text, *marks])
        return text + (f" at {tensor.storage_offset()}" if tensor.storage_offset() else "")

    def _storage(self, tensor: torch.Tensor) -> int:
        return self._identity(tensor.untyped_storage())

    def _identity(self, storage: torch.UntypedStorage) -> int:
        identity: int = storage._cdata
        self._used.add(identity)
        if identity not in self._seen:
            self._seen[identity] = StorageWeakRef(storage), storage.nbytes() if storage.device.type == "meta" else 0
        return identity


def _content(tensor: torch.Tensor) -> str:
    """Return a digest of the whole storage of a tensor on the CPU, such as indices or bounds: a kernel may read it."""
    with _disable_current_modes():
        content: Any = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()
        return hashlib.sha256(content).hexdigest()[:16]


def trace_case(suite: Suite, case: Case, family: Family, variant: str, target: Target, sources: Sources) -> Trace:
    """Return a variant's trace: its preparation, then the call; ``NotInCommit`` if the tree lacks what it imports."""
    _forget(sources.packages)
    trace = Trace(sources)
    call = family.variants[variant]
    new = Draw("meta", 0)
    try:
        inputs = inputs_of(suite, case, new)
        with noted(target, trace.launch), heard_by(distrust=trace.distrust, step=trace.step, place=trace.place):
            with trace:
                arguments = family.arguments(variant, inputs)
            out = buffers_of(suite, case, new)
            if out is not None and takes_out(call):
                arguments["out"] = out
            trace.give(arguments)
            # The first call fills what the code stores between calls; the second is like every later call.
            first = trace.steps_of(lambda: call(**arguments))
            with heard_by(capturing=True):
                later = trace.steps_of(lambda: call(**arguments))
            # A launch that only the first call makes may fill a tensor that later calls read. Operators are left out,
            # because an earlier case may have made the same tensor.
            repeated = {_unnumbered(step) for step in later}
            only_first = [step for step in first if step.request is not None and _unnumbered(step) not in repeated]
            trace.steps += later + [Step(f"first call: {step.text}", step.request) for step in only_first]
    except NotInCommit:
        raise
    except (Exception, SystemExit) as error:
        frames = list(traceback.walk_tb(error.__traceback__))[::-1]
        raised_in = str(frames[0][0].f_globals.get("__name__", "")).partition(".")[0]
        if isinstance(error, NotImplementedError) and raised_in in sources.packages:
            # The variant itself refuses this shape or GPU, and would do so on a GPU as well.
            trace.step("refuse the case")
            trace.refusal = _first_line(error) or "without a reason"
        elif not any(_first_line(error) in question for question in trace.obstacles):
            trace.distrust(f"cannot be followed without a GPU ({type(error).__name__}: {_first_line(error)})", frames)
    if not trace.obstacles and (not trace.steps or trace.steps[-1].text.startswith("given ")):
        trace.distrust("launches nothing and calls nothing of torch, as far as can be seen")
    return trace


def _unnumbered(step: Step) -> tuple[Request | None, str]:
    """Return a key that is equal for steps that differ only in the numbers of their tensors."""
    return step.request, re.sub(r"\bt\d+ ", "", step.text)


def _forget(packages: frozenset[str]) -> None:
    """Empty the caches of the code under test, so that results stored in an earlier case do not affect this one."""
    own_modules = [module for name, module in sys.modules.items() if name.partition(".")[0] in packages]
    values = [value for module in own_modules for value in vars(module).values()]
    members = [part for value in values if isinstance(value, type) for part in vars(value).values()]
    for value in (*values, *members):
        # Not by ``getattr``: an object that stands for a library may import it, or ask a person to install it.
        holders = (value, *type(value).__mro__) if isinstance(value, FunctionType) else type(value).__mro__
        if any("cache_clear" in vars(holder) for holder in holders):
            value.cache_clear()


def _first_line(error: BaseException) -> str:
    return without_tree(str(error).strip().split("\n", 1)[0])


def _tensors(value: Any) -> list[torch.Tensor]:
    return [part for part in tree_iter(value) if isinstance(part, torch.Tensor)]
