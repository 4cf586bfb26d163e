"""``torch.utils.benchmark.Timer``: a statement with its set-up and globals becomes a closure."""

from __future__ import annotations

import itertools
import linecache
from types import ModuleType
from typing import Any

from lockstep.scripts.call_names import Mark
from lockstep.scripts.taken_calls import Hook

MODULES = ("torch.utils.benchmark", "torch.utils.benchmark.utils.timer")

#: Numbers of the statements, whose sources are stored under names of their own.
_NUMBERS = itertools.count()


def install(module: ModuleType, hook: Hook) -> None:
    """Replace the methods of ``Timer`` that time a statement."""
    timer: Any = vars(module).get("Timer")
    if timer is None or "_lockstep" in vars(timer):
        return
    timer._lockstep = True
    for name in ("timeit", "blocked_autorange", "adaptive_autorange"):
        setattr(timer, name, _method(getattr(timer, name), hook))


def _method(original: Any, hook: Hook) -> Any:
    def timed(timer: Any, *args: Any, **kwargs: Any) -> Any:
        if not hook.on:
            return original(timer, *args, **kwargs)
        from torch.utils.benchmark import Measurement  # imported here: few scripts use it

        axes = {"sub_label": timer._task_spec.sub_label, "threads": timer._task_spec.num_threads}
        spec = timer._task_spec
        stated = {name: value for name, value in axes.items() if value is not None and value != 1}
        variant = " ".join(text for text in (spec.label, spec.description) if text) or "statement"
        named = (stated, variant) if spec.label or spec.description or spec.sub_label else None
        statement = Mark("statement", " ".join(spec.stmt.split())[:60], "after")
        return Measurement(1, [hook.take(_closure(timer), stated=named, marks=[statement]) * 1e-3], spec)

    return timed


def _closure(timer: Any) -> Any:
    """Return a closure of the statement, whose globals the set-up has filled. ``inspect`` finds its source."""
    spec = timer._task_spec
    # The names are the script's, whose buffers base and head share.
    names = {**timer._timer.inner.__globals__, "__name__": "__main__"}
    exec(compile(spec.setup, "<setup>", "exec"), names)
    source = "def statement():\n" + "\n".join(f"    {line}" for line in spec.stmt.splitlines())
    try:
        compile(spec.stmt, "<statement>", "eval")
    except SyntaxError:
        pass
    else:
        source = f"def statement():\n    return ({spec.stmt})"
    file = f"<statement {next(_NUMBERS)}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    exec(compile(source, file, "exec"), names)
    return names["statement"]
