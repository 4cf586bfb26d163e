"""Replace the timers of libraries: each module of ``lockstep.scripts.timers`` knows those of one library."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from lockstep.gate.after_import import after_import
from lockstep.scripts.taken_calls import Hook
from lockstep.scripts.timers import (
    fla,
    flashinfer,
    liger,
    pytest_benchmark,
    suites,
    tilelang,
    torch_inductor,
    torch_timer,
    triton_testing,
)

#: The stand-ins. Each has ``MODULES``, the names of the modules that hold its timers ("*.utils" stands for any module
#: whose last part is "utils"), and ``install``, which replaces the timers of such a module, or leaves it alone.
TIMERS: tuple[Any, ...] = (
    triton_testing,
    torch_timer,
    torch_inductor,
    flashinfer,
    tilelang,
    liger,
    fla,
    pytest_benchmark,
    suites,
)


def install(hook: Hook) -> None:
    """Replace the timers of modules that are imported, and of others after their import."""
    after_import(
        lambda name: any(_matches(name, timer.MODULES) for timer in TIMERS), lambda name: replace_timers(name, hook)
    )


def replace_timers(name: str, hook: Hook) -> None:
    """Replace the timers of a module that was imported, if it has any."""
    for timer in TIMERS:
        if _matches(name, timer.MODULES) and (module := sys.modules.get(name)) is not None:
            timer.install(module, hook)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return name in patterns or f"*.{name.rpartition('.')[2]}" in patterns
