"""The worker's side of the protocol between a worker process and its parent (``lockstep.processes.watched_worker``).

The last word of the worker's command line is its specification, a dataclass as JSON. It reads JSON requests from
standard input, one per line; for the code that it runs, standard input is empty. It writes JSON events, one per line,
to the file descriptor that ``--reply`` names. It ends when its requests end. Before each step that may hang or crash,
it sends a ``stage`` event, so that the parent knows which step was running. Output of kernels and compilers goes to the
parent's log.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from lockstep.processes.end_with_parent import end_with_parent
from lockstep.processes.exit_status import CONTEXT_LOST

T = TypeVar("T")

#: Name of the request that ends a worker, and of the event that its process sends if it can become another worker.
END = "end worker"
IDLE = "idle"


def spelled(specification: Any) -> str:
    """Return a dataclass of plain values, paths and such dataclasses as one word of a command line."""
    return json.dumps(asdict(specification), default=str)


def read_as(kind: type[T], word: str) -> T:
    """Return the dataclass of this kind whose word ``spelled`` returned."""
    return typed(kind, json.loads(word))


def typed(kind: type[T], value: Any) -> T:
    """Return the dataclass of this kind whose ``asdict`` is this value of JSON. Unknown fields are ignored."""
    message: T = _read(kind, value)
    return message


def _read(hint: Any, value: Any) -> Any:
    """Return a value of JSON as the type of a field asks for: as a path, a tuple, or a dataclass."""
    parts = get_args(hint)
    if value is None or get_origin(hint) is UnionType:
        return value if value is None else _read(parts[0], value)
    if is_dataclass(hint):
        kind: Any = hint
        hints = _hints(kind)
        return kind(**{name: _read(hints[name], part) for name, part in value.items() if name in hints})
    if isinstance(hint, type) and issubclass(hint, tuple):  # a NamedTuple
        return hint(*map(_read, _hints(hint).values(), value))
    if get_origin(hint) is tuple:
        each = parts[:1] * len(value) if parts[1:] == (...,) else parts
        return tuple(_read(one, part) for one, part in zip(each, value, strict=True))
    if get_origin(hint) is Mapping:
        return {name: _read(parts[1], part) for name, part in value.items()}
    return Path(value) if hint is Path else value


_hints = functools.cache(get_type_hints)


class WorkerProcess:
    """This process as a worker: its specification, the requests it reads and the events it sends.

    Create it before slow imports: only from then on does the process end with its parent.
    """

    def __init__(self) -> None:
        end_with_parent()
        self._requests = os.fdopen(os.dup(0), encoding="utf-8")
        with Path(os.devnull).open("rb") as nothing:  # code that asks a person would wait, and take a request
            os.dup2(nothing.fileno(), 0)
        self._reply = os.fdopen(int(sys.argv[2]), "w", buffering=1, encoding="utf-8")  # after "--reply"

    def specification(self, kind: type[T]) -> T:
        """Return the specification with which the parent started this worker."""
        return read_as(kind, sys.argv[3])

    def emit(self, event: str, **content: Any) -> None:
        """Send an event with these fields to the parent, as one line of JSON."""
        self._reply.write(json.dumps({"event": event, **content}) + "\n")

    def stage(self, stage: str, variant: str = "") -> None:
        """Tell the parent which stage begins, before the stage may hang or crash.

        ``variant`` is the variant to blame if the process dies in this stage; "" if all variants run in it.
        """
        self.emit("stage", stage=stage, variant=variant)

    def tell(self, text: str) -> None:
        """Tell the parent a line for people."""
        self.emit("told", text=text)

    def lost(self, variant: str, reason: str, rule: str = "") -> int:
        """Tell the parent that a variant broke the CUDA context or a rule; return the status to exit with."""
        self.emit("lost", variant=variant, reason=reason, rule=rule)
        return CONTEXT_LOST

    def requests(self) -> Iterator[dict[str, Any]]:
        """Yield the parent's requests until they end or the parent requests the end."""
        yield from itertools.takewhile(lambda request: END not in request, map(json.loads, self._requests))
