"""Describe in sentences what differs between the code of two trees."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import zip_longest

from lockstep.machine_code.model import CaseCode, CaseKey, KernelCode
from lockstep.record.configurations import without_shared
from lockstep.record.counted import counted

Pair = tuple[KernelCode | None, KernelCode | None]

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


def differences(base: Mapping[CaseKey, CaseCode], head: Mapping[CaseKey, CaseCode]) -> tuple[CodeChange, ...]:
    """Return the changes from ``base`` to ``head``; empty if no difference was found.

    Kernels are matched by name, in the order of their launches. Kernels that differ must be compiled in both trees, as
    ``lockstep.machine_code.differences.compare`` does: without ``machine``, a sentence cannot give figures.

    Changes of kernels come first; within a kind, those that affect most cases.
    """
    found = [
        (change, key) for key in dict.fromkeys([*base, *head]) for change in _of_case(base.get(key), head.get(key))
    ]
    merged: dict[tuple[str, str, str], tuple[CodeChange, dict[CaseKey, None]]] = {}
    for change, key in found:
        # Specialisations of one kernel whose figures change equally are merged into one change.
        merged.setdefault((change.kernel, change.kind, change.sentence), (change, {}))[1][key] = None
    changes = [replace(change, cases=tuple(keys)) for change, keys in merged.values()]
    return tuple(sorted(changes, key=lambda change: ([*KINDS].index(change.kind), -len(change.cases))))


def differing(base: Mapping[CaseKey, CaseCode], head: Mapping[CaseKey, CaseCode]) -> tuple[set[str], set[str]]:
    """Return identities of the kernels of base and of head that must be compiled.

    These are all kernels of each case in which a kernel has another identity, because quantities of a call need all;
    but of a tuned kernel only the configurations in which it has another identity.
    """
    found: tuple[set[str], set[str]] = (set(), set())
    for key in base.keys() & head.keys():
        sides = base[key].kernels, head[key].kernels
        if [kernel.identity for kernel in sides[0]] == [kernel.identity for kernel in sides[1]]:
            continue
        for pair in matched(*sides):
            same = None in pair or len({kernel.identity for kernel in pair if kernel}) == 1
            for identities, kernel in zip(found, pair, strict=True):
                if kernel and not (same and kernel.configuration):
                    identities.add(kernel.identity)
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
    pairs = list(matched(base.kernels, head.kernels))
    yield from _of_configurations(pairs)
    for before, after in pairs:
        if before is None or after is None:
            (present,) = (kernel for kernel in (before, after) if kernel)
            if present.configuration:
                continue
            sentence = "launched no more" if after is None else "launched now"
        elif before.same_as(after):
            continue
        else:
            sentence, present = kernel_sentence(before, after), after
        yield CodeChange(present.name, "kernel", sentence, present.source, before=before, after=after)
    # What only one side launches because it has another configuration is told as that configuration.
    lone = {(kernel.name, kernel.configuration) for pair in pairs if None in pair for kernel in pair if kernel}
    hosts = [_steps(side, {launched for launched in lone if launched[1]}) for side in (base, head)]
    if [step for step, _ in hosts[0]] != [step for step, _ in hosts[1]] and not base.unknown and not head.unknown:
        yield CodeChange("", "host", _host_sentence(*hosts))


def _of_configurations(pairs: Sequence[Pair]) -> Iterator[CodeChange]:
    """Yield a change for each tuned kernel that has other configurations: "configurations removed: num_warps 8"."""
    tuned = [pair for pair in pairs if any(kernel and kernel.configuration for kernel in pair)]
    for name in dict.fromkeys(kernel.name for pair in tuned for kernel in pair if kernel):
        own = [pair for pair in tuned if name in {kernel.name for kernel in pair if kernel}]
        every = [one.configuration for pair in own for one in pair if one]
        gone = without_shared([before.configuration for before, after in own if before and not after], every)
        new = without_shared([after.configuration for before, after in own if after and not before], every)
        source = next(kernel.source for pair in own[::-1] for kernel in pair[::-1] if kernel)
        parts = [
            f"{verb} {'; '.join(some[:_NAMED])}{f' and {len(some) - _NAMED} more' if len(some) > _NAMED else ''}"
            for verb, some in (("configuration removed:", gone), ("configuration added:", new))
            if some
        ]
        if len(own) in (len(gone), len(new)):
            parts = [f"launched {'now' if new else 'no more'} in {len(own)} configurations"]
        if parts:
            yield CodeChange(name, "kernel", "; ".join(parts), source)


def _steps(code: CaseCode, without: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the steps of the host side with the names of launched kernels, without launches of these kernels."""
    names = iter(code.kernels)
    launched = [(step, next(names, None) if _LAUNCH.fullmatch(step) else None) for step in code.host]
    return [
        (step, kernel.name if kernel else "launch")
        for step, kernel in launched
        if kernel is None or (kernel.name, kernel.configuration) not in without
    ]


def matched(base: Sequence[KernelCode], head: Sequence[KernelCode]) -> Iterable[Pair]:
    """Return each pair of kernels of the same name and configuration, in launch order; None where one tree has none."""
    by_name: dict[tuple[str, str], tuple[list[KernelCode], list[KernelCode]]] = {}
    for side, kernels in enumerate((base, head)):
        for kernel in kernels:
            by_name.setdefault((kernel.name, kernel.configuration), ([], []))[side].append(kernel)
    return dict.fromkeys(pair for sides in by_name.values() for pair in zip_longest(*sides))


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


def _host_sentence(base: Sequence[tuple[str, str]], head: Sequence[tuple[str, str]]) -> str:
    """Return the first step of the host side that was added, removed or changed, and the number of further ones."""
    kinds = [[step.partition("(")[0].partition(" [")[0] for step, _ in side] for side in (base, head)]
    changes: list[str] = []
    # Aligned by kind of step, because an added step renumbers the tensors of later steps.
    for _, first, last, begin, end in SequenceMatcher(None, kinds[0], kinds[1], autojunk=False).get_opcodes():
        if kinds[0][first:last] != kinds[1][begin:end]:
            changes += [f"does {step}" for step, _ in head[begin:end]]
            changes += [f"no longer does {step}" for step, _ in base[first:last]]
    if not changes:
        pairs = zip(base, head, strict=True)
        changes = [_changed_step(before, after, name) for (before, _), (after, name) in pairs if before != after]
    return changes[0] + (f" (and {len(changes) - 1} more)" if len(changes) > 1 else "")


def _changed_step(before: str, after: str, name: str) -> str:
    """Return how a step of the host side changed, by grid and arguments if it launches the kernel ``name``."""
    old, new = _LAUNCH.fullmatch(before), _LAUNCH.fullmatch(after)
    if not old or not new:
        return f"{before} → {after}"
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
    return changed[:_NAMED] + ([counted(further, "more argument")] if further > 0 else [])


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


_LAUNCH = re.compile(r"(?:with .*?: )?launch \[([\d×]*)\] \((.*)\)")

#: Maximum number of changed arguments, or of configurations, that a sentence lists.
_NAMED = 2
