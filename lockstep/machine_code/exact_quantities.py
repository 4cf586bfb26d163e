"""Compute the exact quantities of a case, which follow from a trace and a compiler, and find which of them changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lockstep.machine_code.model import CaseCode, CaseKey, KernelCode, MachineCode
from lockstep.record.configurations import is_named
from lockstep.record.quantity import EXACT, QUANTITIES


def exact_quantities(code: CaseCode) -> dict[str, int]:
    """Return the exact quantities of a call (``lockstep.record.quantity.EXACT``) by name, such as launches, registers.

    There are none if the trace may lack steps, or if the variant refuses the case. Quantities of machine code require
    that all kernels of the call are compiled, and that all configurations of a tuned kernel have the same.
    """
    return {name: low for name, (low, high) in quantity_ranges(code).items() if low == high}


def quantity_ranges(code: CaseCode, chosen: Mapping[str, str] | None = None) -> dict[str, tuple[int, int]]:
    """Return the lowest and highest value of each exact quantity over the configurations of tuned kernels.

    Configurations that do not compile, or of which no block fits on a multiprocessor, cannot be chosen. ``chosen``: the
    configuration that a tuner chose on a GPU, by kernel, as records name it (``Record.chosen``).
    """
    call = code.call
    if call is None:
        return {}
    groups: list[list[KernelCode]] = []
    for kernel in code.kernels[call.first : call.last]:
        group = groups[-1] if groups else []
        same = group and kernel.configuration and kernel.name == group[0].name
        if same and kernel.configuration not in {each.configuration for each in group}:
            group.append(kernel)
        else:
            groups.append([kernel])
    counts = {
        "launches": len(groups) + call.operators,
        "allocations": call.allocations,
        "memory": call.peak,
        "kept": call.kept,
    }
    quantities = {name: (count, count) for name, count in counts.items()}
    machines = [_possible(group, chosen or {}) for group in dict.fromkeys(map(tuple, groups))]
    if not machines or not all(machines):
        return quantities
    for name in machines[0][0].figures:
        total = sum if name == "instructions" else max
        lowest, highest = (
            total(bound(each.figures[name] for each in group) for group in machines) for bound in (min, max)
        )
        quantities[name] = lowest, highest
    return quantities


def _possible(group: Sequence[KernelCode], chosen: Mapping[str, str]) -> list[MachineCode]:
    """Return the machine code of the configurations of a kernel that a tuner can choose; [] if it is not known."""
    kernels = group
    if len(group) > 1:
        kernels = [one for one in group if is_named(one.configuration, chosen.get(group[0].name, ""))] or group
        kernels = [one for one in kernels if not one.failure and (one.machine is None or one.machine.blocks)]
    machines = [one.machine for one in kernels if one.machine is not None]
    return machines if len(machines) == len(kernels) else []


def why_unknown(code: CaseCode) -> str:
    """Return why quantities of a case are not known; "" if all of them are."""
    if code.call is None:
        refused = f"refuses: {code.refusal}" if code.refusal else "the trace may lack steps"
        return f"not traced: {code.unknown}" if code.unknown else refused
    broken = [f"{kernel.name} does not compile: {kernel.failure}" for kernel in code.kernels if kernel.failure]
    return broken[0] if broken and "registers" not in quantity_ranges(code) else ""


@dataclass(frozen=True)
class QuantityChange:
    """One quantity that changed equally in ``cases``, all of one suite and variant."""

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
