"""Compare the machine code of the same kernels from two compilers: which figures of each kernel are worse or better."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lockstep.machine_code.differences.difference_sentences import matched
from lockstep.machine_code.model import CaseCode, CaseKey, KernelCode, MachineCode

#: Figures of a kernel that should be small, in the order of their importance.
FIGURES = ("spills", "registers", "shared", "instructions")

#: Verdicts on a kernel, in the order in which reports list them.
VERDICTS = ("fails", "worse", "mixed", "better", "other code", "same")

Step = tuple[int, int]


@dataclass(frozen=True)
class KernelChange:
    """One kernel, compiled by two compilers.

    Attributes:
        before, after: the kernel from the base's and from the head's compiler.
        cases: the cases that launch the kernel.
    """

    before: KernelCode
    after: KernelCode
    cases: tuple[CaseKey, ...]

    @property
    def steps(self) -> dict[str, Step]:
        """Return, for each of ``FIGURES`` that differs, both values; empty if the kernel is not compiled by both."""
        if self.before.machine is None or self.after.machine is None:
            return {}
        old, new = _figures(self.before.machine), _figures(self.after.machine)
        return {name: (old[name], new[name]) for name in FIGURES if old[name] != new[name]}

    @property
    def worse(self) -> tuple[str, ...]:
        """Return the names of the figures that grew: fewer registers, spills, bytes and instructions are better."""
        return tuple(name for name, (old, new) in self.steps.items() if new > old)

    @property
    def better(self) -> tuple[str, ...]:
        """Return the names of the figures that shrank: fewer registers, spills, bytes and instructions are better."""
        return tuple(name for name, (old, new) in self.steps.items() if new < old)

    @property
    def verdict(self) -> str:
        """Return how the kernel changed, one of ``VERDICTS``; "mixed": worse in one figure and better in another."""
        if self.after.failure:
            return "fails"
        if self.before.same_as(self.after):
            return "same"
        if self.before.failure:
            return "better"
        if self.worse and self.better:
            return "mixed"
        return "worse" if self.worse else "better" if self.better else "other code"

    @property
    def sentence(self) -> str:
        """Return the figures that differ: "registers 170 → 106, instructions 626 → 468, blocks an SM 1 → 2"."""
        if self.after.failure or self.before.failure:
            return self.after.failure or f"compiles; before: {self.before.failure}"
        figures = [f"{name} {old:,} → {new:,}" for name, (old, new) in self.steps.items()]
        old_blocks, new_blocks = (side.machine.blocks if side.machine else 0 for side in (self.before, self.after))
        figures += [f"blocks an SM {old_blocks} → {new_blocks}"] if old_blocks != new_blocks else []
        return ", ".join(figures) or "the same figures"


def kernel_changes(base: Mapping[CaseKey, CaseCode], head: Mapping[CaseKey, CaseCode]) -> tuple[KernelChange, ...]:
    """Return the change of each kernel of cases with trusted traces in base and head, the most severe verdict first.

    Specialisations of a function are separate changes, unless each compiler makes the same code of them.
    """
    changes: dict[tuple[str, str, str, str], KernelChange] = {}
    for key in sorted(base.keys() & head.keys()):
        if base[key].unknown or head[key].unknown:
            continue
        for before, after in matched(base[key].kernels, head[key].kernels):
            if before is None or after is None:
                continue  # a difference of the host side, which the comparison reports
            merged = changes.setdefault(
                (before.name, before.source, _code(before), _code(after)), KernelChange(before, after, ())
            )
            changes[before.name, before.source, _code(before), _code(after)] = replace(
                merged, cases=(*merged.cases, key)
            )
    return tuple(sorted(changes.values(), key=_rank))


def counted(changes: Iterable[KernelChange]) -> dict[str, int]:
    """Return the number of kernels of each verdict, in the order of ``VERDICTS``; no zeros."""
    counts = Counter(change.verdict for change in changes)
    return {verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]}


def with_shared_fields(
    base: Mapping[CaseKey, CaseCode], head: Mapping[CaseKey, CaseCode]
) -> tuple[dict[CaseKey, CaseCode], dict[CaseKey, CaseCode], tuple[str, ...]]:
    """Return the code of both trees without fields of launch arguments that only one Triton has, and these fields.

    A newer ``TensorDescriptor`` has more fields. The steps of a trace spell them, so every launch with a descriptor
    would differ. A field that is left out keeps its default, because the code under test is the same.
    """
    names = [_fields(side.values()) for side in (base, head)]
    extra = tuple(sorted(names[0] ^ names[1]))
    if not extra or not all(names):
        return dict(base), dict(head), ()
    written = re.compile(rf", (?:{'|'.join(extra)})=(?:\[[^\[\]]*\]|\([^()]*\)|[^,()\[\]])*")
    before, after = (
        {key: replace(code, host=tuple(written.sub("", step) for step in code.host)) for key, code in side.items()}
        for side in (base, head)
    )
    return before, after, extra


def _fields(codes: Iterable[CaseCode]) -> set[str]:
    steps: Sequence[str] = list(dict.fromkeys(step for code in codes for step in code.host if "Descriptor(" in step))
    return {name for step in steps for name in re.findall(r", (\w+)=", step)}


def _figures(machine: MachineCode) -> dict[str, int]:
    values = machine.spill_bytes, machine.registers, machine.shared_bytes, machine.mix.get("all", 0)
    return dict(zip(FIGURES, values, strict=True))


def _code(kernel: KernelCode) -> str:
    return kernel.fingerprint or kernel.identity


def _rank(change: KernelChange) -> tuple[object, ...]:
    sizes = [-abs(new - old) for old, new in (change.steps.get(name, (0, 0)) for name in FIGURES)]
    return (VERDICTS.index(change.verdict), *sizes, change.after.name, change.cases)
