"""Answer what the code under test asks torch about its GPU with the properties of the target.

``torch.cuda`` answers from the target's table. A question that the table cannot answer leaves the case without a trace,
with the question as the reason. Tensors answer for themselves (``lockstep.machine_code.tracing.simulated_tensors``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from lockstep.machine_code.targets import Target
from lockstep.machine_code.tracing.simulated_tensors import answer_for_tensors, asked_by_code_under_test
from lockstep.machine_code.tracing.trace_listener import Listener


class Properties:
    """Replaces torch's ``get_device_properties`` result; reading an unknown property makes the trace untrusted."""

    def __init__(self, target: Target) -> None:
        self.__dict__.update(target.properties())

    def __getattr__(self, name: str) -> Any:
        Listener.distrust(f"asks for the device property {name}, which the target's table lacks")
        raise AttributeError(name)


def answer_as(target: Target) -> None:
    """Make torch report ``target`` as its GPU, for the life of the process; call this function once."""
    _answer_questions(target)
    answer_for_tensors()


def _answer_questions(target: Target) -> None:
    properties = Properties(target)
    cuda: Any = torch.cuda

    def known(device: Any) -> None:
        index = device if isinstance(device, int) else torch.device(device).index if device is not None else 0
        if index not in (None, 0, -1):
            raise AssertionError("Invalid device id")

    def get_device_properties(device: Any = None) -> Properties:
        known(device)
        return properties

    def get_device_capability(device: Any = None) -> tuple[int, int]:
        known(device)
        return target.capability

    def get_device_name(device: Any = None) -> str:
        known(device)
        return str(properties.name)

    def synchronize(device: Any = None) -> None:
        Listener.step("torch.cuda.synchronize()")

    def constant(value: Any) -> Callable[..., Any]:
        return lambda *_, **__: value

    cuda.get_device_properties, cuda.get_device_capability = get_device_properties, get_device_capability
    cuda.get_device_name, cuda.synchronize = get_device_name, synchronize
    cuda.is_available, cuda.is_initialized = constant(True), constant(True)
    cuda.current_device = constant(0)
    cuda.is_bf16_supported = constant(True)  # since 8.0, the oldest architecture that Lockstep supports
    cuda.is_current_stream_capturing = lambda: Listener.capturing
    cuda.init = cuda._lazy_init = constant(None)
    cuda.set_device = lambda device: known(device)
    cuda.device = cuda.device_of = _OneDevice
    torch.compile = _uncompiled
    answered = {get_device_properties, get_device_capability, get_device_name, synchronize}
    for name in cuda.__all__:
        function = getattr(cuda, name)
        if isinstance(function, FunctionType) and function.__module__.startswith("torch.") and function not in answered:
            setattr(cuda, name, _unanswered(function))


def _unanswered(function: FunctionType) -> Callable[..., Any]:
    """Return a function of ``torch.cuda`` that records the question of code under test before torch answers."""

    @functools.wraps(function)
    def ask(*arguments: Any, **options: Any) -> Any:
        if asked_by_code_under_test():
            Listener.distrust(f"asks torch.cuda.{function.__name__}, which the target's table cannot answer")
        return function(*arguments, **options)

    return ask


def _uncompiled(model: Any = None, **options: Any) -> Any:
    """Replace ``torch.compile``: the function that it returns runs uncompiled and makes the trace untrusted."""
    if model is None:
        return lambda function: _uncompiled(function, **options)
    if not callable(model):
        raise TypeError("torch.compile takes a function or a module")

    def run(*args: Any, **kwargs: Any) -> Any:
        Listener.distrust("calls a function made by torch.compile, whose kernels are not traced")
        return model(*args, **kwargs)

    return run


class _OneDevice:
    """Replaces the context manager ``torch.cuda.device``; only device 0 can be chosen."""

    def __init__(self, device: Any) -> None:
        self.idx = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None
