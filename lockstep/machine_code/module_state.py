"""What the modules under test hold, and which of them may remember the answer to a question.

A module that asked the world once may keep the answer and ask no more. Later cases that use it are unknown as well.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from lockstep.machine_code.purity import top


class ModuleState:
    """Finds modules that changed in a case that asked something.

    Args:
        packages: top-level packages under test.

    Attributes:
        spoilt: why a module may remember an answer, by its name.
    """

    def __init__(self, packages: frozenset[str]) -> None:
        self._packages = packages
        self._before: dict[str, Any] | None = None
        self.spoilt: dict[str, str] = {}

    def begin_case(self) -> None:
        """Forget what modules held before: what they hold when the case begins is what its calls may change."""
        self._before = None

    def begin_call(self) -> None:
        """Note what modules hold, once a case."""
        if self._before is None:
            self._before = self._held()

    def asked(self, reason: str) -> None:
        """Blame a question on the modules that hold something else since the case began."""
        former, self._before = self._before or {}, self._held()
        for name, content in self._before.items():
            if content != former.get(name):
                self.spoilt.setdefault(name, f"{reason}, and {name} may remember the answer")

    def _held(self) -> dict[str, Any]:
        return {
            name: [(key, id(value), _content(value)) for key, value in vars(module).items()]
            for name, module in list(sys.modules.items())
            if top(name) in self._packages and module is not None
        }


def _content(value: Any) -> Any:
    """How much a value holds, and which objects."""
    if isinstance(value, dict):
        return len(value), [id(part) for part in value.values()]
    if isinstance(value, list | set):
        return len(value), [id(part) for part in value]
    if isinstance(value, ModuleType):
        return None  # its own, where it is under test
    inside = getattr(value, "__dict__", None)
    return [(name, id(part)) for name, part in list(inside.items())] if inside else None
