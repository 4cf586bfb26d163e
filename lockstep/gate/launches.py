"""Observe the launches of a case on this machine's GPU, and whether they contradict a proof.

A proof states that base and head do the same. This module calls both and reads each launch from Triton: kernel, grid,
and the fingerprint of the loaded machine code. The module can record torch's operators as well. The proof is wrong if
base and head differ, or if one of them launches something that its trace does not contain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.machine_code import CaseCode
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import buffers_of, inputs_of


@dataclass(frozen=True)
class Launched:
    """One observed launch of a kernel.

    Attributes:
        fingerprint: fingerprint of the machine code; "" if the code cannot be read.
    """

    name: str
    grid: tuple[int, ...]
    fingerprint: str = ""

    def __str__(self) -> str:
        return f"{self.name}[{'×'.join(map(str, self.grid))}]"


@dataclass(frozen=True)
class Observation:
    """The launches in one call of a case in base or in head.

    Attributes:
        launches: kernels in order.
        calls: torch's operators in order, with shapes; empty if they were not recorded.
        error: why the call could not be observed, else "".
        refused: whether the variant does not support the case; ``error`` is then its message.
    """

    launches: tuple[Launched, ...] = ()
    calls: tuple[str, ...] = ()
    error: str = ""
    refused: bool = False


def observation_from(row: Mapping[str, Any]) -> Observation:
    """Return an observation from a mapping that ``dataclasses.asdict`` made."""
    launches = tuple(
        Launched(launch["name"], tuple(launch["grid"]), launch["fingerprint"]) for launch in row["launches"]
    )
    return Observation(launches, tuple(row["calls"]), row["error"], row["refused"])


def contradiction(base: Observation, head: Observation, traced: Sequence[CaseCode | None] = (None, None)) -> str:
    """Return why the launches contradict the proof that base and head do the same, or "".

    If both base and head fail, the result is "": two failures show nothing. If only one of them fails, or refuses the
    case as not supported, the proof is contradicted; also if both refuse the case with different messages.

    Args:
        base, head: the observed launches.
        traced: the traces of base and head; ``None`` for a proof from equal sources.
    """
    if base.error and head.error and not (base.refused and head.refused):
        return "" if base.refused == head.refused else f"base fails: {base.error}; head: {head.error}"
    if base.refused and head.refused:
        return "" if base.error == head.error else f"base refuses: {base.error}; head: {head.error}"
    if base.error or head.error:  # identical code would fail on both sides
        return f"base fails: {base.error}" if base.error else f"head fails: {head.error}"
    if difference := _difference(base, head):
        return difference
    for side, ran, code in (("base", base, traced[0]), ("head", head, traced[1])):
        if code is not None and (difference := _against(ran, code)):
            return f"{side} {difference}"
    return ""


def _difference(base: Observation, head: Observation) -> str:
    if len(base.launches) != len(head.launches):
        return f"base launches {len(base.launches)} kernels, head {len(head.launches)}"
    for launch, other in zip(base.launches, head.launches, strict=True):
        if launch.grid != other.grid:
            return f"base launches {launch}, head {other}"
        if launch.fingerprint != other.fingerprint:
            return f"{other.name} has other machine code in head ({launch.fingerprint} → {other.fingerprint})"
    for before, after in zip(base.calls, head.calls, strict=False):
        if before != after:
            return f"base calls {before}, head {after}"
    if len(base.calls) != len(head.calls):
        return f"base calls {len(base.calls)} operators of torch, head {len(head.calls)}"
    return ""


def _against(ran: Observation, code: CaseCode) -> str:
    """Return how launches differ from their trace, or "".

    A trace has every configuration of an autotuned kernel; launches with one of these configurations match it.
    """
    grids = [_grid(step) for step in code.host if step.startswith("launch [")]
    traced = [(kernel.name, grid) for kernel, grid in zip(code.kernels, grids, strict=False)]
    launched = [(launch.name, launch.grid) for launch in ran.launches]
    if launched == traced or _tuned(launched, traced):
        known = [kernel.machine.loaded if kernel.machine else "" for kernel in code.kernels]
        if launched == traced:
            for launch, fingerprint in zip(ran.launches, known, strict=False):
                if fingerprint and launch.fingerprint and launch.fingerprint != fingerprint:
                    return f"loaded other machine code of {launch.name} than its trace has"
        return ""
    launched_text = ", ".join(map(str, ran.launches)) or "nothing"
    traced_text = ", ".join(str(Launched(name, grid)) for name, grid in traced) or "nothing"
    return f"launched {launched_text}; its trace has {traced_text}"


def _tuned(launched: Sequence[tuple[str, tuple[int, ...]]], traced: Sequence[tuple[str, tuple[int, ...]]]) -> bool:
    """Return whether the launches match the trace with one configuration of each autotuned kernel."""
    if len(launched) >= len(traced):
        return False
    unmatched = iter(traced)
    return all(launch in unmatched for launch in launched) and {name for name, _ in launched} == {
        name for name, _ in traced
    }


def _grid(step: str) -> tuple[int, ...]:
    sizes = step[len("launch [") : step.index("]")]
    return tuple(int(size) for size in sizes.split("×"))


def observe(suite: Suite, case: Case, family: Any, variant: str, device: Any, seed: int, *, calls: bool) -> Observation:
    """Call a variant twice on fresh inputs and record the second call.

    Args:
        family: the family as imported from base or from head.
        variant: name of a variant in the family.
        seed: seed of the inputs; the same for base and head.
        calls: whether to record torch's operators as well.
    """
    # Imported here: torch is slow to import.
    from lockstep.suite.inputs import Draw
    from lockstep.suite.variants import takes_out

    call = family.variants[variant]
    new = Draw(device, seed)
    try:
        arguments = family.arguments(variant, inputs_of(suite, case, new))
        out = buffers_of(suite, case, new)
        if out is not None and takes_out(call):
            arguments["out"] = out
        call(**arguments)  # autotunes, compiles and fills caches
        with _launches() as launches, _operators(calls) as operators:
            call(**arguments)
    except NotImplementedError as error:
        return Observation(error=_spell(error), refused=True)
    except Exception as error:
        return Observation(error=_spell(error))
    return Observation(tuple(launches), tuple(operators))


def _spell(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


@contextlib.contextmanager
def _launches() -> Iterator[list[Launched]]:
    """Record the kernels that Triton launches within the block."""
    recorded: list[Launched] = []
    try:
        # Imported here: Triton is slow to import.
        from triton.runtime.jit import JITFunction
    except ImportError:
        yield recorded
        return
    run = JITFunction.run

    def note(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=warmup, **kwargs)
        if not warmup:
            recorded.append(_launched(self, kernel, grid, args, kwargs))
        return kernel

    JITFunction.run = note
    try:
        yield recorded
    finally:
        JITFunction.run = run


def _launched(function: Any, kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Launched:
    # Imported here: Triton is slow to import.
    from triton.runtime import driver

    from lockstep.machine_code.compiling.cubin import loaded_fingerprint

    if callable(grid):
        binder = function.device_caches[driver.active.get_current_device()][-1]
        grid = grid(binder(*args, **kwargs)[0])
    return Launched(str(function.fn.__name__), tuple(int(size) for size in grid), loaded_fingerprint(kernel))


@contextlib.contextmanager
def _operators(record: bool) -> Iterator[list[str]]:
    """Record torch's operators within the block, in the notation of a trace."""
    if not record:
        yield []
        return
    # Imported here: torch is slow to import.
    from torch.utils._python_dispatch import TorchDispatchMode

    from lockstep.machine_code.tracing.trace import ALLOCATIONS, Trace

    trace = Trace()

    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if str(func) not in ALLOCATIONS and not func.is_view:
                trace.call(str(func), args, kwargs or {}, result)
            return result

    with Noting():  # type: ignore[no-untyped-call]
        yield trace.steps
