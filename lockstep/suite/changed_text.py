"""Find suites whose text changed while their version stayed the same."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from lockstep.processes.git import Git
from lockstep.suite.definition import Suite
from lockstep.suite.syntax import without_docstrings

#: Members of a suite that choose what is measured. They do not change how a case is measured.
_CHOICES = frozenset(
    {"cases", "quick", "tracked", "quantities", "full_history", "warm_history", "skips", "version", "continues"}
)

#: Number of changed names that a warning lists.
_SHOWN = 6


def changed_texts(suites: Iterable[Suite], commit: str) -> list[str]:
    """Return a warning for each suite whose module has changed since a commit while the suite's version has not.

    Comments, docstrings, layout and the choice of cases and variants do not count. Code that a suite uses from other
    modules is not compared. There is no warning if ``commit`` is "" or git does not know the module in it.
    """
    if not commit:
        return []
    suites = list(suites)
    earlier_texts: dict[Path, str] = {}
    warnings = []
    for suite in suites:
        path = Path(sys.modules[type(suite).__module__].__file__ or "")
        if path not in earlier_texts:
            earlier_texts[path] = "\n".join(
                Git(path.parent).try_lines("show", "--end-of-options", f"{commit}:./{path.name}") or ()
            )
        others = {type(other).__name__ for other in suites if type(other).__module__ == type(suite).__module__}
        others.discard(type(suite).__name__)
        today = _parts(path.read_text(encoding="utf-8"), others)
        try:
            earlier = _parts(earlier_texts[path], others)
        except (SyntaxError, ValueError):
            continue
        if not earlier or _versions(earlier) != _versions(today):
            continue
        differing = {name for name in earlier | today if earlier.get(name) != today.get(name)}
        names = sorted(name for name in differing if name.partition(".")[2] not in _CHOICES)
        if names:
            warnings.append(
                f"suite {suite.name}: {path.parent.name}/{path.name} differs from commit {commit[:8]} in "
                f"{_listed(names)}, but its version is still {suite.version}. If its numbers cannot be compared any "
                "more, raise the version"
            )
    return warnings


def _parts(source: str, left_out: set[str]) -> dict[str, str]:
    """Return the code of each statement of a module and of each member of its classes, by name."""
    return dict(_statements(without_docstrings(ast.parse(source)).body, left_out))


def _statements(body: Iterable[ast.stmt], left_out: set[str], prefix: str = "") -> Iterator[tuple[str, str]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef) and statement.name in left_out:
            continue
        if isinstance(statement, ast.ClassDef):
            members, statement.body = statement.body, [ast.Pass()]
            yield from _statements(members, left_out, f"{prefix}{statement.name}.")
        yield from ((prefix + name, ast.unparse(statement)) for name in _names(statement))


def _listed(names: list[str]) -> str:
    more = [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return ", ".join(names[:_SHOWN] + more)


def _names(statement: ast.stmt) -> list[str]:
    """Return the names that a statement binds, or else the first line of its code."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=targets) if all(isinstance(target, ast.Name) for target in targets):
            return [ast.unparse(target) for target in targets]
    return [ast.unparse(statement).partition("\n")[0]]


def _versions(statements: dict[str, str]) -> set[str]:
    """Return the statements of versions; that of the default if there is none."""
    stated = {code for name, code in statements.items() if name.partition(".")[2] == "version"}
    return stated or {f"version = {Suite.version!r}"}
