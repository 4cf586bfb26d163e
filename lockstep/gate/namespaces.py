"""Hold two versions of the same packages in one process, both under their own module names.

The trees of both versions (the sides "base" and "head") hold a package of the same name, and both must use that name:
Triton's disk cache, torch.compile, dataclasses and pickles depend on ``__module__``. So each side has its own entries
of ``sys.modules``, which are in place while the side's code is imported or called. Every import that this code makes
(relative, absolute, late inside a function, or by ``importlib``) is looked up in these entries and found in the side's
tree. Objects that a function captured at import, such as its globals, need no switching.

A suite's own variants have the same source for base and head. Each side still imports its own copy of their modules,
so that state from an import belongs to one side.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder
from pathlib import Path
from types import FunctionType, ModuleType

from lockstep.suite.checkout import find_below
from lockstep.suite.definition import Suite
from lockstep.suite.variants import Family, load_family


class Conflict(ImportError):
    """One process cannot import both base and head. The message names the module that prevents this."""


class Sides:
    """Imports the packages under test from several trees ("base" and "head") in one process.

    Packages that are imported already raise ``ImportError``.

    Args:
        packages: top-level packages; each is imported only from a side's tree.
        definitions: top-level packages of suites with variants of their own, and the folder that holds each package.
            Each side imports its own copy.
        roots: folder that holds a side's packages, by the side's name.
    """

    def __init__(self, packages: Sequence[str], definitions: Mapping[str, Path] | None = None, **roots: Path) -> None:
        self.packages = tuple(packages)
        self.definitions = {name: folder.resolve() for name, folder in (definitions or {}).items()}
        self.roots = {name: root.resolve() for name, root in roots.items()}
        self._modules: dict[str | None, dict[str, ModuleType]] = {name: {} for name in roots}
        self._active: str | None = None
        loaded = self._loaded()
        for name in loaded:
            if name.partition(".")[0] in self.packages:
                raise ImportError(
                    f"{name} is already imported, from {sys.modules[name].__file__}. "
                    "A suite must import the package under test inside its functions"
                )
        self._modules[None] = {name: sys.modules[name] for name in loaded}
        self._mark = _mark()
        sys.meta_path.insert(0, _Finder(self))

    @property
    def root(self) -> Path | None:
        """Return the folder of the tree whose code is being imported or called; None outside of ``active`` blocks."""
        return self.roots[self._active] if self._active else None

    @property
    def side(self) -> str | None:
        """Return the name of the side whose code is being imported or called; None outside of ``active`` blocks."""
        return self._active

    @contextlib.contextmanager
    def active(self, side: str) -> Iterator[None]:
        """Let imports of the packages under test find base or head (``side``) within the block. Blocks may nest."""
        before = self._active
        if side != before:
            self._switch(side)
        try:
            yield
        finally:
            if side != before:
                self._switch(before)

    def forget(self, side: str) -> None:
        """Drop the modules that a side has imported."""
        self._modules[side].clear()

    def sharers(self) -> list[str]:
        """Return the modules that the sides share and that hold code under test: an installed library that imports it.

        Their calls run the code of the side that imported them first, whatever side is active.
        """
        found = []
        for name, module in list(sys.modules.items()):
            # Not by isinstance, which asks lazy objects for their class, and these import or warn.
            kinds = (FunctionType, ModuleType, type)
            values = [value for value in vars(module).values() if issubclass(type(value), kinds)]
            homes = (value.__name__ if isinstance(value, ModuleType) else value.__module__ for value in values)
            if any(isinstance(home, str) and home.partition(".")[0] in self.packages for home in homes):
                found.append(name)
        return found

    def load_family(self, suite: Suite, side: str) -> Family:
        """Return the variants of a suite, imported from the tree of base or head (``side``).

        Raises ``Conflict`` if a module of the packages came from outside the side's tree, for example a compiled
        extension, which Python loads once per process; and the errors of ``lockstep.suite.variants.load_family``.
        """
        with self.active(side):
            family = load_family(self._anew(suite))
            self._verify(side)
        return family

    def relative(self, side: str, file: str) -> Path:
        """Return a file's path relative to the tree of base or head (``side``); ``ValueError`` if it is not in it."""
        return Path(file).resolve().relative_to(self.roots[side])

    def _anew(self, suite: Suite) -> Suite:
        """Return the suite; if it has variants of its own, return the copy that base or head, as active, imported."""
        name = type(suite).__module__
        if name.partition(".")[0] not in self.definitions:
            return suite
        copy: Suite = getattr(importlib.import_module(name), type(suite).__name__)()
        return copy

    def _loaded(self) -> list[str]:
        return [name for name in sys.modules if self._home_of(name.split(".", 1)[0], None) is not None]

    def _home_of(self, top: str, side: str | None) -> Path | None:
        """Return the folder from which a top-level package is imported; None for one that base and head share."""
        if top in self.packages:
            return self.roots[side] if side is not None else Path()
        return self.definitions.get(top)

    def _switch(self, side: str | None) -> None:
        """Replace the active version's modules in ``sys.modules`` by those of base or head (``side``)."""
        unchanged = self._mark == _mark()
        known = list(self._modules[self._active]) if unchanged else self._loaded()
        self._modules[self._active] = {name: sys.modules.pop(name) for name in known}
        sys.modules.update(self._modules[side])
        self._active = side
        self._mark = _mark()

    def _verify(self, side: str) -> None:
        for name in self._loaded():
            file, root = getattr(sys.modules[name], "__file__", None), self._home_of(name.partition(".")[0], side)
            if file is not None and root is not None and not Path(file).resolve().is_relative_to(root):
                raise Conflict(f"module {name} of {side} was imported from {file}, which is outside {root}")


def _mark() -> tuple[int, str]:
    """Return a value that changes when ``sys.modules`` gains or loses a module: a dict adds new keys at its end.

    Comparing all of ``sys.modules`` takes 0.3 ms, and modules are switched for every replay of 1 ms on a CPU.
    """
    return len(sys.modules), next(reversed(sys.modules), "")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the packages under test in the tree of the active version, and refuses them anywhere else.

    ``packages``: packages under test, for ``lockstep.suite.checkout.under_test``.
    """

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self.packages = sides.packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self._sides.definitions and self._sides.root is not None:
            return importlib.machinery.PathFinder.find_spec(fullname, [str(self._sides.definitions[fullname])], target)
        if fullname not in self.packages:
            return None  # submodules are found through their package's path
        root = self._sides.root
        if root is None:
            raise ModuleNotFoundError(f"{fullname} is under test: import it only within Sides.active", name=fullname)
        importlib.invalidate_caches()
        return find_below(root, fullname, target)

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterator[Distribution]:
        """Yield the metadata that the tree of the active version holds: a release's own version."""
        if self._sides.root is not None and "path" not in vars(context or ()):
            yield from MetadataPathFinder.find_distributions(
                DistributionFinder.Context(name=getattr(context, "name", None), path=[str(self._sides.root)])
            )
