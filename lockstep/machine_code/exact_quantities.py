"""Compute the exact quantities of a case, which follow from a trace and a compiler, and find which of them changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.machine_code.model import CaseCode, CaseKey
from lockstep.record.quantity import EXACT, QUANTITIES


def exact_quantities(code: CaseCode) -> dict[str, int]:
    """Return the exact quantities of a call (``lockstep.record.quantity.EXACT``) by name, such as launches, registers.

    There are none if the trace may lack steps, if the variant refuses the case, and for an autotuned call, because only
    a GPU shows which configuration runs. Quantities of machine code require that all kernels of the call are compiled.
    """
    call = code.call
    if call is None or any(step.startswith("tunes ") for step in code.host):
        return {}
    kernels = code.kernels[call.first : call.last]
    quantities = {
        "launches": len(kernels) + call.operators,
        "allocations": call.allocations,
        "memory": call.peak,
        "kept": call.kept,
    }
    machines = [kernel.machine for kernel in dict.fromkeys(kernels) if kernel.machine is not None]
    if not kernels or len(machines) < len(set(kernels)):
        return quantities
    figures = {name: [machine.figures[name] for machine in machines] for name in machines[0].figures}
    return quantities | {name: sum(each) if name == "instructions" else max(each) for name, each in figures.items()}


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
    """Return the exact quantities (launches, registers …) that are known in both trees and differ; worse ones first."""
    cases_of: dict[tuple[str, str, str, int, int], list[CaseKey]] = {}
    for key in base.keys() & head.keys():
        before, after = exact_quantities(base[key]), exact_quantities(head[key])
        for name in EXACT:
            if name in before and name in after and before[name] != after[name]:
                group = (key.suite, key.variant, name, before[name], after[name])
                cases_of.setdefault(group, []).append(key)
    changes = [QuantityChange(name, old, new, tuple(sorted(keys))) for (*_, name, old, new), keys in cases_of.items()]
    return tuple(sorted(changes, key=lambda change: (not change.worse, EXACT.index(change.quantity), change.cases)))
