"""``torch._inductor.utils``: ``do_bench_using_profiling``, which returns milliseconds."""

from __future__ import annotations

from typing import Any

from lockstep.scripts.taken_calls import Hook
from lockstep.scripts.timers.triton_testing import timer

MODULES = ("torch._inductor.utils",)


def install(module: Any, hook: Hook) -> None:
    """Replace the function; torch's own tuner gets the original."""
    module.do_bench_using_profiling = timer(module.do_bench_using_profiling, hook)
