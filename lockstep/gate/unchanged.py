"""Know before measuring which cases a change cannot affect."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lockstep.gate.model import COMPILE, DETERMINISTIC, ERROR, SeriesKey
from lockstep.machine_code.model import CaseKey
from lockstep.same_work.work import Observed
from lockstep.suite.commit_sources import Tree
from lockstep.suite.definition import Suite
from lockstep.suite.family_files import same_files

#: Quantities that depend on what the host does as well. Equal work on the GPU says nothing about them, because other
#: Python may launch the same kernels outside a graph, or prepare their inputs with other values.
_OF_HOST = ("host", DETERMINISTIC, ERROR, COMPILE)


@dataclass(frozen=True)
class Unchanged:
    """The cases that a change does not affect, and what was seen of the other cases.

    Attributes:
        same_sources: suites whose variants depend on files that differ at most in comments, layout and docstrings.
        observed: what captured graphs say of the observed cases.
        measure_all: whether no case counts as unchanged, but differences are still reported.
    """

    same_sources: frozenset[str] = frozenset()
    observed: Mapping[CaseKey, Observed] = field(default_factory=dict)
    measure_all: bool = False

    def why(self, key: SeriesKey) -> str:
        """Return why a case counts as unchanged without being measured; "" if it must be measured."""
        if self.measure_all:
            return ""
        if key.suite in self.same_sources:
            return "the same sources"
        if key.quantity in _OF_HOST or self.seen(key) is None or self.reasons(key):
            return ""
        return "observed: the same work on the GPU"

    def same(self, key: SeriesKey) -> bool:
        """Return whether a case counts as unchanged without being measured."""
        return bool(self.why(key))

    def seen(self, key: SeriesKey) -> Observed | None:
        """Return what captured graphs say of a case; ``None`` if it was not observed."""
        return self.observed.get(CaseKey(key.suite, key.variant, key.case))

    def reasons(self, key: SeriesKey) -> tuple[str, ...]:
        """Return what differs in the work of a case, as one sentence; () if nothing was seen."""
        seen = self.seen(key)
        return (seen.difference,) if seen and seen.difference else ()


def compare_sources(base: Tree, head: Tree, suites: Collection[Suite]) -> Unchanged:
    """Return which suites depend on the same files in both trees, apart from comments, layout and docstrings."""
    return Unchanged(
        frozenset(suite.name for suite in suites if same_files(base.root, head.root, base.packages, suite))
    )
