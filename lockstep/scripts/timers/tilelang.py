"""tilelang: the function ``do_bench``, and ``Profiler.do_bench``, which draws the inputs of a kernel itself."""

from __future__ import annotations

import functools
from typing import Any

from lockstep.scripts.taken_calls import Hook
from lockstep.scripts.timers.triton_testing import summarized, timer

MODULES = ("tilelang.profiler", "tilelang.profiler.bench")


def install(module: Any, hook: Hook) -> None:
    """Replace the timers of the module. tilelang's own tuner calls them too, and gets the originals."""
    if hasattr(module, "do_bench"):
        module.do_bench = timer(module.do_bench, hook)
    if hasattr(module, "Profiler"):
        module.Profiler.do_bench = _method(module.Profiler.do_bench, hook)


def _method(original: Any, hook: Hook) -> Any:
    def do_bench(profiler: Any, func: Any = None, *args: Any, input_tensors: Any = None, **kwargs: Any) -> Any:
        if not hook.on:
            return original(profiler, func, *args, input_tensors=input_tensors, **kwargs)
        inputs = profiler._get_inputs() if input_tensors is None else input_tensors
        call = functools.partial(profiler.adapter if func is None else func, *inputs)
        return summarized(hook.take(call), **kwargs)

    return do_bench
