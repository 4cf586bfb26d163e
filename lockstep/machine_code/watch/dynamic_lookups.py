"""Check, at run time, what the code under test reads from modules that it finds by a string.

The bytecode does not show such names. So ``getattr``, ``hasattr`` and ``import_module`` are replaced, for the code
under test, by functions that check.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from lockstep.machine_code.watch.bytecode_mentions import refused_value
from lockstep.machine_code.watch.purity import PURE, top
from lockstep.machine_code.watch.trace_listener import TRANSPARENT

_IMPORT = importlib.import_module  # Python's own function, whatever replaced it before


class Judge:
    """Checks each value that code under test reads, by a string, from modules that are not under test.

    Args:
        own: top-level packages under test, and packages that they may call.
        distrust: receives the reason if a value that is read makes the trace untrusted.
    """

    def __init__(self, own: frozenset[str], distrust: Callable[[str], None]) -> None:
        self._own = own
        self._distrust = distrust

    def is_judged(self, module: Any) -> bool:
        """Return whether reads from a module are checked: it is neither in ``own`` nor known to be pure."""
        return isinstance(module, ModuleType) and top(module.__name__) not in self._own and module.__name__ not in PURE

    def checked(self, module: ModuleType, name: str, value: Any) -> Any:
        """Check a value that is read from a module; return the value, or a ``Reached`` that replaces a module."""
        if self.is_judged(value):
            return value if isinstance(value, Reached) else Reached(value, self)
        if name == "__dict__":
            self._distrust(f"uses the dict of {module.__name__}")
        elif reason := refused_value(module, name, value, self._own):
            self._distrust(f"looks names up at run time and {reason}")
        return value

    def builtins(self) -> dict[str, Any]:
        """Return Python's built-in names; ``getattr`` and ``hasattr`` are functions that also check what is read."""

        def getattr_(owner: Any, name: str, *default: Any) -> Any:
            value = getattr(owner, name, *default)
            return self.checked(owner, name, value) if self.is_judged(owner) else value

        def hasattr_(owner: Any, name: str) -> bool:
            return hasattr(owner, name)

        TRANSPARENT.update((getattr_.__code__, hasattr_.__code__))
        return {**vars(builtins), "getattr": getattr_, "hasattr": hasattr_}

    def watch_imports(self, asks: Callable[[FrameType], bool]) -> None:
        """Make ``importlib.import_module`` return a ``Reached`` to callers for whose frames ``asks`` is true."""

        def import_module(name: str, package: str | None = None) -> ModuleType:
            module = _IMPORT(name, package)
            return Reached(module, self) if self.is_judged(module) and asks(sys._getframe(1)) else module

        importlib.import_module = import_module


class Reached(ModuleType):
    """Replaces a module that code under test found by a string, so that reads of its attributes are checked."""

    def __init__(self, module: ModuleType, judge: Judge) -> None:
        super().__init__(module.__name__)
        object.__setattr__(self, "judged", (module, judge))

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return Reached
        module, judge = object.__getattribute__(self, "judged")
        return judge.checked(module, name, getattr(module, name))


TRANSPARENT.update((Judge.checked.__code__, Reached.__getattribute__.__code__))
