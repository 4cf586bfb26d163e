"""Describe in sentences what differs between the code of two trees."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import zip_longest

from lockstep.machine_code.model import CaseCode, CaseKey, KernelCode

#: Headings of the kinds of change, in the order in which reports list them.
KINDS = {
    "kernel": "machine code",
    "host": "host side",
    "unknown": "not traced",
    "new": "new",
    "removed": "removed",
}

#: Verdicts on a kernel that both trees launch, in the order in which reports count them.
VERDICTS = ("does not compile", "worse", "mixed", "better", "other code")


@dataclass(frozen=True)
class CodeChange:
    """One change of code between two trees, and every case that the change affects.

    Attributes:
        kernel: name of the kernel; "" for a change of the host side or an unknown case.
        kind: "kernel" (the machine code differs), "host" (grid, arguments or calls of torch differ), "unknown" (a
            tree cannot be traced, or neither has the case), "new" or "removed" (only one tree has the case).
        sentence: what changed, without the kernel's name: "registers 168 → 255, spills 0 → 512 B".
        source: file and line of the kernel in head, or in base if head lacks it; "" for other kinds.
        before, after: the kernel in base and in head; None in a tree that does not launch the kernel.
    """

    kernel: str
    kind: str
    sentence: str
    source: str = ""
    cases: tuple[CaseKey, ...] = ()
    before: KernelCode | None = None
    after: KernelCode | None = None

    def __str__(self) -> str:
        return f"{self.kernel or self.kind}: {self.sentence}"

    @property
    def verdict(self) -> str:
        """Return one of ``VERDICTS`` for a kernel that both trees launch, else "".

        Worse has more spills, registers, shared memory or instructions; "mixed" has more of one and less of another.
        """
        if self.before is None or self.after is None:
            return ""
        if self.before.failure or self.after.failure:
            return "does not compile" if self.after.failure else "better"
        old, new = self.before.machine, self.after.machine
        pairs = [(old.figures[name], new.figures[name]) for name in old.figures] if old and new else []
        worse, better = any(after > before for before, after in pairs), any(after < before for before, after in pairs)
        return "mixed" if worse and better else "worse" if worse else "better" if better else "other code"


def differences(
    base: Mapping[CaseKey, CaseCode], head: Mapping[CaseKey, CaseCode], lacking: Mapping[CaseKey, str] | None = None
) -> tuple[CodeChange, ...]:
    """Return the changes from ``base`` to ``head``; empty if no difference was found.

    Kernels are matched by name, in the order of their launches. Kernels that differ must be compiled in both trees, as
    ``lockstep.machine_code.differences.compare`` does: without ``machine``, a sentence cannot give figures.

    Changes of kernels come first; within a kind, those that affect most cases. ``lacking`` has cases that neither tree
    has, and why.
    """
    found = [
        (change, key) for key in dict.fromkeys([*base, *head]) for change in _of_case(base.get(key), head.get(key))
    ]
    found += [(CodeChange("", "unknown", f"in neither version: {why}"), key) for key, why in (lacking or {}).items()]
    merged: dict[tuple[str, str, str], tuple[CodeChange, dict[CaseKey, None]]] = {}
    for change, key in found:
        # Specialisations of one kernel whose figures change equally are merged into one change.
        merged.setdefault((change.kernel, change.kind, change.sentence), (change, {}))[1][key] = None
    changes = [replace(change, cases=tuple(keys)) for change, keys in merged.values()]
    return tuple(sorted(changes, key=lambda change: ([*KINDS].index(change.kind), -len(change.cases))))


def differing(base: Mapping[CaseKey, CaseCode], head: Mapping[CaseKey, CaseCode]) -> tuple[set[str], set[str]]:
    """Return identities of the kernels of base and of head that must be compiled.

    These are all kernels of each case in which a kernel has another identity, because quantities of a call need all.
    """
    found: tuple[set[str], set[str]] = (set(), set())
    for key in base.keys() & head.keys():
        sides = base[key].kernels, head[key].kernels
        if [kernel.identity for kernel in sides[0]] != [kernel.identity for kernel in sides[1]]:
            for identities, kernels in zip(found, sides, strict=True):
                identities.update(kernel.identity for kernel in kernels)
    return found


def _of_case(base: CaseCode | None, head: CaseCode | None) -> Iterator[CodeChange]:
    """Yield the changes of one case, without the case, so that equal changes of several cases can be merged."""
    if base is None or head is None:
        yield CodeChange("", "removed" if head is None else "new", f"only in the {'head' if base is None else 'base'}")
        return
    if base.same_as(head):
        return
    if base.unknown or head.unknown:
        equal = base.unknown == head.unknown
        sides = [f"{side}: {code.unknown}" for side, code in (("base", base), ("head", head)) if code.unknown]
        yield CodeChange("", "unknown", base.unknown if equal else "; ".join(sides))
        if not base.kernels or not head.kernels:
            return  # the trace may have ended early, so a missing kernel may still be launched
    for before, after in matched(base.kernels, head.kernels):
        if before is None or after is None:
            (present,) = (kernel for kernel in (before, after) if kernel)
            sentence = "launched no more" if after is None else "launched now"
        elif before.same_as(after):
            continue
        else:
            sentence, present = kernel_sentence(before, after), after
        yield CodeChange(present.name, "kernel", sentence, present.source, before=before, after=after)
    if base.host != head.host and not base.unknown and not head.unknown:
        yield CodeChange("", "host", _host_sentence(base, head))


def matched(
    base: Sequence[KernelCode], head: Sequence[KernelCode]
) -> Iterator[tuple[KernelCode | None, KernelCode | None]]:
    """Yield each pair of kernels of the same name, in launch order. None stands for a kernel that one tree lacks."""
    pairs: dict[tuple[KernelCode | None, KernelCode | None], None] = {}
    for name in dict.fromkeys(kernel.name for kernel in (*base, *head)):
        base_kernels, head_kernels = ([kernel for kernel in side if kernel.name == name] for side in (base, head))
        pairs |= dict.fromkeys(zip_longest(base_kernels, head_kernels))
    return iter(pairs)


def kernel_sentence(before: KernelCode, after: KernelCode) -> str:
    """Return what differs between two kernels: "registers 168 → 255, spills 0 → 512 B"."""
    if after.failure or before.failure:
        return f"compiles again ({before.failure})" if not after.failure else f"does not compile: {after.failure}"
    old, new = before.machine, after.machine
    if old is None or new is None:
        return "other code, not compiled"
    sides = [
        {**machine.figures, "blocks an SM": machine.blocks, **kernel.options, **machine.mix}
        for kernel, machine in ((before, old), (after, new))
    ]
    units = {"spills": " B", "shared": " B", "blocks an SM": f" ({new.limit})"}
    figures = [
        f"{name} {sides[0].get(name, 0)} → {sides[1].get(name, 0)}{units.get(name, '')}"
        for name in sorted(sides[0] | sides[1], key=lambda name: name == "instructions")
        if sides[0].get(name, 0) != sides[1].get(name, 0) and name != "all"
    ]
    return ", ".join(figures) or "other instructions, the same figures"


def _host_sentence(base: CaseCode, head: CaseCode) -> str:
    """Return the first step of the host side that was added, removed or changed, and the number of further ones."""
    kinds = [[step.partition("(")[0].partition(" [")[0] for step in side.host] for side in (base, head)]
    changes: list[str] = []
    # Aligned by kind of step, because an added step renumbers the tensors of later steps.
    for _, first, last, begin, end in SequenceMatcher(None, kinds[0], kinds[1], autojunk=False).get_opcodes():
        if kinds[0][first:last] != kinds[1][begin:end]:
            changes += [f"does {step}" for step in head.host[begin:end]]
            changes += [f"no longer does {step}" for step in base.host[first:last]]
    if not changes:
        pairs = enumerate(zip(base.host, head.host, strict=True))
        changes = [_changed_step(head, index, *steps) for index, steps in pairs if steps[0] != steps[1]]
    return changes[0] + (f" (and {len(changes) - 1} more)" if len(changes) > 1 else "")


def _changed_step(head: CaseCode, index: int, before: str, after: str) -> str:
    """Return how a step of the host side changed, by grid and arguments if it is a launch."""
    old, new = _LAUNCH.fullmatch(before), _LAUNCH.fullmatch(after)
    if not old or not new:
        return f"{before} → {after}"
    launches = sum(step.startswith("launch ") for step in head.host[:index])
    name = head.kernels[launches].name if launches < len(head.kernels) else "launch"
    steps = [f"grid {old[1]} → {new[1]}"] if old[1] != new[1] else []
    return f"{name}: {', '.join([*steps, *_changed_arguments(old[2], new[2])])}"


def _changed_arguments(old: str, new: str) -> list[str]:
    """Return the first arguments of a launch that differ, and the number of further ones."""
    before, after = _arguments(old), _arguments(new)
    if len(before) != len(after):
        return [f"{len(before)} → {len(after)} arguments"]
    pairs = enumerate(zip(before, after, strict=True), 1)
    changed = [
        f"argument {place} {old_argument} → {new_argument}"
        for place, (old_argument, new_argument) in pairs
        if old_argument != new_argument
    ]
    further = len(changed) - _NAMED
    return changed[:_NAMED] + ([f"{further} more argument{'s' * (further > 1)}"] if further > 0 else [])


def _arguments(text: str) -> list[str]:
    """Split arguments at the commas between them, but not at commas within brackets."""
    parts, depth = [""], 0
    for mark in text:
        depth += (mark in "([{") - (mark in ")]}")
        if mark == "," and not depth:
            parts.append("")
        else:
            parts[-1] += mark
    return [part.strip() for part in parts]


_LAUNCH = re.compile(r"launch \[([\d×]*)\] \((.*)\)")

#: Maximum number of changed arguments that a sentence lists.
_NAMED = 2
