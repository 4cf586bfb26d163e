"""Hand the closures that a script times to whoever measures them, with the names that the script gives them.

Calls by Triton and torch themselves, such as those of a tuner, go to the original timer.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from lockstep.scripts.timed_call import CallKey, TimedCall, case_label

#: Milliseconds that a script gets for a call that is not measured.
NOMINAL_MS = 1.0

#: Libraries whose own calls of a timer are not benchmarks.
_OWN = ("triton", "torch", "lockstep")

#: Types of a function's arguments that name a case.
_AXES = (bool, int, float, str, torch.dtype)


#: A longer list of numbers is data, not a shape.
_MOST_NUMBERS = 8


class Hook:
    """Hands the timed calls of the script that runs in the current thread to whoever measures it.

    Attributes:
        taken: called with each timed call in the thread of the script; returns milliseconds.
        refused: called with the place of a call that cannot be taken, and the reason.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    @contextmanager
    def serving(
        self, script: Path, taken: Callable[[TimedCall], float], refused: Callable[[str, str], None]
    ) -> Iterator[None]:
        """Take the calls that the current thread makes within the block."""
        self._local.script = script
        self._local.taken, self._local.refused = taken, refused
        self._local.labels, self._local.counts = [], {}
        try:
            yield
        finally:
            self._local.__dict__.clear()

    @property
    def on(self) -> bool:
        """Return whether the current thread runs a script, and the caller of the timer is none of ``_OWN``."""
        return hasattr(self._local, "taken") and not self._by_library(sys._getframe(2))

    def take(
        self, function: Callable[[], Any], gradients: Sequence[torch.Tensor] | None = None, depth: int = 2
    ) -> float:
        """Hand over a closure; return milliseconds. ``depth`` is the number of frames up to the caller of the timer."""
        frame = self._frame(sys._getframe(depth))
        axes, variant = self._named(frame)
        key = CallKey(case_label(axes), variant)
        count = self._local.counts[key] = self._local.counts.get(key, 0) + 1
        place = frame.f_code.co_filename, frame.f_lineno
        call = TimedCall(CallKey(key.case, key.variant, count), function, place, () if gradients is None else gradients)
        return float(self._local.taken(call))

    @contextmanager
    def labelled(self, variant: str, **axes: Any) -> Iterator[None]:
        """Name the calls within the block; an error in the block ends this point alone, and is told."""
        self._local.labels.append((axes, variant))
        try:
            yield
        except Exception as error:
            self.refuse(f"{variant} at {case_label(axes) or '-'}", error)
        finally:
            self._local.labels.pop()

    def refuse(self, what: str, error: Exception | str) -> None:
        """Tell that something cannot be taken: the line of the script, and why."""
        self._local.refused(what, error if isinstance(error, str) else f"{line_of(error, self._local.script)}")

    def _named(self, frame: FrameType) -> tuple[Mapping[str, Any], str]:
        """Return axes and variant of a call: those of the surrounding block, or else the caller's scalar arguments."""
        if self._local.labels:
            axes, variant = self._local.labels[-1]
            return axes, variant
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        values = {name: frame.f_locals[name] for name in names if name in frame.f_locals}
        function = "script" if code.co_name == "<module>" else code.co_name
        return dict(pair for name, value in values.items() for pair in _axes(name, value)), function

    def _frame(self, caller: FrameType) -> FrameType:
        """Return the frame of the script that led to a call, or else the caller's own."""
        frame: FrameType | None = caller
        while frame is not None:
            if Path(frame.f_code.co_filename) == self._local.script:
                return frame
            frame = frame.f_back
        return caller

    @staticmethod
    def _by_library(frame: FrameType | None) -> bool:
        return frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in _OWN


def _axes(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield an argument as an axis, the fields of a configuration as axes, and nothing for a tensor or a function."""
    if isinstance(value, _AXES):
        yield name, value
    elif isinstance(value, tuple | list) and len(value) < _MOST_NUMBERS and all(isinstance(one, int) for one in value):
        yield name, "x".join(map(str, value))
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _axes(field.name, getattr(value, field.name, None))


def line_of(error: Exception, script: Path) -> str:
    """Return an error with the innermost line of the script that led to it."""
    from lockstep.timing.checks.check import brief  # imported here: it loads the whole engine

    line, trace = 0, error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == script:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{script.name}:{line}: {brief(error)}" if line else brief(error)
