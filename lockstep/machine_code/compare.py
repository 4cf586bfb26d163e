"""The code of two trees side by side, with as little tracing and compiling as it takes.

A family whose sources are the same in both trees, but for comments, is the same. The others are traced, and of their
kernels only those are compiled that the compiler is given differently.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

from lockstep.machine_code.cache import Cache
from lockstep.machine_code.compiled_tree import Reader, Say, family_sources, processors_here
from lockstep.machine_code.differences import CodeChange, differences, differing
from lockstep.machine_code.exact import exact_quantities
from lockstep.machine_code.model import CaseCode, CaseKey
from lockstep.machine_code.quantity_changes import QuantityChange, quantity_changes
from lockstep.machine_code.session import TooSlow, TracingFailed, Tree
from lockstep.machine_code.sources import same_code
from lockstep.machine_code.targets import Target
from lockstep.suite.model import Suite


@dataclass(frozen=True)
class Comparison:
    """What two trees do, for one target.

    Attributes:
        target: what kernels are compiled for.
        base, head: code of the cases that were traced; kernels that are the same in both are not compiled, unless
            ``compare`` was asked for whole cases.
        same_sources: suites whose family has the same sources in both trees, but for comments; none of their cases is
            traced.
        lacking: cases that neither tree has because it lacks what the variant imports, and what that is.
    """

    target: Target
    base: Mapping[CaseKey, CaseCode]
    head: Mapping[CaseKey, CaseCode]
    same_sources: frozenset[str] = frozenset()
    lacking: Mapping[CaseKey, str] = field(default_factory=dict)

    @cached_property
    def changes(self) -> tuple[CodeChange, ...]:
        """Everything that differs or is unknown; empty if everything is the same."""
        return differences(self.base, self.head, self.lacking)

    @cached_property
    def quantities(self) -> tuple[QuantityChange, ...]:
        """Exact quantities that became worse or better."""
        return quantity_changes(self.base, self.head)

    @cached_property
    def lost(self) -> tuple[CaseKey, ...]:
        """Cases whose quantities are known in the base, and cannot be known in the head."""
        both = self.base.keys() & self.head.keys()
        return tuple(
            sorted(
                key
                for key in both
                if self.head[key].unknown and exact_quantities(self.base[key]) and not exact_quantities(self.head[key])
            )
        )

    @cached_property
    def counts(self) -> Counter[str]:
        """How many cases have each status; suites with the same sources are left out."""
        return Counter(self.status(key) for key in dict.fromkeys([*self.base, *self.head, *self.lacking]))

    def status(self, key: CaseKey) -> str:
        """ "same" (proved), "changed", "unknown", "new", "removed"; "unknown" also for a case neither tree has."""
        if key.suite in self.same_sources:
            return "same"
        base, head = self.base.get(key), self.head.get(key)
        if base is None or head is None:
            return "new" if head else "removed" if base else "unknown"
        if base.unknown or head.unknown:
            return "unknown"
        return "same" if base.same_as(head) else "changed"

    def reason(self, key: CaseKey) -> str:
        """Why: a sentence for each change that touches the case; for a same one what proves it."""
        if key.suite in self.same_sources:
            return "its sources are the same but for comments"
        touching = [str(change) for change in self.changes if key in change.cases]
        if touching:
            return "; ".join(touching)
        return "the same machine code and the same calls" if self.status(key) == "same" else "in neither tree"


def compare(
    base: Tree,
    head: Tree,
    suites: Iterable[Suite],
    target: Target,
    *,
    cache: Cache | None = None,
    say: Say = lambda line: None,
    limit_s: float | None = None,
    whole: bool = False,
) -> Comparison:
    """Trace both trees and compile what they have the compiler do differently.

    Args:
        base: sources before.
        head: sources after.
        suites: today's; the same benchmark definition for both.
        target: what to compile for.
        cache: what was found out before; by default the user's.
        say: told what takes long.
        limit_s: seconds for tracing and compiling; ``None`` for as many as it takes.
        whole: compile all kernels of a case in which one differs, for ``Comparison.quantities``.

    Raises:
        TooSlow: ``limit_s`` was not enough.
        TracingFailed: a tree's process does not start.
    """
    chosen = list(suites)
    same = {suite.name for suite in chosen if same_code(family_sources(base, suite), family_sources(head, suite))}
    rest = [suite for suite in chosen if suite.name not in same]
    if not rest:
        return Comparison(target, {}, {}, frozenset(same))
    kept = cache or Cache()
    each = max(1, processors_here() // 2)
    with (
        Reader(base, rest, each, kept, say) as mine,
        Reader(head, rest, each, kept, say) as its,
        ThreadPoolExecutor(2) as both,
    ):
        ended = threading.Event()
        late = threading.Timer(limit_s or 0.0, _end, (ended, mine, its))
        late.daemon = True
        try:
            if limit_s is not None:
                late.start()
            before, after = both.map(lambda reader: reader.traced(target), (mine, its))
            wanted = differing(before, after, whole=whole)
            before, after = both.map(
                lambda reader, codes, identities: reader.built(target, codes, identities),
                (mine, its), (before, after), wanted,
            )  # fmt: skip
        except TracingFailed as failed:
            mine.stop()
            its.stop()
            if ended.is_set():
                names = ", ".join(suite.name for suite in rest)
                raise TooSlow(f"comparing the code of {names} took more than {limit_s:.0f} s") from failed
            raise
        except BaseException:
            # Leaving the pool waits for its threads, and they for processes that may compile for a minute more.
            mine.stop()
            its.stop()
            raise
        finally:
            late.cancel()
    lacking = {
        key: code.unknown
        for key, code in {**before, **after}.items()
        if all(key not in side or side[key].absent for side in (before, after))
    }
    before, after = ({key: code for key, code in side.items() if not code.absent} for side in (before, after))
    return Comparison(target, before, after, frozenset(same), lacking)


def _end(ended: threading.Event, *readers: Reader) -> None:
    ended.set()
    for reader in readers:
        reader.stop()
