"""Replace the timers of libraries: each module of ``lockstep.scripts.timers`` knows those of one library."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from lockstep.scripts.hook import Hook
from lockstep.scripts.timers import fla, flashinfer, liger, tilelang, torch_inductor, torch_timer, triton_testing

#: The stand-ins. Each has ``MODULES``, the names of the modules that hold its timers ("*.utils" stands for any module
#: whose last part is "utils"), and ``install``, which replaces the timers of such a module, or leaves it alone.
TIMERS: tuple[Any, ...] = (triton_testing, torch_timer, torch_inductor, flashinfer, tilelang, liger, fla)


def install(hook: Hook) -> None:
    """Replace the timers of modules that are imported, and of others after their import."""
    sys.meta_path.insert(0, _Finder(hook))
    for name in list(sys.modules):
        replace_timers(name, hook)


def replace_timers(name: str, hook: Hook) -> None:
    """Replace the timers of a module that was imported, if it has any."""
    for timer in TIMERS:
        if _matches(name, timer.MODULES) and (module := sys.modules.get(name)) is not None:
            timer.install(module, hook)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return name in patterns or f"*.{name.rpartition('.')[2]}" in patterns


class _Finder(importlib.abc.MetaPathFinder):
    """Lets a hook change a module with timers as soon as it was imported."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not any(_matches(fullname, timer.MODULES) for timer in TIMERS):
            return None
        for finder in sys.meta_path:
            if finder is self or (spec := finder.find_spec(fullname, path, target)) is None:
                continue
            if spec.loader is not None:
                self._watch(spec.loader, fullname)
            return spec
        return None

    def _watch(self, loader: Any, name: str) -> None:
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            replace_timers(name, self._hook)

        loader.exec_module = exec_module
