"""Know before measuring which cases a change cannot affect, and describe the code changes of the other cases."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lockstep.gate.case_verdict import COMPILE, DETERMINISTIC, ERROR, SeriesKey
from lockstep.machine_code import CaseKey, CodeChange, Comparison, Target, TooSlow, Tree, codes_of, compare
from lockstep.machine_code.family_files import same_files
from lockstep.suite.definition import Suite

Say = Callable[[str], None]

#: Quantities that depend on what the host does as well. Equal work on the GPU says nothing about them, because other
#: Python may launch the same kernels outside a graph, or prepare their inputs with other values.
_OF_HOST = ("host", DETERMINISTIC, ERROR, COMPILE)


@dataclass(frozen=True)
class Unchanged:
    """The cases that a change does not affect, and the known differences of the other cases.

    Attributes:
        same_sources: suites whose variants depend on files that differ at most in comments, layout and docstrings.
        observed: what captured graphs say of the observed cases: the first difference, or "" for the same work.
        refused: the message with which both sides refuse a case.
        comparison: comparison of the traced code, which only names differences; ``None`` if it was not made.
        measure_all: whether no case counts as unchanged, but differences are still reported.
    """

    same_sources: frozenset[str] = frozenset()
    observed: Mapping[CaseKey, str] = field(default_factory=dict)
    refused: Mapping[CaseKey, str] = field(default_factory=dict)
    comparison: Comparison | None = None
    measure_all: bool = False

    def why(self, key: SeriesKey) -> str:
        """Return why a case counts as unchanged without being measured; "" if it must be measured."""
        if self.measure_all:
            return ""
        if key.suite in self.same_sources:
            return "the same sources"
        if key.quantity in _OF_HOST or self.observed.get(_case(key), "not observed"):
            return ""
        return "observed: the same work on the GPU"

    def same(self, key: SeriesKey) -> bool:
        """Return whether a case counts as unchanged without being measured."""
        return bool(self.why(key))

    def reasons(self, key: SeriesKey) -> tuple[str, ...]:
        """Return a sentence for each difference in the code that a case runs."""
        changes = tuple(str(change) for change in self._changes.get(_case(key), ()))
        observed = self.observed.get(_case(key), "")
        return changes or ((observed,) if observed else ())

    def source(self, key: SeriesKey) -> tuple[str, int]:
        """Return file and line of the case's first changed kernel; ("", 0) if no kernel changed."""
        for change in self._changes.get(_case(key), ()):
            file, _, line = change.source.rpartition(":")
            if file and line.isdigit():
                return file, int(line)
        return "", 0

    def severity(self, key: SeriesKey) -> float:
        """Return a number that orders cases for measuring: highest for new spills, then for other kernel changes."""
        changes = self._changes.get(_case(key), ())
        return max((_severity(change) for change in changes), default=0.0)

    @cached_property
    def _changes(self) -> Mapping[CaseKey, tuple[CodeChange, ...]]:
        changes_of: dict[CaseKey, list[CodeChange]] = {}
        for change in self.comparison.changes if self.comparison else ():
            for case in change.cases:
                changes_of.setdefault(case, []).append(change)
        return {case: tuple(changes) for case, changes in changes_of.items()}


def compare_sources(base: Tree, head: Tree, suites: Collection[Suite]) -> Unchanged:
    """Return which suites depend on the same files in both trees, apart from comments, layout and docstrings."""
    return Unchanged(
        frozenset(suite.name for suite in suites if same_files(base.root, head.root, base.packages, suite))
    )


def describe(
    base: Tree, head: Tree, suites: Collection[Suite], host: Mapping[str, str], say: Say, limit_s: float
) -> tuple[Comparison | None, str]:
    """Trace and compile both trees for this GPU: Triton's cache then has their kernels, and differences have names.

    Args:
        base: sources before the change.
        head: sources after the change.
        suites: suites whose sources differ.
        say: receives a line of progress before each long step.
        limit_s: seconds after which the comparison stops.

    Returns:
        The comparison, ``None`` if it took too long, and a note for the report.

    Raises:
        lockstep.machine_code.TracingFailed: the process that traces a tree does not start, or dies.
    """
    # Kernels that depend on the GPU's name are traced for this GPU. The tracing process does not see the GPU.
    os.environ["LOCKSTEP_KERNEL_GPU"] = host["gpu"]
    target = Target.of_host(host)
    try:
        compared = compare(base, head, suites, target, say=say, limit_s=limit_s)
    except TooSlow as slow:
        return None, f"{slow}; so their differences have no names"
    for tree in (base, head):
        codes_of(tree, suites, target, anew=True, say=say)
    return compared, ""


def _case(key: SeriesKey) -> CaseKey:
    return CaseKey(key.suite, key.variant, key.case)


def _severity(change: CodeChange) -> float:
    if change.kind != "kernel":
        return 2.0 if change.kind == "host" else 1.0
    before, after = (kernel.machine if kernel else None for kernel in (change.before, change.after))
    if before is not None and after is not None and after.spill_bytes > before.spill_bytes:
        return 4.0
    return 3.0
