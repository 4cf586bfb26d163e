"""What is known before anything is measured: which cases a change cannot have touched, and what it did to others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.gate.trees import same_code
from lockstep.gate.verdict import SeriesKey


@dataclass(frozen=True)
class Proof:
    """Which cases are proved unchanged.

    Attributes:
        everything: the packages under test are the same, but for comments and layout.
        comparison: of the machine code, ``lockstep.machine_code``'s; ``None`` if it was not made.
    """

    everything: bool = False
    comparison: Any = None

    def same(self, key: SeriesKey) -> bool:
        """Whether machine code and launch are provably those of base."""
        return self.everything

    def reasons(self, key: SeriesKey) -> tuple[str, ...]:
        """A sentence for each difference of the code that a case runs."""
        return ()

    def severity(self, key: SeriesKey) -> float:
        """How much its code changed, for the order of judging."""
        return 0.0


def prove(base: Path, head: Path, packages: tuple[str, ...]) -> Proof:
    """Compare two trees."""
    return Proof(everything=same_code(base, head, packages))
