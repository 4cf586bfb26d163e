"""Find the commits that change another project's benchmark.

asv gives a benchmark a new version if its function or its ``setup`` changes, and the points of two versions are not
compared. A loop count, a warm-up, a base class or a helper may change what is measured without a new version.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence
from dataclasses import replace

from lockstep.alerts.cause.commit_notes import CommitLog, CommitNote
from lockstep.processes.git import Git


def with_benchmark_changes(
    notes: Sequence[CommitNote], git: Git, log: CommitLog, benchmark: str
) -> tuple[CommitNote, ...]:
    """Return the notes of a range, those of the commits that change the benchmark's definition first, with its file.

    Args:
        log: see ``lockstep.alerts.cause.commit_notes.read_log``.
        benchmark: asv's name of the benchmark: modules, class if there is one, function.
    """
    marked = []
    for note in notes:
        files = tuple(path for path in log[note.commit][3] if _changes(git, note.commit, path, benchmark))
        marked.append(replace(note, touches="benchmark", files=files) if files else note)
    return tuple(sorted(marked, key=lambda note: note.touches != "benchmark"))


def _changes(git: Git, commit: str, path: str, benchmark: str) -> bool:
    """Return whether a commit changes the definition of a benchmark in a file, which has one before and after."""
    name = _defined_name(path, benchmark)
    if not name:
        return False
    blobs = (git.try_lines("cat-file", "blob", f"{at}:{path}") for at in (f"{commit}^", commit))
    before, after = (_definition("\n".join(lines or ()), name) for lines in blobs)
    return bool(before and after) and before != after


def _defined_name(path: str, benchmark: str) -> str:
    """Return the class or function of a benchmark that a file defines at its top level; "" if it is another file."""
    folders, names = path.removesuffix(".py").split("/"), benchmark.split(".")
    fitting = (name for place, name in enumerate(names) if place and folders[-place:] == names[:place])
    return next(fitting, "") if path.endswith(".py") else ""


@functools.lru_cache(maxsize=64)  # a commit's file is also its child's, and another alert's
def _definition(source: str, name: str) -> frozenset[str]:
    """Return the statements of a module that define a name, and those that define the names mentioned in them.

    Empty if the module does not define the name, is not valid Python, or nests too deeply.
    """
    try:
        statements = ast.parse(source).body
        defining = {bound: statement for statement in statements for bound in _bound(statement)}
        found: dict[str, str] = {}
        pending = {name} & defining.keys()
        while pending:
            texts = {one: ast.unparse(defining[one]) for one in pending}
            found |= texts
            pending = {word for text in texts.values() for word in re.findall(r"\w+", text)} & defining.keys() - found
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    return frozenset(found.values())


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement of a module defines. Imports do not count."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {statement.name}
    nodes = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    return {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
