"""The decorator: recognise a call by its facts, and repeat it by its plan.

The facts of a call are shape, strides, dtype, device, alignment and ``requires_grad`` of every tensor, the value of
every other argument, and the current device. The first call with given facts runs as it is written and is recorded
(``kernels.call_plans.recorder``). Later calls with these facts run the plan: they allocate, launch and view what the
first call did. A plan holds no tensor and no address: it uses the call's own tensors, the workspaces of
``kernels.common.workspace``, and memory that the call allocates.

A call runs as it is written, without a plan, if

- ``LOCKSTEP_KERNEL_PLANS`` is 0 when this module is imported;
- launches are traced, observed or hooked, Triton's interpreter runs, or Triton's version is not known
  (``kernels.call_plans.launcher``);
- ``torch.compile`` traces the call;
- an argument is not a CUDA tensor, a number, a string, a dtype, None, or a tuple of such;
- its first run did more than allocate, view, launch, and write products of torch into tensors (``out=``).

So a planned function must depend only on its arguments, the tuned tables and the device. The first call also freezes
the knobs of Triton's compiler and the constants of modules that kernels use.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

import torch
from torch.compiler import is_compiling
from triton.runtime import driver

from kernels.call_plans.launcher import undisturbed
from kernels.call_plans.recorder import UNPLANNED, Plan, Recorder
from kernels.common import tables

P = ParamSpec("P")
T = TypeVar("T")

#: Whether any call is planned.
ON = os.environ.get("LOCKSTEP_KERNEL_PLANS", "1") != "0"

#: Maximum number of plans of a function. Beyond it all plans are forgotten and made again.
MOST_PLANS = 1024

_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
_PLAIN = frozenset({type(None), bool, int, str, torch.dtype})

#: The plans of every function by the facts of a call; None for calls that cannot have a plan.
_PLANS: list[dict[Any, Plan | None]] = []

#: Held while a call is recorded. Calls that other threads make meanwhile are not recorded.
_RECORDING = threading.Lock()


@overload
def planned(function: Callable[P, T]) -> Callable[P, T]: ...


@overload
def planned(*, by: Callable[[Any], Any]) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def planned(function: Callable[..., Any] | None = None, *, by: Callable[[Any], Any] | None = None) -> Any:
    """Give a function a plan for each set of facts: ``@planned`` or ``@planned(by=…)``. Results and errors remain.

    Args:
        by: function of a tuple, if ``function`` depends on tuples only through its result.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        plans: dict[Any, Plan | None] = {}
        _PLANS.append(plans)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            # torch.compile is tested first, because it cannot trace the rest.
            if is_compiling() or not undisturbed():
                return function(*args, **kwargs)
            values = (*args, *kwargs.values())
            if by is not None:
                values = tuple([by(value) if type(value) is tuple else value for value in values])
            facts: list[Any] = [len(args), *kwargs]
            tensors: list[torch.Tensor] = []
            if not _find_facts(values, facts, tensors):
                return function(*args, **kwargs)
            key = (driver.active.get_current_device(), *facts)
            plan = plans.get(key, UNPLANNED)
            if plan is UNPLANNED:
                return _first_call(function, args, kwargs, tensors, plans, key)
            result: Any = plan(tensors) if plan is not None else UNPLANNED
            return function(*args, **kwargs) if result is UNPLANNED else result

        return call

    if not ON:
        return function or (lambda function: function)
    return decorate(function) if function else decorate


def _find_facts(values: tuple[Any, ...], facts: list[Any], tensors: list[torch.Tensor]) -> bool:
    """Append the facts of values to ``facts`` and the tensors among them to ``tensors``.

    Returns:
        Whether a plan can compare all values, and every tensor is on a GPU.
    """
    for value in values:
        kind = type(value)
        if kind in _TENSORS:
            try:
                place = value.stride(), value.device, value.data_ptr() & 15
            except RuntimeError:  # a tensor without strides or memory
                return False
            if not value.is_cuda:
                return False
            facts.append((value.shape, value.dtype, value.requires_grad, place))
            tensors.append(value)
        elif kind in _PLAIN:
            facts += (kind, value)  # True and 1 are different facts
        elif kind is float:
            facts.append(value.hex())  # -0.0 and 0.0 are different facts
        elif kind is tuple or (isinstance(value, tuple) and hasattr(value, "_fields")):
            facts += (kind, len(value))
            if not _find_facts(value, facts, tensors):
                return False
        else:
            return False
    return True


def _first_call(
    function: Callable[..., T],
    args: Any,
    kwargs: Any,
    tensors: list[torch.Tensor],
    plans: dict[Any, Plan | None],
    key: tuple[Any, ...],
) -> T:
    # A plan tells tensors apart by identity.
    if not tensors or len({id(tensor) for tensor in tensors}) < len(tensors) or not _RECORDING.acquire(blocking=False):
        return function(*args, **kwargs)
    recorder = Recorder(tensors)
    try:
        with recorder:
            result = function(*args, **kwargs)
        plan = recorder.plan(result)
    finally:
        _RECORDING.release()
    if recorder.made_workspace:  # the next call, which finds the workspace, can be planned
        return result
    if len(plans) >= MOST_PLANS:
        plans.clear()
    plans[key] = plan
    return result


def _forget() -> None:
    for plans in _PLANS:
        plans.clear()


tables.ON_CHANGE.append(_forget)
