"""Import the packages under test from a checkout, and only from there.

The packages under test come from the measured commit, suites and harness from the current checkout. Both trees hold a
package of the same name, so the order of ``sys.path`` must not decide between them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import itertools
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType


def find_below(root: Path, fullname: str, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec:
    """Return the spec of a top-level package in the tree at ``root``; ``ModuleNotFoundError`` if it has none."""
    spec = importlib.machinery.PathFinder.find_spec(fullname, [str(root)], target)
    if spec is None or (spec.origin is None and not spec.submodule_search_locations):
        raise ModuleNotFoundError(f"the tree at {root} has no {fullname}", name=fullname)
    return spec


class CheckoutFinder(importlib.abc.MetaPathFinder):
    """Finds the named top-level packages under ``root`` and refuses to import them from elsewhere."""

    def __init__(self, root: Path, packages: Sequence[str]) -> None:
        self.root = root
        self.packages = frozenset(packages)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a package under test in the checkout; ``None`` for modules of any other name.

        Python finds submodules through their package's path. Raise ``ModuleNotFoundError`` if the checkout does not
        have the package.
        """
        if fullname not in self.packages:
            return None
        return find_below(self.root, fullname, target)


def under_test(module: str) -> bool:
    """Return whether a module belongs to a package that this process imports from a commit."""
    return any(module.partition(".")[0] in getattr(finder, "packages", ()) for finder in sys.meta_path)


def frames_under_test(error: BaseException) -> Iterator[FrameType]:
    """Yield the frames of modules under test in an error's traceback."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if under_test(str(frame.f_globals.get("__name__", ""))):
            yield frame


def note_place(error: BaseException) -> None:
    """Add a note to an error that says where the code under test raised it: "at kernels/linear/table.py:24"."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        parts = Path(frame.f_code.co_filename).parts
        top = next((top for top in (package, f"{package}.py") if top in parts), "")
        if top and under_test(package):
            place = f"{Path(*parts[len(parts) - 1 - parts[::-1].index(top) :])}:{line}"
    if place:
        error.add_note(f"at {place}")


def forget_failed_import(error: BaseException, known: int) -> None:
    """Remove the modules under test that a failed import had imported; do nothing for any other error.

    Python removes the module whose import failed, but not the modules that it had imported. Later calls would run them,
    although a fresh process would not reach them. ``known`` modules existed before the call; those imported since are
    at the end of ``sys.modules``.
    """
    if all(frame.f_code.co_name != "<module>" for frame in frames_under_test(error)):
        return
    for name in [name for name in itertools.islice(sys.modules, known, None) if under_test(name)]:
        module = sys.modules.pop(name)
        package, _, part = name.rpartition(".")
        if vars(sys.modules.get(package, module)).get(part) is module:
            delattr(sys.modules[package], part)


def import_from(root: Path, packages: Sequence[str]) -> None:
    """Import the packages only from ``root`` from now on; ``ImportError`` if one came from elsewhere before."""
    for name in packages:
        loaded = sys.modules.get(name)
        if loaded is not None:
            raise ImportError(
                f"{name} is already imported from {loaded.__file__}, so the checkout can no longer be chosen. "
                "In a suite, import the package under test inside the functions, not at the top of the file"
            )
    sys.meta_path.insert(0, CheckoutFinder(root.resolve(), packages))
