"""Finding suites: every ``Suite`` that stands at the top level of a module of the benchmark folder."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.suite.model import Case, Suite, SuiteError

#: Packages under test unless asv.conf.json names them.
PACKAGES = ("kernels",)


def load_suites(benchmark_dir: Path) -> dict[str, Suite]:
    """Suites by name (``family`` or ``family.op``), from the package at ``benchmark_dir``.

    Raises:
        SuiteError: the folder is no package, a module cannot be imported, or two suites share a name.
    """
    benchmark_dir = benchmark_dir.resolve()
    if not (benchmark_dir / "__init__.py").is_file():
        raise SuiteError(f"{benchmark_dir} is no benchmark folder: it has no __init__.py")
    root = str(benchmark_dir.parent)
    if root not in sys.path:
        sys.path.insert(0, root)
    suites: dict[str, Suite] = {}
    for _, name, _ in pkgutil.iter_modules([str(benchmark_dir)], f"{benchmark_dir.name}."):
        try:
            module = importlib.import_module(name)
        except (SuiteError, KeyboardInterrupt):
            raise
        except BaseException as error:
            # Also SystemExit: a suite that calls sys.exit would end the verb with a status of its own.
            raise SuiteError(f"suite module {name} cannot be imported: {type(error).__name__}: {error}") from error
        for value in vars(module).values():
            if isinstance(value, Suite) and suites.setdefault(value.name, value) is not value:
                raise SuiteError(f"two suites are called {value.name}; the second is in {module.__file__}")
    return suites


def packages_under_test(conf: Any, suites: Mapping[str, Suite]) -> tuple[str, ...]:
    """Top-level packages that come from a commit: ``{"lockstep": {"packages": […]}}`` of asv's configuration.

    Raises:
        SuiteError: one that a suite measures is missing there; it would be today's at every commit.
    """
    packages = tuple(getattr(conf, "lockstep", {}).get("packages", PACKAGES))
    for suite in suites.values():
        top = suite.package.partition(".")[0]
        if top not in packages:
            raise SuiteError(
                f"suite {suite.name} measures {suite.package}.{suite.family}, and {top} is not among the packages that "
                f'come from a commit: asv.conf.json needs "lockstep": {{"packages": ["{top}"]}}, '
                f"there is {', '.join(packages) or 'none'}"
            )
    return packages


def packages_folder(conf: Any, suites: Mapping[str, Suite]) -> Path:
    """Folder of the working tree that holds the packages: that of asv.conf.json, or its ``repo_subdir``.

    Raises:
        SuiteError: a measured package is not there; two commits without it would be the same.
    """
    folder = Path.cwd() / getattr(conf, "repo_subdir", "")
    for suite in suites.values():
        top = suite.package.partition(".")[0]
        if not (folder / top).is_dir() and not (folder / f"{top}.py").is_file():
            raise SuiteError(
                f"{folder} holds no package {top}, which suite {suite.name} measures; where it lies in another folder "
                'of the repository, asv.conf.json says so: "repo_subdir": "src"'
            )
    return folder


def has_family(root: Path, suite: Suite) -> bool:
    """Whether a tree holds the module of a suite's kernels.

    Args:
        root: folder of the packages.
        suite: whose family is looked for.
    """
    module = root.joinpath(*suite.package.split("."), suite.family)
    return module.with_name(f"{suite.family}.py").is_file() or (module / "__init__.py").is_file()


def pick_suites(suites: Mapping[str, Suite], family: str) -> list[Suite]:
    """The suite of this name, or all suites of this family.

    Raises:
        SuiteError: neither exists; the message names the nearest.
    """
    picked = [suite for suite in suites.values() if family in (suite.name, suite.family)]
    if not picked:
        raise SuiteError(f"no family {family!r}{nearest(family, suites)}")
    return picked


def match_cases(suite: Suite, text: str) -> list[Case]:
    """Cases whose axes have the values in ``text``: ``M=8`` picks every case with M = 8.

    Raises:
        SuiteError: none has; the message lists the labels.
    """
    return [case for case in suite.all_cases if _has(case, text)] or [suite.case(text)]


def match_labels(suites: Sequence[Suite], texts: Sequence[str]) -> dict[str, list[str] | None]:
    """By suite, the labels of the cases that any of ``texts`` picks; ``None``, which is all, where there are no texts.

    Raises:
        SuiteError: a text picks no case of any suite; the message lists the labels of the first.
    """
    if not texts:
        return dict.fromkeys((suite.name for suite in suites), None)
    found: dict[str, list[str] | None] = {
        suite.name: [case.label for case in suite.all_cases if any(_has(case, text) for text in texts)]
        for suite in suites
    }
    for text in texts:
        if suites and not any(_has(case, text) for suite in suites for case in suite.all_cases):
            match_cases(suites[0], text)
    return found


def _has(case: Case, text: str) -> bool:
    return {part.strip() for part in text.split(",") if part.strip()} <= set(case.label.split(","))


def nearest(wrong: str, known: Iterable[str]) -> str:
    """``"; did you mean …?"`` with the close matches, or ``"; there is …"`` with all of them."""
    names = list(known)
    close = difflib.get_close_matches(wrong, names, n=3)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; there is {', '.join(names)}" if names else ""
