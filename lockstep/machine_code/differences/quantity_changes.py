"""Find which exact quantities became worse or better between the cases of two trees, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.machine_code.exact_quantities import exact_quantities
from lockstep.machine_code.model import CaseCode, CaseKey
from lockstep.record.quantity import EXACT, QUANTITIES


@dataclass(frozen=True)
class QuantityChange:
    """One quantity that changed equally in some cases of a variant.

    Attributes:
        quantity: name of the quantity, see ``lockstep.record.quantity``.
        before, after: the values in base and in head.
        cases: cases with this change, all of one suite and variant.
    """

    quantity: str
    before: int
    after: int
    cases: tuple[CaseKey, ...]

    @property
    def worse(self) -> bool:
        """Return whether the quantity became worse."""
        return (self.after > self.before) != (QUANTITIES[self.quantity].better == "higher")

    def __str__(self) -> str:
        unit = QUANTITIES[self.quantity].unit
        name = self.quantity if self.quantity == unit else f"{self.quantity} ({unit})"
        return f"{'worse' if self.worse else 'better'}: {name} {self.before:,} → {self.after:,}"


def quantity_changes(base: Mapping[CaseKey, CaseCode], head: Mapping[CaseKey, CaseCode]) -> tuple[QuantityChange, ...]:
    """Return the exact quantities (launches, registers …) that are known in both trees and differ; worse ones first.

    Quantities of machine code are known only if every kernel of a case is compiled, see
    ``lockstep.machine_code.differences.compare``.
    """
    cases_of: dict[tuple[str, str, str, int, int], list[CaseKey]] = {}
    for key in base.keys() & head.keys():
        before, after = exact_quantities(base[key]), exact_quantities(head[key])
        for name in EXACT:
            if name in before and name in after and before[name] != after[name]:
                group = (key.suite, key.variant, name, before[name], after[name])
                cases_of.setdefault(group, []).append(key)
    changes = [QuantityChange(name, old, new, tuple(sorted(keys))) for (*_, name, old, new), keys in cases_of.items()]
    return tuple(sorted(changes, key=lambda change: (not change.worse, EXACT.index(change.quantity), change.cases)))
