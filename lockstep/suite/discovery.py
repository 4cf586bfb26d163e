"""Find suites: every subclass of ``Suite`` at the top level of a module of the benchmark folder."""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from lockstep.suite.definition import Suite, SuiteError
from lockstep.suite.own_variants import Adapter
from lockstep.suite.selection import pick_suites

#: Packages under test if asv.conf.json does not name them.
PACKAGES = ("kernels",)

#: Advice for a suite whose own import imports the package under test, which must come from a commit.
IMPORT_INSIDE = "import the package under test inside the functions of a suite, not at the top of its module"


@dataclass(frozen=True)
class Workspace:
    """The suites that asv's configuration names, and the packages that they measure.

    Attributes:
        benchmark_dir: folder of the suites.
        suites: the suites by name.
        packages: top-level packages under test.
    """

    conf: Any
    benchmark_dir: Path
    suites: Mapping[str, Suite]
    packages: tuple[str, ...]

    @classmethod
    def of(cls, conf: Any) -> Workspace:
        """Load the suites; see ``load_suites``, ``packages_under_test`` and ``packages_folder`` for errors.

        The suites may measure another repository, whose packages the working tree need not hold.
        """
        folder = Path(conf.benchmark_dir).resolve()
        workspace = cls(conf, folder, suites := load_suites(folder), packages_under_test(conf, suites))
        if Path(conf.repo) in (Path.cwd(), *Path.cwd().parents):
            packages_folder(conf, suites)
        return workspace

    @property
    def folder(self) -> Path:
        """Return the folder of the working tree that holds the packages; see ``packages_folder`` for errors."""
        return packages_folder(self.conf, self.suites)

    def pick(self, names: Sequence[str]) -> list[Suite]:
        """Return the suites of these names and families, each once; all without names."""
        return list(dict.fromkeys(suite for name in names or self.suites for suite in pick_suites(self.suites, name)))


def load_suites(benchmark_dir: Path) -> dict[str, Suite]:
    """Return the suites by name (``family`` or ``family.op``), from the package at ``benchmark_dir``.

    Modules that do not name Lockstep are left out: a folder may hold benchmarks of other tools as well. Raise
    ``SuiteError`` if the folder is not a package, another package of its name is imported already, a module cannot be
    imported, a suite is incomplete, or two suites share a name.
    """
    benchmark_dir = benchmark_dir.resolve()
    if not (benchmark_dir / "__init__.py").is_file():
        raise SuiteError(
            f"benchmark_dir {benchmark_dir} of asv.conf.json is not a package of suites: no __init__.py. "
            "Create it, or name another folder of suites there"
        )
    root = str(benchmark_dir.parent)
    if root not in sys.path[:1]:
        sys.path.insert(0, root)  # before another folder of this name
    known = sys.modules.get(benchmark_dir.name)
    places = list(getattr(known, "__path__", ["a file"]))
    if known is not None and benchmark_dir not in {Path(place).resolve() for place in places}:
        raise SuiteError(
            f"another package {benchmark_dir.name} is imported already, from {', '.join(places)}: rename the folder of "
            "suites, and benchmark_dir in asv.conf.json"
        )
    suites: dict[str, Suite] = {}
    for _, name, is_package in pkgutil.iter_modules([str(benchmark_dir)], f"{benchmark_dir.name}."):
        place = benchmark_dir / name.partition(".")[2]
        if not _may_hold_suites(place / "__init__.py" if is_package else place.with_suffix(".py"), benchmark_dir.name):
            continue
        try:
            module = importlib.import_module(name)
        except (SuiteError, KeyboardInterrupt):
            raise
        except BaseException as error:
            # SystemExit too: a suite that calls sys.exit would end the verb with the suite's own status.
            advice = f"; {IMPORT_INSIDE}" if isinstance(error, ImportError) else ""
            raise SuiteError(
                f"suite module {name} cannot be imported: {type(error).__name__}: {error}{advice}"
            ) from error
        for suite in suites_in(module):
            if suites.setdefault(suite.name, suite) is not suite:
                raise SuiteError(
                    f"two suites are called {suite.name}; the second is in {module.__file__}: set its `family`"
                )
    return suites


def _may_hold_suites(path: Path, folder: str) -> bool:
    """Return whether a module names Lockstep or imports another module of its folder.

    Other modules are benchmarks of other tools: they are not imported, because many are scripts.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # compiled
        return True
    return "lockstep" in text or re.search(rf"^\s*(from|import)\s+(\.|{folder}\b)", text, re.MULTILINE) is not None


def suites_in(module: ModuleType) -> Iterator[Suite]:
    """Yield the suites that a module defines; ``SuiteError`` if one lacks a method, an attribute or its baseline."""
    for name, value in vars(module).items():
        if name.startswith("_") or not is_suite(value) or value.__module__ != module.__name__:
            continue
        if inspect.isabstract(value):
            missing = ", ".join(sorted(value.__abstractmethods__))
            raise SuiteError(
                f"{module.__file__}: suite {name} needs {missing}; a class that is only a base begins with _"
            )
        _expect_spelling(value)
        suite = value()
        suite.variants()  # raises now if the variants are wrong
        yield suite


def _expect_spelling(suite: type[Suite]) -> None:
    """Raise ``SuiteError`` if an attribute is spelt almost like one of ``Suite``: it would have no effect."""
    known = {name for name in (*dir(Suite), *Suite.__annotations__) if not name.startswith("_")}
    for name, value in vars(suite).items():
        if name.startswith("_") or name in known or isinstance(value, Adapter):
            continue
        if close := difflib.get_close_matches(name, known, n=1, cutoff=0.88):
            raise SuiteError(f"suite {suite.__name__}: Lockstep knows no {name}; did you mean {close[0]}?")


def is_suite(value: object) -> TypeGuard[type[Suite]]:
    """Return whether a value is a subclass of ``Suite``."""
    return isinstance(value, type) and issubclass(value, Suite) and value is not Suite


def packages_under_test(conf: Any, suites: Mapping[str, Suite]) -> tuple[str, ...]:
    """Return the packages that come from a commit: ``{"lockstep": {"packages": […]}}`` of asv's configuration.

    Raise ``SuiteError`` if the list is empty, a package that a suite measures is missing from it, or a suite's module
    imports a listed package at its top level, so that every commit would be measured with the current package.
    """
    packages = _listed(conf)
    if not packages:
        raise SuiteError('"packages" in asv.conf.json is empty, so no code comes from a commit: name what is measured')
    for suite in suites.values():
        measured = _measured(suite, packages_root(conf))
        if measured and measured.isdisjoint(packages):
            top = min(measured)
            raise SuiteError(
                f"suite {suite.name} measures {suite.module or top}, but {top} is not among the packages that "
                f'come from a commit: asv.conf.json needs "lockstep": {{"packages": ["{top}"]}}, '
                f"but has {', '.join(packages)}"
            )
        for module in _imported_modules(suite):
            if top := _holds(module, packages):
                raise SuiteError(f"{module.__file__} imports {top}, which comes from each commit: {IMPORT_INSIDE}")
    return packages


def slow_imports(suites: Mapping[str, Suite]) -> Iterator[str]:
    """Yield a sentence for each module of the suites that imports torch or Triton at its top level."""
    for module in dict.fromkeys(module for suite in suites.values() for module in _imported_modules(suite)):
        if top := _holds(module, ("torch", "triton")):
            yield (
                f"{module.__file__} imports {top} at its top, which takes seconds in each process that reads the "
                "suites, asv's discovery among them: import it inside functions"
            )


def _listed(conf: Any) -> tuple[str, ...]:
    return tuple(getattr(conf, "lockstep", {}).get("packages", PACKAGES))


def _measured(suite: Suite, root: Path) -> set[str]:
    """Return the top-level packages of the project that a suite measures: that of ``module``, and those that its own
    variants import in their functions.

    Some of the latter may be helpers. ``root``: the folder that holds the packages.
    """
    if suite.module:
        return {suite.module.partition(".")[0]}
    functions = [each for adapter in suite.adapters.values() for each in (adapter.function, adapter.prepare) if each]
    imported: set[str] = set()
    for function in functions:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError):  # made by a program
            continue
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            imported |= {name.partition(".")[0] for name in names}
    return {top for top in imported if top != suite.home.name and _is_package(root, top)}


def _imported_modules(suite: Suite) -> Iterator[ModuleType]:
    """Yield the imported modules of the package that defines a suite: the suite's module, and modules it may use."""
    home = type(suite).__module__.partition(".")[0]
    yield from (
        module for name, module in list(sys.modules.items()) if name.partition(".")[0] == home and module is not None
    )


def _holds(module: ModuleType, packages: Sequence[str]) -> str:
    """Return the first of ``packages`` to which a global of the module belongs; "" if there is none."""
    for value in vars(module).values():
        source = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        top = source.partition(".")[0] if isinstance(source, str) else ""
        if top in packages and top != module.__name__.partition(".")[0]:
            return top
    return ""


def packages_root(conf: Any) -> Path:
    """Return the folder of the working tree that should hold the packages; ``packages_folder`` checks that it does."""
    return Path.cwd() / getattr(conf, "repo_subdir", "")


def _is_package(folder: Path, top: str) -> bool:
    return (folder / top).is_dir() or (folder / f"{top}.py").is_file()


def packages_folder(conf: Any, suites: Mapping[str, Suite]) -> Path:
    """Return the folder of the working tree that holds the packages: asv.conf.json's folder, or its ``repo_subdir``.

    Raise ``SuiteError`` if a measured package is not in that folder; all commits would then look the same.
    """
    below = getattr(conf, "repo_subdir", "")
    folder = packages_root(conf)
    measured = {suite.module.partition(".")[0]: f"suite {suite.name} measures" for suite in suites.values()}
    if any(suite.adapters for suite in suites.values()):
        stated = "packages" in getattr(conf, "lockstep", {})
        names = '"packages" in asv.conf.json names' if stated else 'counts without "packages" in asv.conf.json'
        measured |= dict.fromkeys(_listed(conf), names)
    for top, source in measured.items():
        if top and not _is_package(folder, top):
            close = difflib.get_close_matches(top, [path.stem for path in folder.glob("*")], n=1)
            advice = (
                f"; did you mean {close[0]}?"
                if close
                else f'; "repo_subdir" in asv.conf.json names that folder ({below})'
                if below
                else '; if it is in another folder of the repository, name that in asv.conf.json: "repo_subdir": "src"'
            )
            raise SuiteError(f"{folder} holds no package {top}, which {source}{advice}")
    return folder


def has_family(root: Path, suite: Suite) -> bool:
    """Return whether a tree may have variants of a suite: it has the suite's module, or the suite has its own."""
    if suite.adapters or not suite.module:
        return True
    path = root.joinpath(*suite.module.split("."))
    return path.with_name(f"{path.name}.py").is_file() or (path / "__init__.py").is_file()
