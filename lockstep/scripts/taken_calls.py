"""Hand the closures that a script times to whoever measures them, with the names that the script gives them.

Calls by Triton and torch themselves, such as those of a tuner, go to the original timer.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from lockstep.scripts.call_names import PLOT, REPORT, CallKey, Mark, case_label
from lockstep.scripts.call_site import given_names
from lockstep.scripts.loop_variables import loop_variables, named
from lockstep.scripts.timed_call import TimedCall

#: Milliseconds that a script gets for a call that is not measured.
NOMINAL_MS = 1.0

#: Libraries whose own calls of a timer are not benchmarks.
_OWN = ("triton", "torch", "lockstep")

#: Types of a function's arguments that name a case.
_AXES = (bool, int, float, str, torch.dtype)


#: A longer list of numbers is data, not a shape.
_MOST_NUMBERS = 8

#: A longer text of a loop is cut.
_MOST_LETTERS = 60


@dataclass
class _Point:
    """A point that is being set up and timed."""

    key: CallKey
    taken: bool = False


class Hook:
    """Hands the timed calls of the script that runs in the current thread to whoever measures it.

    Attributes:
        taken: called with each timed call in the thread of the script; returns milliseconds.
        wanted: called with the name of each point of a timer that loops over points by itself; returns whether the
            point is set up and timed.
        refused: called with the name of a point that cannot be taken, and the reason.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    @contextmanager
    def serving(
        self,
        script: Path,
        taken: Callable[[TimedCall], float],
        wanted: Callable[[CallKey], bool],
        refused: Callable[[CallKey, str], None],
    ) -> Iterator[None]:
        """Take the calls that the current thread makes within the block."""
        self._local.script = script
        self._local.taken, self._local.wanted, self._local.refused = taken, wanted, refused
        self._local.point, self._local.counts = None, {}
        try:
            yield
        finally:
            self._local.__dict__.clear()

    @property
    def on(self) -> bool:
        """Return whether the current thread runs a script, and the caller of the timer is none of ``_OWN``."""
        caller = str(sys._getframe(2).f_globals.get("__name__", ""))
        return hasattr(self._local, "taken") and caller.partition(".")[0] not in _OWN

    def take(
        self,
        function: Callable[[], Any],
        gradients: Sequence[torch.Tensor] | None = None,
        stated: tuple[Mapping[str, Any], str] | None = None,
        marks: Sequence[Mark] = (),
    ) -> float:
        """Hand over a closure; return milliseconds.

        Args:
            gradients: what the closure leaves in these tensors is dropped before each call.
            stated: axes and variant, if the timer states them.
            marks: what else the timer knows of the call.
        """
        caller, point = sys._getframe(2), self._local.point
        frames = self._frames(caller)
        if point is not None and point.taken:
            return NOMINAL_MS  # the first call of a point is its time
        if point is not None:
            key, point.taken = point.key, True
        elif stated is not None:
            around = [*self._loop_marks(caller), *_stack_marks(frames)]
            key = self._numbered(*stated, [*marks, *around, Mark("function", _function(frames[0]))])
        else:
            key = self._numbered(*self._named(frames[0], caller), [*marks, *_stack_marks(frames)])
        place = frames[0].f_code.co_filename, frames[0].f_lineno
        return float(self._local.taken(TimedCall(key, function, place, () if gradients is None else gradients)))

    def point(
        self,
        timed: Callable[[], Any],
        variant: str,
        axes: Mapping[str, Any],
        report: tuple[str, str] = ("", ""),
        others: Mapping[str, Any] | None = None,
    ) -> None:
        """Call a function that sets up and times one point, if the point is wanted; an error ends this point alone.

        Args:
            report: the function that sets up the points of a report, and the title of its plot.
            others: further arguments of the function.
        """
        caller = sys._getframe(2)
        marks = [Mark(REPORT, report[0]), Mark(PLOT, report[1])] if any(report) else []
        marks += _value_marks({name: named(value) for name, value in (others or {}).items()})
        marks += self._loop_marks(caller)
        key = self._numbered(axes, variant, [*marks, *_stack_marks(self._frames(caller))])
        if not self._local.wanted(key):
            return
        self._local.point = _Point(key)
        try:
            timed()
        except Exception as error:
            self._local.refused(key, line_of(error, self._local.script))
        else:
            if not self._local.point.taken:
                self._local.refused(key, "it was set up, and no timer was called")
        finally:
            self._local.point = None

    def _numbered(self, axes: Mapping[str, Any], variant: str, marks: Sequence[Mark]) -> CallKey:
        """Return the key of the next call with these axes, this variant and these marks."""
        key = CallKey(case_label(axes), variant, tuple(mark for mark in marks if mark.text))
        count = self._local.counts[key] = self._local.counts.get(key, 0) + 1
        return replace(key, number=count)

    def _named(self, frame: FrameType, caller: FrameType) -> tuple[Mapping[str, Any], str]:
        """Return axes and variant of a call, by the script's function that led to it and the loops around it.

        The axes are the function's scalar arguments and the numbers of the loops. The variant is the function's name
        and the texts of the loops.
        """
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        arguments = {name: frame.f_locals[name] for name in names if name in frame.f_locals}
        around = loop_variables(caller, self._local.script)
        loops = {name: value for name, value in around.items() if not any(_axes(name, arguments.get(name)))}
        texts = [_cut(value) for value in loops.values() if isinstance(value, str)]
        numbers = {name: value for name, value in loops.items() if not isinstance(value, str)}
        axes = dict(pair for name, value in (numbers | arguments).items() for pair in _axes(name, value))
        return axes, " ".join([_function(frame), *texts])

    def _loop_marks(self, caller: FrameType) -> Sequence[Mark]:
        return _value_marks(loop_variables(caller, self._local.script))

    def _frames(self, caller: FrameType) -> Sequence[FrameType]:
        """Return the frames of the script that led to a call, the innermost first, or else the caller's own."""
        frames: list[FrameType] = []
        frame: FrameType | None = caller
        while frame is not None:
            if Path(frame.f_code.co_filename) == self._local.script:
                frames.append(frame)
            frame = frame.f_back
        return frames or [caller]


def _stack_marks(frames: Sequence[FrameType]) -> Sequence[Mark]:
    """Return what the script's functions that led to a call tell of it: their classes, arguments and names."""
    marks = [Mark("class", frames[0].f_code.co_qualname.rpartition(".")[0].replace(".<locals>", ""))]
    for place, frame in enumerate(frames):
        marks += [Mark(f"given {place} {at}", name, "after") for at, name in given_names(frame)]
    return [*marks, *(Mark(f"caller {place}", _function(frame)) for place, frame in enumerate(frames) if place)]


def _value_marks(values: Mapping[str, Any]) -> list[Mark]:
    """Return values as marks: texts and names of functions after the variant, numbers and dtypes as axes."""
    texts = [Mark(name, _cut(value), "after") for name, value in values.items() if isinstance(value, str)]
    others = [pair for name, value in values.items() if not isinstance(value, str) for pair in _axes(name, value)]
    return [*texts, *(Mark(name, str(value), "axis") for name, value in others)]


def _cut(text: str) -> str:
    return " ".join(text.split())[:_MOST_LETTERS]


def _function(frame: FrameType) -> str:
    """Return the name of the function of a frame, or of the function around a lambda or comprehension."""
    around: FrameType | None = frame
    while around is not None and around.f_code.co_filename == frame.f_code.co_filename:
        name = around.f_code.co_name
        if not name.startswith("<") or name == "<module>":
            return "script" if name == "<module>" else name
        around = around.f_back
    return "script"


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
    """Return an error with the innermost line of the script that led to it, and the line elsewhere that raised it."""
    from lockstep.timing.checks.check import brief  # imported here: it loads the whole engine

    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == script]
    raised = Path(frames[-1].filename) if frames else script
    where = "" if raised == script else f" (at {'/'.join(raised.parts[-2:])}:{frames[-1].lineno})"
    return (f"{script.name}:{lines[-1]}: " if lines else "") + brief(error) + where
