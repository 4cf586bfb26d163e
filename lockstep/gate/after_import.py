"""Change a module right after its import, before the code that imports it goes on."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

#: Returns whether a module is to be changed, and changes it; both take the module's name.
Watcher = tuple[Callable[[str], bool], Callable[[str], None]]


def after_import(wanted: Callable[[str], bool], change: Callable[[str], None]) -> None:
    """Call ``change`` with the name of each imported module that is wanted, and of others as soon as they are."""
    finder = next((one for one in sys.meta_path if isinstance(one, _Finder)), None)
    if finder is None:
        sys.meta_path.insert(0, finder := _Finder())
    finder.watchers.append((wanted, change))
    for name in filter(wanted, list(sys.modules)):
        change(name)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds a module that a watcher wants by the other finders, and calls the watcher after the import."""

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        changes = [change for wanted, change in self.watchers if wanted(fullname)]
        others = [finder for finder in sys.meta_path if finder is not self] if changes else []
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                for change in changes:
                    change(fullname)

            loader.exec_module = exec_module
        return spec
