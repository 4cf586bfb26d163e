"""What a case really launches on the GPU at hand, and whether that contradicts a proof.

A proof says that base and head do the same. Both are called here, and what they launch is read from Triton as it is
launched: kernel, grid, and the fingerprint of the machine code that was loaded; beside it torch's operators. If base
and head differ, or one of them launches something else than its trace, the proof was wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.machine_code import CaseCode
from lockstep.suite.evaluate import buffers_of, inputs_of
from lockstep.suite.model import Case, Suite


@dataclass(frozen=True)
class Launched:
    """One launch: the kernel's name, its grid, and the fingerprint of its machine code ("" if it cannot be read)."""

    name: str
    grid: tuple[int, ...]
    fingerprint: str = ""

    def __str__(self) -> str:
        return f"{self.name}[{'×'.join(map(str, self.grid))}]"


@dataclass(frozen=True)
class Ran:
    """What one side of a case did in one call.

    Attributes:
        launches: kernels in order.
        calls: torch's operators in order, with shapes; empty where they were not noted.
        error: why it could not be observed, else "".
        refused: the variant itself says that it does not support the case; ``error`` has its words.
    """

    launches: tuple[Launched, ...] = ()
    calls: tuple[str, ...] = ()
    error: str = ""
    refused: bool = False


def ran_from(row: Mapping[str, Any]) -> Ran:
    """What ``dataclasses.asdict`` made of it, back."""
    launches = tuple(Launched(one["name"], tuple(one["grid"]), one["fingerprint"]) for one in row["launches"])
    return Ran(launches, tuple(row["calls"]), row["error"], row["refused"])


def contradiction(base: Ran, head: Ran, traced: Sequence[CaseCode | None] = (None, None)) -> str:
    """Why what ran contradicts the proof that base and head do the same; "" if it does not, or cannot be told.

    Where both sides raise an error, nothing can be told, unless both refuse the case in the same words.

    Args:
        base, head: what ran.
        traced: what the traces of base and head say; ``None`` where the proof rests on the sources.
    """
    if base.error and head.error and not (base.refused and head.refused):
        return "" if base.refused == head.refused else f"base fails: {base.error}; head: {head.error}"
    if base.refused and head.refused:
        return "" if base.error == head.error else f"base refuses: {base.error}; head: {head.error}"
    if base.error or head.error:  # what is the same fails on both sides
        return f"base fails: {base.error}" if base.error else f"head fails: {head.error}"
    if found := _difference(base, head):
        return found
    for side, ran, code in (("base", base, traced[0]), ("head", head, traced[1])):
        if code is not None and (found := _against(ran, code)):
            return f"{side} {found}"
    return ""


def _difference(base: Ran, head: Ran) -> str:
    if len(base.launches) != len(head.launches):
        return f"base launches {len(base.launches)} kernels, head {len(head.launches)}"
    for one, other in zip(base.launches, head.launches, strict=True):
        if one.grid != other.grid:
            return f"base launches {one}, head {other}"
        if one.fingerprint != other.fingerprint:
            return f"{other.name} is other machine code in head ({one.fingerprint} → {other.fingerprint})"
    for before, after in zip(base.calls, head.calls, strict=False):
        if before != after:
            return f"base calls {before}, head {after}"
    if len(base.calls) != len(head.calls):
        return f"base calls {len(base.calls)} operators of torch, head {len(head.calls)}"
    return ""


def _against(ran: Ran, code: CaseCode) -> str:
    """How what ran differs from its trace. Of a kernel that tunes itself the trace has each configuration."""
    grids = [_grid(step) for step in code.host if step.startswith("launch [")]
    traced = [(kernel.name, grid) for kernel, grid in zip(code.kernels, grids, strict=False)]
    launched = [(one.name, one.grid) for one in ran.launches]
    if launched == traced or _tuned(launched, traced):
        known = [kernel.machine.loaded if kernel.machine else "" for kernel in code.kernels]
        if launched == traced:
            for one, fingerprint in zip(ran.launches, known, strict=False):
                if fingerprint and one.fingerprint and one.fingerprint != fingerprint:
                    return f"loaded other machine code of {one.name} than its trace has"
        return ""
    mine = ", ".join(map(str, ran.launches)) or "nothing"
    its = ", ".join(str(Launched(name, grid)) for name, grid in traced) or "nothing"
    return f"launched {mine}; its trace has {its}"


def _tuned(launched: Sequence[tuple[str, tuple[int, ...]]], traced: Sequence[tuple[str, tuple[int, ...]]]) -> bool:
    """Whether one launch of each run of launches of one kernel really ran: one configuration of several."""
    if len(launched) >= len(traced):
        return False
    waiting = iter(traced)
    return all(one in waiting for one in launched) and {name for name, _ in launched} == {name for name, _ in traced}


def _grid(step: str) -> tuple[int, ...]:
    sizes = step[len("launch [") : step.index("]")]
    return tuple(int(size) for size in sizes.split("×"))


def observe(suite: Suite, case: Case, family: Any, variant: str, device: Any, seed: int, *, calls: bool) -> Ran:
    """Call a variant twice on fresh inputs, and note what its second call does.

    Args:
        suite: whose inputs.
        case: the shape.
        family: of the side at hand.
        variant: one of the family's.
        device: where the tensors lie.
        seed: of the inputs; the same for both sides.
        calls: note torch's operators as well.
    """
    # Start-up: torch is slow to import.
    from lockstep.suite.family import takes_out
    from lockstep.suite.inputs import Draw

    call = family.variants[variant]
    new = Draw(device, seed)
    try:
        arguments = family.arguments(variant, inputs_of(suite, case, new))
        out = buffers_of(suite, case, new)
        if out is not None and takes_out(call):
            arguments["out"] = out
        call(**arguments)  # tunes, compiles and fills what is kept between calls
        with _launches() as launches, _operators(calls) as operators:
            call(**arguments)
    except NotImplementedError as error:
        return Ran(error=_spell(error), refused=True)
    except Exception as error:
        return Ran(error=_spell(error))
    return Ran(tuple(launches), tuple(operators))


def _spell(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


@contextlib.contextmanager
def _launches() -> Iterator[list[Launched]]:
    """The kernels that Triton launches within the block."""
    found: list[Launched] = []
    try:
        # Start-up: Triton is slow to import.
        from triton.runtime.jit import JITFunction
    except ImportError:
        yield found
        return
    run = JITFunction.run

    def note(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=warmup, **kwargs)
        if not warmup:
            found.append(_launched(self, kernel, grid, args, kwargs))
        return kernel

    JITFunction.run = note
    try:
        yield found
    finally:
        JITFunction.run = run


def _launched(function: Any, kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Launched:
    # Start-up: Triton is slow to import.
    from triton.runtime import driver

    from lockstep.machine_code.cubin import fingerprint

    if callable(grid):
        binder = function.device_caches[driver.active.get_current_device()][-1]
        grid = grid(binder(*args, **kwargs)[0])
    try:
        code = fingerprint(kernel.asm["cubin"], kernel.metadata)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError):
        code = ""
    return Launched(str(function.fn.__name__), tuple(int(size) for size in grid), code)


@contextlib.contextmanager
def _operators(wanted: bool) -> Iterator[list[str]]:
    """Torch's operators that are called within the block, spelled as in a trace."""
    if not wanted:
        yield []
        return
    # Start-up: torch is slow to import.
    from torch.utils._python_dispatch import TorchDispatchMode

    from lockstep.machine_code.trace import ALLOCATIONS, Trace

    trace = Trace()

    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if str(func) not in ALLOCATIONS and not func.is_view:
                trace.call(str(func), args, kwargs or {}, result)
            return result

    with Noting():  # type: ignore[no-untyped-call]
        yield trace.steps
