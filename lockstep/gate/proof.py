"""What is known before anything is measured: which cases a change cannot have touched, and what it did to others."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from lockstep.gate.trees import Tree
from lockstep.gate.verdict import SeriesKey
from lockstep.machine_code import CaseKey, CodeChange, Comparison, Target, compare
from lockstep.machine_code import Tree as CodeTree
from lockstep.machine_code.sources import closure
from lockstep.suite import Suite

Say = Callable[[str], None]


@dataclass(frozen=True)
class Proof:
    """Which cases are proved unchanged, and what is known of the others.

    Attributes:
        suites: names of those whose sources say the same, but for comments, docstrings and layout.
        comparison: of machine code and host traces; ``None`` if it was not made.
        measure_all: prove nothing, and say what differs all the same.
    """

    suites: frozenset[str] = frozenset()
    comparison: Comparison | None = None
    measure_all: bool = False

    def same(self, key: SeriesKey) -> bool:
        """Whether the case's machine code and launch are provably those of base."""
        if self.measure_all:
            return False
        if key.suite in self.suites:
            return True
        return self.comparison is not None and self.comparison.status(_case(key)) == "same"

    def reasons(self, key: SeriesKey) -> tuple[str, ...]:
        """A sentence for each difference of the code that a case runs."""
        return tuple(str(change) for change in self._changes.get(_case(key), ()))

    def source(self, key: SeriesKey) -> tuple[str, int]:
        """File and line of the first kernel of the case that changed; ("", 0) if none did."""
        for change in self._changes.get(_case(key), ()):
            file, _, line = change.source.rpartition(":")
            if file and line.isdigit():
                return file, int(line)
        return "", 0

    def severity(self, key: SeriesKey) -> float:
        """How much its code changed, for the order of judging: spills before other kernels before all else."""
        changes = self._changes.get(_case(key), ())
        return max((_severity(change) for change in changes), default=0.0)

    @cached_property
    def _changes(self) -> Mapping[CaseKey, tuple[CodeChange, ...]]:
        found: dict[CaseKey, list[CodeChange]] = {}
        for change in self.comparison.changes if self.comparison else ():
            for case in change.cases:
                found.setdefault(case, []).append(change)
        return {case: tuple(changes) for case, changes in found.items()}


def prove(
    base: Tree, head: Tree, packages: tuple[str, ...], suites: Iterable[Suite], host: Mapping[str, str], say: Say
) -> Proof:
    """Compare two trees, as far as it takes.

    Without a GPU only sources are compared: the code that a CPU runs is not the one that is traced and compiled.

    Args:
        base: before.
        head: after.
        packages: under test.
        suites: today's, those that are judged.
        host: facts of the machine.
        say: told what takes long.

    Raises:
        lockstep.machine_code.TracingFailed: a tree's process does not start.
    """
    chosen = list(suites)
    same = frozenset(
        suite.name for suite in chosen if _meaning(base, packages, suite) == _meaning(head, packages, suite)
    )
    rest = [suite for suite in chosen if suite.name not in same]
    if not rest or host["device"] != "cuda":
        return Proof(same)
    target = Target(int(host["capability"].replace(".", "")), int(host["sm_count"]))
    before, after = (CodeTree(tree.name, tree.root, packages) for tree in (base, head))
    return Proof(same, compare(before, after, rest, target, say=say))


def _case(key: SeriesKey) -> CaseKey:
    return CaseKey(key.suite, key.variant, key.case)


def _severity(change: CodeChange) -> float:
    if change.kind != "kernel":
        return 2.0 if change.kind == "host" else 1.0
    before, after = (kernel.machine if kernel else None for kernel in (change.before, change.after))
    if before is not None and after is not None and after.spill_bytes > before.spill_bytes:
        return 4.0
    return 3.0


def _meaning(tree: Tree, packages: tuple[str, ...], suite: Suite) -> dict[str, str]:
    """What the files that a suite's family stands on say."""
    files = closure(tree.root, packages, f"{suite.package}.{suite.family}")
    return {name: _said(content) if name.endswith(".py") else content.hex() for name, content in files.items()}


def _said(content: bytes) -> str:
    """A module without comments, docstrings and layout."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return content.hex()
    for node in ast.walk(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                if ast.get_docstring(node, clean=False) is not None:
                    node.body = node.body[1:]
    return ast.dump(tree)
