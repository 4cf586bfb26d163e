"""Plan a public call once, so that later calls with the same facts cost the host little more than their launches.

The facts of a call are the shape, strides, dtype, device and alignment of every tensor and how torch dispatches it, the
value of every other argument, and the current device. A tuple counts as its values. ``planned`` runs the first call
with given facts as it is written, and records its allocations and launches (``kernels.common.call_recorder``). Later
calls with these facts repeat these by the plan, a function that is generated from it (``kernels.common.plan_code``): no
check, table or descriptor is computed again.

A plan holds no tensor and no address. Each launch takes its addresses from the call's own tensors, from the workspaces
of ``kernels.common.workspace``, or from memory that the call allocates. The stream comes from the call.

A call runs as it is written, without a plan, if

- the environment variable ``LOCKSTEP_KERNEL_PLANS`` is 0 when this module is imported;
- Triton's launches are traced, observed or hooked, Triton's interpreter runs, or Triton's version is unknown here
  (``kernels.common.triton_launcher``);
- ``torch.compile`` traces the call;
- an argument is not a CUDA tensor, a number, a string, a dtype, None, or a tuple of such;
- the call's first run did more than allocate, view, launch by ``launch_kernel`` and call torch by ``call_library``.

So a planned function must depend only on its arguments, the tuned tables and the device. Call ``forget`` after a change
of the tables. Two facts of Triton are frozen by the first call: its compiler's knobs, and constants of modules that
kernels use.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

import torch
from torch.compiler import is_compiling

from kernels.common.triton_launcher import OTHER, TENSORS, UNPLANNED, undisturbed

if TYPE_CHECKING:
    from kernels.common.call_recorder import Recorder
    from kernels.common.plan_code import Run

P = ParamSpec("P")
T = TypeVar("T")

#: The functions of a function's plans, by the form of the call and the shape of its first argument.
Plans: TypeAlias = "dict[Any, tuple[Run, ...]]"

#: Whether any call is planned.
ON = os.environ.get("LOCKSTEP_KERNEL_PLANS", "1") != "0"

#: Maximum number of plans of a function. Beyond it all plans are forgotten and made again.
MOST_PLANS = 1024

#: Maximum number of plans that a call may have to try. Beyond it they are forgotten.
MOST_ALIKE = 32

#: Type of the devices whose calls are planned.
GPU = "cuda"

_PLAIN = TENSORS | {bool, int, float, str, torch.dtype}
_PLANS: list[Plans] = []
#: Number of times that the plans were forgotten. A call that was recorded meanwhile may have used the old tables.
_forgotten = [0]


class _Recording(threading.local):
    """The recorder of the call that this thread runs for the first time."""

    recorder: Recorder | None = None


_recording = _Recording()


def planned(function: Callable[P, T]) -> Callable[P, T]:
    """Return ``function`` with a plan for each set of facts (see the module); results and errors remain the same."""
    return _planned(function, None)


def planned_by(summary: Callable[[Any], Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return the decorator ``planned`` for functions that depend on a tuple only through ``summary`` of the tuple."""
    return functools.partial(_planned, summary=summary)


def _planned(function: Callable[P, T], summary: Callable[[Any], Any] | None) -> Callable[P, T]:
    if not ON:
        return function
    plans: Plans = {}
    _PLANS.append(plans)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        # torch.compile is tested first, because it cannot trace the rest.
        if is_compiling() or _recording.recorder is not None or not undisturbed():
            return function(*args, **kwargs)
        values: tuple[Any, ...] = (*args, *kwargs.values()) if kwargs else args
        if summary is not None:
            values = tuple([summary(value) if type(value) is tuple else value for value in values])
        key = (len(args), *kwargs, values[0].shape if values and type(values[0]) in TENSORS else None)
        for run in plans.get(key, ()):
            result: Any = run(values)
            if result is not OTHER:
                break
        else:
            return _first_call(function, args, kwargs, values, plans, key)
        return function(*args, **kwargs) if result is UNPLANNED else result

    return call


def launch_kernel(kernel: Any, grid: Sequence[int], *arguments: Any, **options: Any) -> None:
    """Launch ``kernel[grid](*arguments, **options)``. A planned function must launch every kernel by this function."""
    compiled = kernel[grid](*arguments, **options)
    recorder = None if is_compiling() else _recording.recorder
    if recorder is not None:
        recorder.launch(kernel, compiled, grid, arguments, options)


def call_library(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return ``function(*args, **kwargs)``, which computes with torch. A plan repeats the call of ``function``."""
    recorder = None if is_compiling() else _recording.recorder
    if recorder is not None:
        return recorder.library(function, args, kwargs)
    return function(*args, **kwargs)


def forget() -> None:
    """Forget every plan. Call this function after a table changes, because plans depend on the tables."""
    _forgotten[0] += 1
    for plans in _PLANS:
        plans.clear()


def _first_call(
    function: Callable[..., T], args: Any, kwargs: Any, values: tuple[Any, ...], plans: Plans, key: Any
) -> T:
    if not all(map(_is_plain, values)) or not _on_one_gpu(_tensors_in(values)):
        return function(*args, **kwargs)
    # Only here, so that code that is traced without a GPU never imports them.
    from kernels.common.call_recorder import Recorder
    from kernels.common.plan_code import PlanCode

    try:
        code = PlanCode(values)
    except (AttributeError, RuntimeError, TypeError):  # a tensor has no address, or this torch compares none
        return function(*args, **kwargs)
    recorder, forgotten = Recorder(code), _forgotten[0]
    _recording.recorder = recorder
    try:
        with recorder:
            result = function(*args, **kwargs)
    finally:
        _recording.recorder = None
    run = recorder.function(result)
    if recorder.again:
        return result
    if sum(map(len, plans.values())) >= MOST_PLANS:
        plans.clear()
    if forgotten == _forgotten[0]:
        known = plans.get(key, ())
        plans[key] = (*(known if len(known) < MOST_ALIKE else ()), run)
    return result


def _tensors_in(values: tuple[Any, ...]) -> list[Any]:
    parts = [_tensors_in(value) if isinstance(value, tuple) else [value] for value in values]
    return [tensor for part in parts for tensor in part if type(tensor) in TENSORS]


def _on_one_gpu(tensors: list[Any]) -> bool:
    """Return whether the tensors are distinct and on one GPU. A plan tells tensors apart by identity."""
    if not tensors or any(tensor.device.type != GPU or tensor.layout is not torch.strided for tensor in tensors):
        return False
    return len({tensor.device for tensor in tensors}) == 1 and len({id(tensor) for tensor in tensors}) == len(tensors)


def _is_plain(value: Any) -> bool:
    """Return whether a plan can compare a value: a tensor, a number, a string, a dtype, None, or a tuple of such."""
    if isinstance(value, tuple):
        return (type(value) is tuple or hasattr(value, "_fields")) and all(map(_is_plain, value))
    return value is None or type(value) in _PLAIN
