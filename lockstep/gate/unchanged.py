"""Know before measuring which cases a change cannot affect."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lockstep.gate.model import COMPILE, DETERMINISTIC, ERROR, SeriesKey
from lockstep.machine_code import CaseKey, Tree
from lockstep.machine_code.family_files import same_files
from lockstep.suite.definition import Suite

#: Quantities that depend on what the host does as well. Equal work on the GPU says nothing about them, because other
#: Python may launch the same kernels outside a graph, or prepare their inputs with other values.
_OF_HOST = ("host", DETERMINISTIC, ERROR, COMPILE)


@dataclass(frozen=True)
class Unchanged:
    """The cases that a change does not affect, and what was seen of the other cases.

    Attributes:
        same_sources: suites whose variants depend on files that differ at most in comments, layout and docstrings.
        observed: what captured graphs say of the observed cases: the first difference, or "" for the same work.
        refused: the message with which both sides refuse a case.
        works: digests of the work of changed cases; variants with equal digests at a case are the same comparison.
        measure_all: whether no case counts as unchanged, but differences are still reported.
    """

    same_sources: frozenset[str] = frozenset()
    observed: Mapping[CaseKey, str] = field(default_factory=dict)
    refused: Mapping[CaseKey, str] = field(default_factory=dict)
    works: Mapping[CaseKey, str] = field(default_factory=dict)
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
        """Return what differs in the work of a case, as one sentence; () if nothing was seen."""
        difference = self.observed.get(_case(key), "")
        return (difference,) if difference else ()

    def work(self, key: SeriesKey) -> str:
        """Return the digest of a case's work; "" if it is not known."""
        return self.works.get(_case(key), "")

    def refusal(self, key: SeriesKey) -> str:
        """Return the message with which both sides refuse a case; "" if one of them accepts it."""
        return self.refused.get(_case(key), "")


def compare_sources(base: Tree, head: Tree, suites: Collection[Suite]) -> Unchanged:
    """Return which suites depend on the same files in both trees, apart from comments, layout and docstrings."""
    return Unchanged(
        frozenset(suite.name for suite in suites if same_files(base.root, head.root, base.packages, suite))
    )


def _case(key: SeriesKey) -> CaseKey:
    return CaseKey(key.suite, key.variant, key.case)
