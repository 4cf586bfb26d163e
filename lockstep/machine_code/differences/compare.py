"""Compare the code of two trees with as little tracing and compiling as possible.

A family whose sources differ only in comments has the same code in both trees. Other families are traced, and only
those of their kernels are compiled whose compiler input differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

from lockstep.machine_code.cache import Cache
from lockstep.machine_code.compiled_tree import Reader, Say
from lockstep.machine_code.compiling.compiler_facts import CompilerFacts
from lockstep.machine_code.differences.difference_sentences import CodeChange, differences, differing
from lockstep.machine_code.exact_quantities import QuantityChange, exact_quantities, quantity_changes
from lockstep.machine_code.model import CaseCode, CaseKey
from lockstep.machine_code.targets import Target
from lockstep.suite.commit_sources import Tree
from lockstep.suite.definition import Suite
from lockstep.suite.family_files import same_files


@dataclass(frozen=True)
class Comparison:
    """The result of ``compare``: the code of two trees for one target, and how it differs.

    Attributes:
        base, head: code of the cases that were traced; kernels that are the same in both trees are not compiled. Both
            have the cases that neither tree has.
        compilers: the compilers of both trees, if their toolchains differ.
        same_sources: suites whose family's sources differ at most in comments; their cases are not traced.
    """

    target: Target
    base: Mapping[CaseKey, CaseCode]
    head: Mapping[CaseKey, CaseCode]
    same_sources: frozenset[str] = frozenset()
    compilers: tuple[CompilerFacts, CompilerFacts] | None = None

    @cached_property
    def changes(self) -> tuple[CodeChange, ...]:
        """Return each difference between the trees' code, and each unknown case; empty if all cases are the same."""
        return differences(self.base, self.head)

    @cached_property
    def quantities(self) -> tuple[QuantityChange, ...]:
        """Return the exact quantities of calls (launches, memory, registers …) that became worse or better."""
        return quantity_changes(self.base, self.head)

    @cached_property
    def lost(self) -> tuple[CaseKey, ...]:
        """Return the cases whose exact quantities are known in base, but not in head, where the trace is untrusted."""
        untrusted = {key for key, code in self.head.items() if code.unknown and not exact_quantities(code)}
        return tuple(sorted(key for key in untrusted & self.base.keys() if exact_quantities(self.base[key])))

    @cached_property
    def counts(self) -> Counter[str]:
        """Return the number of cases by status; suites with the same sources are left out."""
        return Counter(self.status(key) for key in dict.fromkeys([*self.base, *self.head]))

    def status(self, key: CaseKey) -> str:
        """Return "same" (no difference was found), "changed", "unknown" (also if neither tree has the case), "new" …"""
        if key.suite in self.same_sources:
            return "same"
        base, head = self.base.get(key), self.head.get(key)
        if base is None or head is None:
            return "new" if head else "removed"
        if base.unknown or head.unknown:
            return "unknown"
        return "same" if base.same_as(head) else "changed"


def compare(
    base: Tree,
    head: Tree,
    suites: Iterable[Suite],
    target: Target,
    *,
    cache: Cache | None = None,
    say: Say = lambda line: None,
) -> Comparison:
    """Compare the code that each case runs in two trees: trace both, and compile each case in which a kernel differs.

    Other arguments and errors are those of ``codes_of``.
    """
    chosen = list(suites)
    same_toolchain = base.toolchain == head.toolchain
    same = {suite.name for suite in chosen if same_toolchain and same_files(base.root, head.root, base.packages, suite)}
    to_compare = [suite for suite in chosen if suite.name not in same]
    if not to_compare:
        return Comparison(target, {}, {}, frozenset(same))
    compilers = None
    with (
        Reader(base, to_compare, target, cache, say) as base_reader,
        Reader(head, to_compare, target, cache, say) as head_reader,
        ThreadPoolExecutor(2) as pool,
    ):
        readers = base_reader, head_reader
        try:
            if not same_toolchain:
                base_compiler, head_compiler = pool.map(lambda reader: reader.described(), readers)
                compilers = base_compiler, head_compiler
            before, after = pool.map(lambda reader: reader.traced(), readers)
            to_compile = differing(before, after)
            before, after = pool.map(lambda reader, *work: reader.built(*work), readers, (before, after), to_compile)
        except BaseException:
            # Leaving the pool waits for its threads, and they wait for processes that may compile for another minute.
            for reader in readers:
                reader.stop()
            raise
    present = [{key: code for key, code in side.items() if not code.absent} for side in (before, after)]
    nowhere = {
        key: replace(code, unknown=f"in neither version: {code.unknown}")
        for key, code in {**before, **after}.items()
        if not any(key in side for side in present)
    }
    before, after = (side | nowhere for side in present)
    return Comparison(target, before, after, frozenset(same), compilers)
