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
- an argument is not a tensor on the current GPU, a number, a string, a dtype, None, or a tuple of such;
- its first run did more than allocate, view, launch, and write products of torch into tensors (``out=``).

So a planned function must depend only on its arguments, the tuned tables and the device. The first call also freezes
the knobs of Triton's compiler and the constants of modules that kernels use.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload

import torch
from torch._C._dynamo.guards import TensorGuards
from torch.compiler import is_compiling
from triton.runtime import driver

from kernels.call_plans.launcher import undisturbed
from kernels.call_plans.recorder import UNPLANNED, Plan, Recorder, address_of
from kernels.common import tables

P = ParamSpec("P")
T = TypeVar("T")

#: Whether any call is planned.
ON = os.environ.get("LOCKSTEP_KERNEL_PLANS", "1") != "0"

#: Maximum number of plans of a function. Beyond it all plans are forgotten and made again.
MOST_PLANS = 1024

#: Maximum number of plans that a call has to try. Beyond it all are forgotten too.
MOST_ALIKE = 32

_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
_PLAIN = frozenset({type(None), bool, int, str, torch.dtype})

#: The known calls of every function by the form of a call: types, values that are no tensors, the first tensor's shape.
_PLANS: list[dict[Any, list[_Known]]] = []

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
        plans: dict[Any, list[_Known]] = {}
        _PLANS.append(plans)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            # torch.compile is tested first, because it cannot trace the rest.
            if is_compiling() or not undisturbed():
                return function(*args, **kwargs)
            values = (*args, *kwargs.values())
            if by is not None:
                values = tuple([by(value) if type(value) is tuple else value for value in values])
            form: list[Any] = [len(args), *kwargs]
            tensors: list[torch.Tensor] = []
            if not _find_tensors(values, form, tensors):
                return function(*args, **kwargs)
            key = tuple(form)
            addresses = list(map(address_of, tensors))
            for known in plans.get(key, ()):
                if known.fits(tensors, addresses):
                    result: Any = known.plan(tensors, addresses) if known.plan is not None else UNPLANNED
                    return function(*args, **kwargs) if result is UNPLANNED else result
            return _first_call(function, args, kwargs, tensors, plans, key)

        return call

    if not ON:
        return function or (lambda function: function)
    return decorate(function) if function else decorate


def _find_tensors(values: tuple[Any, ...], form: list[Any], tensors: list[torch.Tensor]) -> bool:
    """Append the tensors among values to ``tensors``, and types and all other values to ``form``.

    The shape of the first tensor is part of the form, so that few plans have one form.

    Returns:
        Whether a plan can compare all values.
    """
    for value in values:
        kind = type(value)
        if kind in _TENSORS:
            form += (kind, None if tensors else value.shape)
            tensors.append(value)
        elif kind in _PLAIN:
            form += (kind, value)  # True and 1 are different facts
        elif kind is float:
            form.append(value.hex())  # -0.0 and 0.0 are different facts
        elif kind is tuple or (isinstance(value, tuple) and hasattr(value, "_fields")):
            form += (kind, len(value))
            if not _find_tensors(value, form, tensors):
                return False
        else:
            return False
    return True


#: Says whether tensors, with their addresses, have the facts of known ones.
_Fits = Callable[[Sequence[torch.Tensor], Sequence[int]], bool]


class _Known(NamedTuple):
    """A call that was made before: whether tensors have the facts of its tensors, and its plan if it has one."""

    fits: _Fits
    plan: Plan | None


def _facts(tensors: Sequence[torch.Tensor]) -> _Fits:
    """Return a function that says whether other tensors have the facts of these.

    torch's guards compare shape, strides, dtype, device, ``requires_grad`` and dispatch of each tensor, and that no
    tensor occurs twice, in a tenth of the time that Python takes.

    Raises:
        RuntimeError: a tensor has no strides or no memory.
    """
    guards = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    check, device = guards.check, driver.active.get_current_device()
    remainders = [address_of(tensor) & 15 for tensor in tensors]

    def fits(others: Sequence[torch.Tensor], addresses: Sequence[int]) -> bool:
        return (
            check(*others)
            and [address & 15 for address in addresses] == remainders
            and driver.active.get_current_device() == device
        )

    return fits


def _first_call(
    function: Callable[..., T],
    args: Any,
    kwargs: Any,
    tensors: list[torch.Tensor],
    plans: dict[Any, list[_Known]],
    key: tuple[Any, ...],
) -> T:
    # A plan tells tensors apart by identity.
    different = len({id(tensor) for tensor in tensors}) == len(tensors) > 0
    if not different or not all(tensor.is_cuda for tensor in tensors) or not _RECORDING.acquire(blocking=False):
        return function(*args, **kwargs)
    fits, recorder = None, Recorder(tensors)
    try:
        with suppress(RuntimeError):
            fits = _facts(tensors)
        with recorder:
            result = function(*args, **kwargs)
        plan = recorder.plan(result)
    finally:
        _RECORDING.release()
    # The next call, which finds the workspace, can be planned.
    if fits is not None and not recorder.made_workspace:
        if sum(map(len, plans.values())) >= MOST_PLANS or len(plans.get(key, ())) >= MOST_ALIKE:
            plans.clear()
        plans.setdefault(key, []).append(_Known(fits, plan))
    return result


def _forget() -> None:
    for plans in _PLANS:
        plans.clear()


tables.ON_CHANGE.append(_forget)
