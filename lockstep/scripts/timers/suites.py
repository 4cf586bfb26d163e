"""Lockstep's own suites: the points of ``lockstep.scripts.suite_script``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from lockstep.scripts.plan import SUITE_SCRIPT
from lockstep.scripts.taken_calls import Hook

MODULES = ("__main__",)


def install(module: Any, hook: Hook) -> None:
    """Take the points of the script, if it is that script."""
    if Path(getattr(module, "__file__", "")).resolve() != SUITE_SCRIPT:
        return
    for name, set_up in getattr(module, "POINTS", ()):
        hook.point(functools.partial(_take, hook, set_up), name)


def _take(hook: Hook, set_up: Any) -> None:
    hook.take(set_up())
