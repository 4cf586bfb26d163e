"""What is known before anything is measured: which cases a change cannot have touched, and what it did to others."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lockstep.gate.launches import Observation, contradiction
from lockstep.gate.plan import sample
from lockstep.gate.reachable_code import Sources, Unreadable
from lockstep.gate.verdict import SeriesKey
from lockstep.machine_code import CaseCode, CaseKey, CodeChange, Comparison, Target, TooSlow, Tree, compare
from lockstep.machine_code.sources import closure, same_code
from lockstep.machine_code.suite_sources import own_variants_files
from lockstep.suite.model import Suite

Say = Callable[[str], None]


@dataclass(frozen=True)
class Proof:
    """Which cases are proved unchanged, and what is known of the others.

    Attributes:
        unreached: suites and variants of which a change reaches nothing; see ``lockstep.gate.reachable_code``.
        comparison: of machine code and host traces; ``None`` if it was not made.
        measure_all: prove nothing, and say what differs all the same.
        contradicted: how what ran contradicted a proof, or why no run confirms it; nothing is proved then. Else "".
        note: what the report has to say of the comparison; "" for nothing.
    """

    unreached: frozenset[tuple[str, str]] = frozenset()
    comparison: Comparison | None = None
    measure_all: bool = False
    contradicted: str = ""
    note: str = ""

    def same(self, key: SeriesKey) -> bool:
        """Whether the case's machine code and launch are provably those of base."""
        if self.measure_all or self.contradicted:
            return False
        if (key.suite, key.variant) in self.unreached:
            return True
        return self.comparison is not None and self.comparison.status(_case(key)) == "same"

    def traced(self, key: SeriesKey) -> tuple[CaseCode, CaseCode] | None:
        """The traces of base and head on which the case's proof rests; ``None`` if it rests on the sources."""
        if self.comparison is None or (key.suite, key.variant) in self.unreached:
            return None
        base, head = (side.get(_case(key)) for side in (self.comparison.base, self.comparison.head))
        return (base, head) if base is not None and head is not None else None

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
    base: Tree,
    head: Tree,
    suites: Iterable[Suite],
    host: Mapping[str, str],
    say: Say,
    limit_s: float | None = None,
) -> Proof:
    """Compare two trees, as far as it takes.

    Without a GPU only sources are compared: the code that a CPU runs is not the one that is traced and compiled.

    Args:
        base: before.
        head: after.
        suites: today's, those that are judged.
        host: facts of the machine.
        say: told what takes long.
        limit_s: seconds after which tracing and compiling end, and cases that need them are unknown; ``None``: never.

    Raises:
        lockstep.machine_code.TracingFailed: a tree's process does not start.
    """
    unreached: set[tuple[str, str]] = set()
    differ = []
    for suite in suites:
        names = _unreached(base, head, suite)
        unreached |= {(suite.name, name) for name in names}
        if names != frozenset(suite.variants()):
            differ.append(suite)
    if not differ or host["device"] != "cuda":
        return Proof(frozenset(unreached))
    # Kernels that choose by the name of the GPU are traced for this one, which the tracing process does not see.
    os.environ["LOCKSTEP_KERNEL_GPU"] = host["gpu"]
    try:
        compared = compare(base, head, differ, Target.of_host(host), say=say, limit_s=limit_s)
    except TooSlow as slow:
        return Proof(frozenset(unreached), note=f"{slow}; so their cases are measured")
    return Proof(frozenset(unreached), compared)


def _unreached(base: Tree, head: Tree, suite: Suite) -> frozenset[str]:
    """Today's variants of a suite that reach the same code in both trees."""
    found = set()
    if suite.adapters:
        before, after = (own_variants_files(tree.root, tree.packages, suite) for tree in (base, head))
        found |= set(suite.adapters) if same_code(before, after) else set()
    if not suite.module:
        return frozenset(found)
    before, after = (closure(tree.root, tree.packages, suite.module) for tree in (base, head))
    listed = [name for name in suite.variants() if name not in suite.adapters]
    if same_code(before, after):
        return frozenset({*found, *listed})
    prefix, path = (f"{suite.op}." if suite.op else ""), suite.module.replace(".", "/")
    try:
        base_sources, head_sources = Sources(before, path), Sources(after, path)
    except Unreadable:
        return frozenset(found)
    for name in listed:
        reached = base_sources.reach(prefix + name)
        if reached is not None and reached == head_sources.reach(prefix + name):
            found.add(name)
    return frozenset(found)


def _case(key: SeriesKey) -> CaseKey:
    return CaseKey(key.suite, key.variant, key.case)


def _severity(change: CodeChange) -> float:
    if change.kind != "kernel":
        return 2.0 if change.kind == "host" else 1.0
    before, after = (kernel.machine if kernel else None for kernel in (change.before, change.after))
    if before is not None and after is not None and after.spill_bytes > before.spill_bytes:
        return 4.0
    return 3.0


#: Runs a case on base and on head; the second argument asks for torch's operators as well.
Observe = Callable[[SeriesKey, bool], tuple[Observation, Observation]]


def confirm(
    proof: Proof,
    proved: Sequence[SeriesKey],
    callable_here: Sequence[SeriesKey],
    observe: Observe,
    chance: random.Random,
    until: float,
) -> tuple[Proof, str]:
    """Call a sample of the proved cases on both sides and compare what they launch.

    Args:
        proof: what to confirm.
        proved: its cases, at least one.
        callable_here: those of them that one process holds on both sides.
        observe: runs a case.
        chance: picks the sample.
        until: on ``time.monotonic()``'s clock; no further case is called after it.

    Returns:
        The proof, or one that proves nothing if a case contradicts it, a case cannot be called, or no case was
        called; and a note for the report.
    """
    checked = 0
    for key in sample(callable_here, lambda key: proof.traced(key) is not None, chance):
        if time.monotonic() >= until:
            break
        traced = proof.traced(key)
        base, head = observe(key, traced is not None)
        case = f"{key.suite} {key.variant} {key.case}"
        if found := contradiction(base, head, traced or (None, None)):
            return _void(proof, f"a proof was wrong: {case}: {found}", found)
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
