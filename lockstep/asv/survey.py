"""Find the planned series of a commit that have the same work as a commit that was timed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from lockstep.asv.copy_numbers import Timed, Work, distances, is_sampled, repeatable
from lockstep.record.model import Record
from lockstep.suite.definition import Suite

Key = tuple[str, str, str, str]

#: Suite, case and cache state.
Case = tuple[str, str, str]


@dataclass(frozen=True)
class Planned:
    """What a run asks for at one case and cache state."""

    variants: list[str] = field(default_factory=list)
    costs: list[str] = field(default_factory=list)

    def covered(self, case: Case, known: Collection[Key]) -> bool:
        """Return whether all series of a case are among the known ones."""
        return all((case[0], name, *case[1:]) in known for name in self.variants)

    def touches(self, case: Case, known: Collection[Key]) -> bool:
        """Return whether a series of a case is among the known ones."""
        return any((case[0], name, *case[1:]) in known for name in self.variants)


@dataclass
class Survey:
    """What is known of the planned cases of one commit before any is timed.

    Attributes:
        plan: what the run asks for, by case.
        sources: digest of the files of each suite in this commit.
        works: digests of the work of variants, by suite and case, as far as they were asked for.
        found: records that repeat the numbers of a timed commit, by case.
    """

    commit: str
    suites: Mapping[str, Suite]
    plan: Mapping[Case, Planned]
    sources: Mapping[str, str]
    timed: Timed
    checkout: Path
    works: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._distance = distances(self.checkout, self.commit, self.timed.commits())
        self.found = {case: self._found(case) for case in self.plan}
        self._by_files = len(self.plan) - len(self.open())

    def open(self) -> list[Case]:
        """Return the cases of which a series has no timed commit to repeat."""
        return [case for case, planned in self.plan.items() if not planned.covered(case, self.found[case])]

    def look(self, works: Callable[[str, str, Sequence[str]], Mapping[str, str]]) -> None:
        """Ask ``works`` for the digests of each open case's variants and baseline, and find what the case repeats."""
        cases = self.open()
        for suite, label, _ in cases:
            if (suite, label) not in self.works:
                variants = {name for case in cases if case[:2] == (suite, label) for name in self.plan[case].variants}
                self.works[suite, label] = works(suite, label, sorted(variants))
        self.found |= {case: self._found(case) for case in cases}

    @cached_property
    def sampled(self) -> list[Case]:
        """Return the cases that are timed nevertheless; see ``lockstep.asv.copy_numbers.SAMPLED``."""
        covered = set(self.plan) - set(self.open())
        return [case for case in self.plan if case in covered and is_sampled(self.commit, *case)]

    def summary(self, again: int) -> str:
        """Return what was found, as one line. ``again``: number of cases outside the plan, which are timed again."""
        rest = len(self.open())
        by_graph = len(self.plan) - self._by_files - rest
        return (
            f"{self.commit[:8]}: of {len(self.plan) + again} cases {self._by_files} have the same files as a timed "
            f"commit and {by_graph} the same work; {len(self.sampled)} of these and {rest + again} others are timed"
        )

    def _found(self, case: Case) -> dict[Key, Record]:
        suite, planned = self.suites[case[0]], self.plan[case]
        keys = [(suite.name, name, *case[1:]) for name in dict.fromkeys([suite.baseline, *planned.variants])]
        work = Work(self.sources[suite.name], self.works.get(case[:2], {}))
        version = suite.benchmark_version
        return repeatable(self.timed, keys, suite.baseline, version, work, self._distance, planned.costs)
