"""Find modules under test that may have stored the answer to a question about the machine, such as its GPU's name.

A module that asked once may store the answer and not ask again. Later cases that use the module are then unknown too.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from lockstep.machine_code.watch.object_id import object_id
from lockstep.machine_code.watch.purity import top


class ModuleState:
    """Finds modules under test that may have stored a fact about the machine, because their variables changed.

    Only changes in a case whose code asked about the machine (such as the GPU's name) count.

    Args:
        packages: top-level packages under test.

    Attributes:
        spoilt: why a module may have stored such a fact, by the module's name.
    """

    def __init__(self, packages: frozenset[str]) -> None:
        self._packages = packages
        self._before: dict[str, Any] | None = None
        self.spoilt: dict[str, str] = {}

    def begin_case(self) -> None:
        """Forget the recorded state of Python modules, so that the first call of the next case records it anew."""
        self._before = None

    def begin_call(self) -> None:
        """Record the state of modules before the first call of a case; do nothing before its later calls."""
        if self._before is None:
            self._before = self._held()

    def distrust_changed(self, reason: str) -> None:
        """Distrust the modules whose recorded state has changed: they may have stored a fact about the machine.

        Args:
            reason: what the code under test asked about the machine; the reason to distrust a module begins with it.
        """
        former, self._before = self._before or {}, self._held()
        for name, content in self._before.items():
            if content != former.get(name):
                self.spoilt.setdefault(name, f"{reason}, and {name} may remember the answer")

    def _held(self) -> dict[str, Any]:
        # Most modules hold some of the same objects, such as torch's class of tensors.
        contents: dict[int, Any] = {}

        def content(number: int, value: Any) -> Any:
            if number not in contents:
                contents[number] = _content(value)
            return contents[number]

        return {
            name: [(key, number := object_id(value), content(number, value)) for key, value in vars(module).items()]
            for name, module in list(sys.modules.items())
            if top(name) in self._packages and module is not None
        }


def _content(value: Any) -> Any:
    """Return the size of a value and the identities of its members, which show whether the value changed."""
    if isinstance(value, dict):
        return len(value), list(map(object_id, value.values()))
    if isinstance(value, list | set):
        return len(value), list(map(object_id, value))
    if isinstance(value, ModuleType):
        return None  # a module has its own entry if it is under test
    inside = getattr(value, "__dict__", None)
    return (list(inside), list(map(object_id, inside.values()))) if inside else None
