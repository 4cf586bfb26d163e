"""Trace the variants of suites in the current process, which then serves one tree and one target for its whole life."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.machine_code.model import CaseCode, CaseKey, Obstacle
from lockstep.machine_code.targets import Target
from lockstep.machine_code.tracing.recorded_launches import Request
from lockstep.machine_code.tracing.simulated_target import answer_as
from lockstep.machine_code.tracing.sources import Sources
from lockstep.machine_code.tracing.trace import trace_case
from lockstep.machine_code.tracing.trace_listener import heard_by
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import skip_reason
from lockstep.suite.family_files import definition_packages
from lockstep.suite.missing_files import without_tree
from lockstep.suite.variants import Family, NotInCommit, load_family

#: The launches of a case in order: the request to compile the kernel, and what the configuration of its tuner sets.
Launches = Sequence[tuple[Request, str]]
#: A case, its code without kernels, and its launches.
Row = tuple[CaseKey, CaseCode, Launches]


@dataclass
class Tracer:
    """Traces suites (by name) of one tree. From its creation on, torch and Triton report the target as the GPU.

    ``stage`` is called before each variant, with "trace" and the names of the suite and the variant.
    """

    suites: Mapping[str, Suite]
    tree: Path
    packages: Sequence[str]
    target: Target
    stage: Callable[[str, str], None]

    def __post_init__(self) -> None:
        # A suite's own variants are code under test as well: their questions about the machine decide what they do.
        roots = {self.tree.resolve(): set(self.packages)}
        for suite in self.suites.values():
            if suite.adapters:
                roots.setdefault(suite.home.resolve().parent, set()).update(definition_packages(suite, self.packages))
        self._sources = Sources(roots)
        answer_as(self.target)

    def trace(
        self, suites: Iterable[str], skip: Mapping[str, str], cases: Mapping[str, Sequence[str]] | None = None
    ) -> list[Row]:
        """Return the traces of the cases of these suites, or of those whose labels ``cases`` lists by suite.

        ``skip`` has reasons for variants ("suite variant") that must not be traced.
        """
        return [row for name in suites for row in self._suite(self.suites[name], skip, cases[name] if cases else None)]

    def _suite(self, suite: Suite, skip: Mapping[str, str], labels: Sequence[str] | None) -> Iterator[Row]:
        family, broken = None, CaseCode()
        try:
            with heard_by(distrust=self._note_import):
                family = load_family(suite)
        except NotInCommit as error:
            broken = _absent(error)
        except Exception as error:
            broken = CaseCode(unknown=f"cannot be imported ({type(error).__name__}: {without_tree(str(error))})")
        for variant in family.variants if family else suite.variants():
            name = f"{suite.name} {variant}"
            for case in suite.cases:
                if skip_reason(suite, variant, case) or (labels is not None and case.label not in labels):
                    continue  # never measured, or not requested
                self.stage("trace", name)
                key = CaseKey(suite.name, variant, case.label)
                if family is None or name in skip:
                    yield key, CaseCode(unknown=skip[name]) if family else broken, ()
                    continue
                try:
                    yield key, *self._case(suite, case, family, variant)
                except NotInCommit as error:
                    yield key, _absent(error), ()

    def _note_import(self, question: str) -> None:
        self._sources.note_import(question, list(traceback.walk_stack(sys._getframe(1))))

    def _case(self, suite: Suite, case: Case, family: Family, variant: str) -> tuple[CaseCode, Launches]:
        trace = trace_case(suite, case, family, variant, self.target, self._sources)
        at_import: list[Obstacle] = []
        if self._sources.asked:
            with self._sources.reached() as at_import:
                trace = trace_case(suite, case, family, variant, self.target, self._sources)
        obstacles = (*at_import, *(Obstacle(*each) for each in trace.obstacles.items()))
        unknown, call = (obstacles[0].question, None) if obstacles else ("", trace.call)
        host = tuple(step.text for step in trace.steps)
        code = CaseCode((), host, unknown, call=call, obstacles=obstacles, refusal=trace.refusal)
        return code, [(step.request, step.configuration) for step in trace.steps if step.request is not None]


def _absent(error: NotInCommit) -> CaseCode:
    return CaseCode(unknown=f"no {error.lacks}", absent=True)
