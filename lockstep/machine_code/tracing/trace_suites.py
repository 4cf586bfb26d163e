"""Trace the variants of suites in the current process, which then serves one tree and one target for its whole life."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lockstep.machine_code.family_files import definition_packages, family_files
from lockstep.machine_code.model import Call
from lockstep.machine_code.targets import Target
from lockstep.machine_code.tracing.driver_stand_in import stand_in
from lockstep.machine_code.tracing.recorded_launches import Request
from lockstep.machine_code.tracing.simulated_target import answer_as
from lockstep.machine_code.tracing.trace import trace_case
from lockstep.machine_code.tracing.trace_listener import heard_by
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import skip_reason
from lockstep.suite.missing_files import without_tree
from lockstep.suite.variants import NotInCommit, load_family


class Row(NamedTuple):
    """The trace of one case.

    Attributes:
        suite, variant, case: names.
        requests: the requests to compile, in the order of the launches.
        steps: the steps of the host side.
        unknown: the question because of which the case is not traced, or "".
        absent: whether the tree lacks a name that the variant imports.
        call: what a call does.
    """

    suite: str
    variant: str
    case: str
    requests: Sequence[Request] = ()
    steps: Sequence[str] = ()
    unknown: str = ""
    absent: bool = False
    call: Call | None = None


class Tracer:
    """Traces suites of one tree. From its creation on, torch and Triton report the target as the GPU.

    Args:
        suites: current suites, by name.
        tree: folder of the packages under test.
        packages: the packages under test.
        stage: called before each variant, with "trace" and the names of the suite and the variant.
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
        stand_in(target)
        answer_as(target)

    def trace(
        self, suites: Iterable[str], skip: Mapping[str, str], cases: Mapping[str, Sequence[str]] | None = None
    ) -> list[Row]:
        """Return the traces of the cases of these suites.

        Args:
            suites: names of suites.
            skip: reasons for variants ("suite variant") that must not be traced.
            cases: labels of the cases by suite; ``None`` for all cases.
        """
        chosen = [(self._suites[name], None if cases is None else cases[name]) for name in suites]
        return [row for suite, labels in chosen for row in self._suite(suite, skip, labels)]

    def _suite(self, suite: Suite, skip: Mapping[str, str], labels: Sequence[str] | None) -> Iterator[Row]:
        try:
            with heard_by(self._note_import, lambda step: None, None):
                family = load_family(suite)
        except NotInCommit as error:
            yield from _unknown(suite, suite.variants(), f"no {error.lacks}", absent=True)
            return
        except Exception as error:
            reason = f"cannot be imported ({type(error).__name__}: {without_tree(str(error))})"
            yield from _unknown(suite, suite.variants(), reason)
            return
        files = family_files(self._tree, self._packages, suite).files if self._asked else ()
        at_import = next((reason for file, reason in self._asked.items() if file in files), "")
        for variant in family.variants:
            if f"{suite.name} {variant}" in skip:
                yield from _unknown(suite, [variant], skip[f"{suite.name} {variant}"])
                continue
            self._stage("trace", f"{suite.name} {variant}")
            for case in suite.cases:
                if skip_reason(suite, variant, case) or (labels is not None and case.label not in labels):
                    continue  # never measured, or not requested
                try:
                    trace = trace_case(suite, case, family, variant, self._target, self._under_test)
                except NotInCommit as error:
                    yield Row(suite.name, variant, case.label, unknown=f"no {error.lacks}", absent=True)
                    continue
                yield Row(
                    suite.name,
                    variant,
                    case.label,
                    [step.request for step in trace.steps if step.request is not None],
                    [step.text for step in trace.steps],
                    at_import or trace.unknown,
                    call=None if at_import else trace.call,
                )

    def _note_import(self, reason: str) -> None:
        """Record a question of a module for every module of the tree that is being imported."""
        for frame, _ in traceback.walk_stack(sys._getframe(1)):
            path = Path(frame.f_code.co_filename).resolve()
            if path.is_relative_to(self._tree):
                file = str(path.relative_to(self._tree))
                self._asked.setdefault(file, f"{reason} while {file} is imported")


def _unknown(suite: Suite, variants: Iterable[str], reason: str, *, absent: bool = False) -> Iterator[Row]:
    for variant in variants:
        for case in suite.cases:
            if not skip_reason(suite, variant, case):
                yield Row(suite.name, variant, case.label, unknown=reason, absent=absent)
