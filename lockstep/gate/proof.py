"""Prove before measuring which cases a change cannot affect, and describe the code changes of the other cases."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lockstep.gate.case_verdict import COMPILE, ERROR, SeriesKey
from lockstep.gate.launches import Observation, contradiction
from lockstep.gate.plan import sample
from lockstep.machine_code import CaseCode, CaseKey, CodeChange, Comparison, Target, TooSlow, Tree, compare
from lockstep.machine_code.compiled_tree import family_sources
from lockstep.machine_code.sources.module_dependencies import same_code
from lockstep.suite.definition import Suite

Say = Callable[[str], None]


@dataclass(frozen=True)
class Proof:
    """The cases that are proved unchanged, and the known differences of the other cases.

    Attributes:
        same_sources: suites whose variants depend on files that differ at most in comments, layout and docstrings.
        comparison: comparison of machine code and host traces; ``None`` if it was not made.
        measure_all: whether to prove nothing, but still report differences.
        contradicted: why launches on the GPU contradict or do not confirm a proof, so that nothing is proved; else "".
        note: note on the comparison for the report, or "".
    """

    same_sources: frozenset[str] = frozenset()
    comparison: Comparison | None = None
    measure_all: bool = False
    contradicted: str = ""
    note: str = ""

    def same(self, key: SeriesKey) -> bool:
        """Return whether the case's machine code and launch are proved to be the same as in base.

        For the host's time, the error and the compile time only equal sources prove a case: other Python may launch the
        same kernels, and may prepare their inputs with other values; other kernels may become the same machine code.
        """
        if self.measure_all or self.contradicted:
            return False
        if key.suite in self.same_sources:
            return True
        if key.quantity in ("host", ERROR, COMPILE):
            return False
        return self.comparison is not None and self.comparison.status(_case(key)) == "same"

    def traced(self, key: SeriesKey) -> tuple[CaseCode, CaseCode] | None:
        """Return the traces of base and head that prove the case; ``None`` if the sources prove the case."""
        if self.comparison is None or key.suite in self.same_sources:
            return None
        base, head = (side.get(_case(key)) for side in (self.comparison.base, self.comparison.head))
        return (base, head) if base is not None and head is not None else None

    def reasons(self, key: SeriesKey) -> tuple[str, ...]:
        """Return a sentence for each difference in the code that a case runs."""
        return tuple(str(change) for change in self._changes.get(_case(key), ()))

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


def prove(
    base: Tree,
    head: Tree,
    suites: Collection[Suite],
    host: Mapping[str, str],
    say: Say,
    limit_s: float | None = None,
) -> Proof:
    """Prove which cases run the same code in both trees, as far as this machine can show.

    Without a GPU only sources are compared, because a CPU does not run the code that is traced and compiled.

    Args:
        base: sources before the change.
        head: sources after the change.
        suites: current suites, whose cases are compared.
        say: receives a line of progress before each long step.
        limit_s: seconds after which tracing and compiling stop; cases that need them then stay unproved. ``None`` for
            no limit.

    Raises:
        lockstep.machine_code.TracingFailed: the process that traces a tree does not start, or dies.
    """
    differ = [suite for suite in suites if not same_code(family_sources(base, suite), family_sources(head, suite))]
    same = frozenset({suite.name for suite in suites} - {suite.name for suite in differ})
    if not differ or host["device"] != "cuda":
        return Proof(same)
    # Kernels that depend on the GPU's name are traced for this GPU. The tracing process does not see the GPU.
    os.environ["LOCKSTEP_KERNEL_GPU"] = host["gpu"]
    try:
        compared = compare(base, head, differ, Target.of_host(host), say=say, limit_s=limit_s)
    except TooSlow as slow:
        return Proof(same, note=f"{slow}; so their cases are measured")
    return Proof(same, compared)


def _case(key: SeriesKey) -> CaseKey:
    return CaseKey(key.suite, key.variant, key.case)


def _severity(change: CodeChange) -> float:
    if change.kind != "kernel":
        return 2.0 if change.kind == "host" else 1.0
    before, after = (kernel.machine if kernel else None for kernel in (change.before, change.after))
    if before is not None and after is not None and after.spill_bytes > before.spill_bytes:
        return 4.0
    return 3.0


#: Runs a case on base and on head; the second argument requests torch's operators as well.
Observe = Callable[[SeriesKey, bool], tuple[Observation, Observation]]


def confirm(
    proof: Proof,
    proved: Sequence[SeriesKey],
    callable_in_both: Sequence[SeriesKey],
    observe: Observe,
    chance: random.Random,
    deadline: float,
) -> tuple[Proof, str]:
    """Call a sample of the proved cases in base and in head, and compare the launches.

    Args:
        proved: the cases that the proof covers, at least one.
        callable_in_both: the proved cases that one process can call in both base and head.
        observe: calls a case in base and in head, and returns the launches.
        chance: selects the sample.
        deadline: time on ``time.monotonic()``'s clock after which no further case is called.

    Returns:
        The proof, and a note for the report. The proof proves nothing if a case contradicts it, a case cannot be
        called, or no case was called.
    """
    checked = 0
    for key in sample(callable_in_both, lambda key: proof.traced(key) is not None, chance):
        if time.monotonic() >= deadline:
            break
        traced = proof.traced(key)
        base, head = observe(key, traced is not None)
        case = f"{key.suite} {key.variant} {key.case}"
        if contradicted := contradiction(base, head, traced or (None, None)):
            return _void(proof, f"a proof was wrong: {case}: {contradicted}", contradicted)
        if base.error and not base.refused:
            reason = f"{case} could not be called: {base.error}"
            return _void(proof, f"the proofs could not be checked on this GPU: {reason}", reason)
        checked += 1
    if not checked:
        reason = "no proved case was called"
        return _void(proof, f"the proofs could not be checked on this GPU: {reason}", reason)
    return proof, f"proofs checked on this GPU: {checked} of {len(proved)} proved cases called, all launch the same"


def _void(proof: Proof, note: str, reason: str) -> tuple[Proof, str]:
    return replace(proof, contradicted=reason), f"{note}; so no case counts as proved in this run, and all are measured"
