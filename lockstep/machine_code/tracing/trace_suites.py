"""Trace the variants of suites in the current process, which then serves one tree and one target for its whole life."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lockstep.machine_code.family_files import definition_packages, family_files
from lockstep.machine_code.model import CaseCode, CaseKey
from lockstep.machine_code.targets import Target
from lockstep.machine_code.tracing.recorded_launches import Request
from lockstep.machine_code.tracing.simulated_target import answer_as
from lockstep.machine_code.tracing.trace import trace_case
from lockstep.machine_code.tracing.trace_listener import heard_by
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import skip_reason
from lockstep.suite.missing_files import without_tree
from lockstep.suite.variants import NotInCommit, load_family

#: A case, its code without kernels, and the requests to compile its kernels, in the order of the launches.
Row = tuple[CaseKey, CaseCode, Sequence[Request]]


class Tracer:
    """Traces suites (by name) of one tree. From its creation on, torch and Triton report the target as the GPU.

    ``stage`` is called before each variant, with "trace" and the names of the suite and the variant.
    """

    def __init__(
        self,
        suites: Mapping[str, Suite],
        tree: Path,
        packages: Sequence[str],
        target: Target,
        stage: Callable[[str, str], None],
    ) -> None:
        self._suites = suites
        self._tree = tree.resolve()
        self._packages = packages
        self._target = target
        self._stage = stage
        # A suite's own variants are code under test as well: their questions about the machine decide what they do.
        own = {name for suite in suites.values() if suite.adapters for name in definition_packages(suite, packages)}
        self._under_test = frozenset({*packages, *own})
        #: What modules under test asked while they were imported, by their paths in the tree.
        self._asked: dict[str, str] = {}
        answer_as(target)

    def trace(
        self, suites: Iterable[str], skip: Mapping[str, str], cases: Mapping[str, Sequence[str]] | None = None
    ) -> list[Row]:
        """Return the traces of the cases of these suites, or of those whose labels ``cases`` lists by suite.

        ``skip`` has reasons for variants ("suite variant") that must not be traced.
        """
        return [row for name in suites for row in self._suite(self._suites[name], skip, cases[name] if cases else None)]

    def _suite(self, suite: Suite, skip: Mapping[str, str], labels: Sequence[str] | None) -> Iterator[Row]:
        family, broken = None, CaseCode()
        try:
            with heard_by(distrust=self._note_import):
                family = load_family(suite)
        except NotInCommit as error:
            broken = _absent(error)
        except Exception as error:
            broken = CaseCode(unknown=f"cannot be imported ({type(error).__name__}: {without_tree(str(error))})")
        files = family_files(self._tree, self._packages, suite).files if self._asked else ()
        at_import = next((reason for file, reason in self._asked.items() if file in files), "")
        for variant in family.variants if family else suite.variants():
            name = f"{suite.name} {variant}"
            self._stage("trace", name)
            for case in suite.cases:
                if skip_reason(suite, variant, case) or (labels is not None and case.label not in labels):
                    continue  # never measured, or not requested
                key = CaseKey(suite.name, variant, case.label)
                if family is None or name in skip:
                    yield key, CaseCode(unknown=skip[name]) if family else broken, ()
                    continue
                try:
                    trace = trace_case(suite, case, family, variant, self._target, self._under_test)
                except NotInCommit as error:
                    yield key, _absent(error), ()
                    continue
                steps = tuple(step.text for step in trace.steps)
                code = CaseCode((), steps, at_import or trace.unknown, call=None if at_import else trace.call)
                yield key, code, [step.request for step in trace.steps if step.request is not None]

    def _note_import(self, reason: str) -> None:
        """Record a question of a module for every module of the tree that is being imported."""
        for frame, _ in traceback.walk_stack(sys._getframe(1)):
            path = Path(frame.f_code.co_filename).resolve()
            if path.is_relative_to(self._tree):
                file = str(path.relative_to(self._tree))
                self._asked.setdefault(file, f"{reason} while {file} is imported")


def _absent(error: NotInCommit) -> CaseCode:
    return CaseCode(unknown=f"no {error.lacks}", absent=True)
