"""FlashInfer: ``bench_gpu_time`` and its forms, which return a list of milliseconds."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from lockstep.scripts.taken_calls import Hook

MODULES = ("flashinfer.testing", "flashinfer.testing.utils")

_NAMES = (
    "bench_gpu_time",
    "bench_gpu_time_with_cuda_event",
    "bench_gpu_time_with_cudagraph",
    "bench_gpu_time_with_cupti",
)


def install(module: ModuleType, hook: Hook) -> None:
    """Replace all functions of the module that time a closure with its arguments."""
    for name in _NAMES:
        if hasattr(module, name):
            setattr(module, name, _timer(hook))


def _timer(hook: Hook) -> Any:
    def bench_gpu_time(
        fn: Any, *args: Any, input_args: tuple[Any, ...] = (), input_kwargs: Any = None, **kwargs: Any
    ) -> list[float]:
        return [hook.take(functools.partial(fn, *input_args, **(input_kwargs or {})))]

    return bench_gpu_time
