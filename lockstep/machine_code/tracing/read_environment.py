"""Record which environment variables the code under test reads: a trace holds for their values alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

#: Modules between the code that reads a variable and the mapping that holds it.
_BETWEEN = ("os", "collections.abc", "_collections_abc")


def record_environment(packages: Iterable[str]) -> dict[str, str | None]:
    """Return a dict that receives each variable that the packages read from now on, with its value or ``None``."""
    read: dict[str, str | None] = {}
    own = frozenset(packages)
    look_up: Any = os._Environ.__getitem__

    def recorded(self: Any, name: str) -> str:
        frame = sys._getframe(1)
        while frame.f_globals.get("__name__") in _BETWEEN and frame.f_back is not None:
            frame = frame.f_back
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in own:
            try:
                read[name] = look_up(self, name)
            except KeyError:
                read[name] = None
        return str(look_up(self, name))

    os._Environ.__getitem__ = recorded  # type: ignore[method-assign, assignment]
    return read
