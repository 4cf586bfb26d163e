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
from typing import Any, ParamSpec, TypeVar, overload

import torch
from torch._C._dynamo.guards import TensorGuards
from torch.compiler import is_dynamo_compiling

from kernels.call_plans.launcher import undisturbed
from kernels.call_plans.recorder import Plan, Recorder
from kernels.common import tables, workspace

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

#: Results of a known call: the tensors have other facts; the call must run as it is written.
OTHER: Any = object()
UNPLANNED: Any = object()

#: Allocates on the current GPU: shape, strides, dtype → tensor. ``torch.empty_strided`` takes three times as long.
_allocate: Any = torch._C._dynamo.guards._empty_strided_cuda  # type: ignore[attr-defined]

#: Returns the index of the current GPU, in a quarter of the time of ``torch.cuda.current_device``.
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)

#: The known calls of every function by number and names of the arguments and the first tensor's shape.
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
            if is_dynamo_compiling() or not undisturbed():
                return function(*args, **kwargs)
            values: tuple[Any, ...] = (*args, *kwargs.values())
            key = (len(args), *kwargs, values[0].shape if values and type(values[0]) in _TENSORS else None)
            split: tuple[list[Any] | None, list[torch.Tensor]] | None = None
            for known in plans.get(key, ()):
                tensors: Sequence[Any] = values
                if known.form:
                    split = split or _split(values, by)
                    if split[0] != known.form:
                        continue
                    tensors = split[1]
                result: T = known.repeat(tensors)
                if result is UNPLANNED:
                    return function(*args, **kwargs)
                if result is not OTHER:
                    return result
            return _first_call(function, args, kwargs, *(split or _split(values, by)), plans, key)

        return call

    if not ON:
        return function or (lambda function: function)
    return decorate(function) if function else decorate


def _split(values: Sequence[Any], by: Callable[[Any], Any] | None) -> tuple[list[Any] | None, list[torch.Tensor]]:
    """Return the form of values, and the tensors among them.

    The form has the type of each value, the length of each tuple, and each value that is not a tensor. A form is None
    if a plan cannot compare one of the values.
    """
    form: list[Any] = []
    tensors: list[torch.Tensor] = []
    for value in values:
        kind = type(value)
        form.append(kind)  # True and 1 are different facts
        if kind in _TENSORS:
            tensors.append(value)
        elif kind in _PLAIN:
            form.append(value)
        elif kind is float:
            form.append(value if value < 0 or value > 0 else repr(value))  # 0.0 is not -0.0, and nan is nan
        elif kind is tuple or (isinstance(value, tuple) and hasattr(value, "_fields")):
            inner, more = _split(by(value) if by and kind is tuple else value, None)
            if inner is None:
                return None, []
            form += (len(inner), *inner)
            tensors += more
        else:
            return None, []
    return form, tensors


class _Known:
    """A call that was made before, and its plan if it has one.

    torch's guards compare shape, strides, dtype, device, ``requires_grad`` and dispatch of each tensor, and that no
    tensor occurs twice, in a tenth of the time that Python takes.

    Args:
        form: see ``_split``; empty if all values are tensors.

    Raises:
        RuntimeError: a tensor has no strides or no memory.
    """

    plan: Plan | None = None

    def __init__(self, form: list[Any], tensors: Sequence[torch.Tensor]) -> None:
        self.form = form
        self._check = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        self._device = _current_device()
        self._remainders = [tensor.data_ptr() & 15 for tensor in tensors]
        self._aligned = not any(self._remainders)

    def repeat(self, given: Sequence[torch.Tensor]) -> Any:
        """Repeat the call with the given tensors.

        Returns:
            What the call returns; ``OTHER`` if the tensors have other facts; ``UNPLANNED`` if the call must run as it
            is written. Both come without a launch.
        """
        if not self._check(*given) or _current_device() != self._device:
            return OTHER
        tensors, addresses, union = [*given], [], 0
        for tensor in tensors:
            addresses.append(address := tensor.data_ptr())
            union |= address
        if union & 15 if self._aligned else [address & 15 for address in addresses] != self._remainders:
            return OTHER
        plan = self.plan
        if plan is None or any(plan.hooks):
            return UNPLANNED
        for key, alignment in plan.buffers:
            buffer = workspace.BUFFERS.get(key)
            if buffer is None or (address := buffer.data_ptr()) & 15 != alignment:
                return UNPLANNED
            tensors.append(buffer)
            addresses.append(address)
        for shape, strides, dtype in plan.fresh:
            tensors.append(tensor := _allocate(shape, strides, dtype))
            addresses.append(tensor.data_ptr())
        return plan.run(tensors, addresses, plan.current_stream(self._device))


def _first_call(
    function: Callable[..., T],
    args: Any,
    kwargs: Any,
    form: list[Any] | None,
    tensors: list[torch.Tensor],
    plans: dict[Any, list[_Known]],
    key: tuple[Any, ...],
) -> T:
    # A plan tells tensors apart by identity.
    different = len(set(map(id, tensors))) == len(tensors) > 0
    on_gpu = different and all(tensor.is_cuda for tensor in tensors)
    if form is None or not on_gpu or not _RECORDING.acquire(blocking=False):
        return function(*args, **kwargs)
    known, recorder = None, Recorder(tensors)
    try:
        with suppress(RuntimeError):
            known = _Known([] if _TENSORS.issuperset(form) else form, tensors)
        with recorder:
            result = function(*args, **kwargs)
        plan = recorder.plan(result)
    finally:
        _RECORDING.release()
    # The next call, which finds the workspace, can be planned.
    if known and not recorder.made_workspace:
        known.plan = plan
        if sum(map(len, plans.values())) >= MOST_PLANS or len(plans.get(key, ())) >= MOST_ALIKE:
            plans.clear()
        plans.setdefault(key, []).append(known)
    return result


def _forget() -> None:
    for plans in _PLANS:
        plans.clear()


tables.ON_CHANGE.append(_forget)
