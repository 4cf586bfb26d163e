"""Answer what the code under test asks torch and Triton about its GPU with the properties of the target.

``torch.cuda`` and a stand-in for Triton's driver answer from the target's table. A question that the table cannot
answer leaves the case without a trace, with the question as the reason. Tensors answer for themselves
(``lockstep.machine_code.tracing.simulated_tensors``).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from lockstep.machine_code.targets import REGISTERS, WARP, Target
from lockstep.machine_code.tracing.simulated_tensors import CUDA, answer_for_tensors, asked_by_code_under_test
from lockstep.machine_code.tracing.trace_listener import Listener
from lockstep.processes.toolchain import INSTALLED

#: The first Triton whose launches can be traced: earlier ones compile within ``JITFunction.run``.
FIRST_TRITON = (3, 5)


def untraceable_triton() -> str:
    """Return why launches of the installed Triton cannot be traced, or ""."""
    installed = INSTALLED.versions().get("triton")  # without Triton, only kernels of torch can run
    if installed is None or tuple(map(int, installed.split(".")[:2])) >= FIRST_TRITON:
        return ""
    return f"Triton {installed} cannot be traced: tracing needs Triton {'.'.join(map(str, FIRST_TRITON))} or later"


class Properties(dict[str, Any]):
    """Device properties, by attribute for torch and by key for Triton. An unknown one makes the trace untrusted."""

    def __missing__(self, name: str) -> Any:
        Listener.distrust(f"asks for the device property {name}, which the target's table lacks")
        raise KeyError(name)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class StandIn:
    """Replaces Triton's CUDA driver, which needs a GPU, and answers with the properties of ``target``."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.utils = self  # Triton's driver has ``get_device_properties`` under this name

    def get_current_target(self) -> Any:
        """Return the target as Triton's class ``GPUTarget``."""
        return self.target.for_triton()

    def get_current_device(self) -> int:
        """Return the architecture's number, because Triton stores compiled kernels by device number."""
        return self.target.arch

    def get_current_stream(self, device: int) -> int:
        """Return 0, which stands for CUDA's default stream."""
        return device * 0

    def get_active_torch_device(self) -> torch.device:
        """Return the device on which Triton's own tensors would be."""
        return CUDA

    def get_device_properties(self, device: int) -> Properties:
        """Return the device properties that a kernel may read, by the names of Triton's driver."""
        return Properties(
            multiprocessor_count=self.target.processors,
            max_shared_mem=self.target.limits.shared_block,
            max_num_regs=REGISTERS,
            warpSize=WARP,
        )

    def __getattr__(self, name: str) -> Any:
        # Distrust the trace as well: the caller may catch the error and treat it as an answer.
        Listener.distrust(f"asks Triton's driver for {name}, which its stand-in cannot answer")
        raise AttributeError(name)


def stand_in(target: Target) -> None:
    """Make Triton behave as if the GPU ``target`` were present, for the life of the process."""
    import triton

    triton.runtime.driver.set_active(StandIn(target))


def answer_as(target: Target) -> None:
    """Make torch and Triton report ``target`` as the GPU, for the life of the process; call this function once."""
    stand_in(target)
    answer_for_tensors()
    properties = Properties(target.properties())
    cuda: Any = torch.cuda

    def always(answer: Any) -> Callable[..., Any]:
        return lambda *_, **__: answer

    answers = {
        "get_device_properties": always(properties),
        "get_device_capability": always(target.capability),
        "get_device_name": always(properties["name"]),
        "set_device": always(None),
        # bfloat16 since 8.0, the oldest architecture that Lockstep supports
        **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported"), always(True)),
        **dict.fromkeys(("init", "_lazy_init"), always(None)),
        **dict.fromkeys(("device", "device_of"), lambda device: contextlib.nullcontext()),
        "current_device": always(0),
        "device_count": always(1),
        "is_current_stream_capturing": lambda: Listener.capturing,
        "synchronize": lambda device=None: Listener.step("torch.cuda.synchronize()"),
    }
    for name in {*cuda.__all__, *answers}:
        function = getattr(cuda, name)
        if name in answers:
            setattr(cuda, name, answers[name])
        elif isinstance(function, FunctionType) and function.__module__.startswith("torch."):
            setattr(cuda, name, _unanswered(function))
    torch.compile = _uncompiled


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
