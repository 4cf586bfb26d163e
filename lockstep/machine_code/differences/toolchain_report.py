"""Format the comparison of two compilers on the same kernels, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from lockstep.machine_code.compiling.compiler_facts import compiler_differences
from lockstep.machine_code.differences.compare import Comparison
from lockstep.machine_code.differences.kernel_changes_by_compiler import FIGURES, KernelChange, counted
from lockstep.machine_code.differences.report import fenced, sections, status_line, used_by

#: Heading of each verdict on a kernel; kernels that are the same are only counted.
_HEADINGS = {
    "fails": "does not compile any more",
    "worse": "worse",
    "mixed": "worse in one figure, better in another",
    "better": "better",
    "other code": "other code, the same figures",
}


def toolchain_lines(comparison: Comparison, base: str, head: str, ref: str) -> Iterator[str]:
    """Yield the report on two compilers: how they differ, kernels by verdict, changed kernels, and other differences.

    Args:
        comparison: comparison of one tree under two toolchains.
        base, head: names of the toolchains.
        ref: the commit, or ".".
    """
    yield f"{comparison.target.name}: {base} → {head}, both at {ref}"
    yield from (f"  {line}" for line in compiler_lines(comparison))
    changes = comparison.kernels
    if not changes:
        yield "  no kernel was compared"
    else:
        yield f"  {kernel_counts(changes)}"
    for verdict, group in groupby(changes, key=lambda change: change.verdict):
        if verdict in _HEADINGS:
            yield f"  {_HEADINGS[verdict]}"
            yield from (f"    {_line(change)}" for change in group)
    yield from sections(comparison, ("host", "unknown", "new", "removed"), leave_out=FIGURES)
    yield status_line(comparison)


def compiler_lines(comparison: Comparison) -> Iterator[str]:
    """Yield a sentence for each version and default option that differs between the compilers."""
    if comparison.compilers:
        differences = list(compiler_differences(*comparison.compilers))
        yield from differences or ["the compilers have the same versions and the same default options"]
    if comparison.fields:
        yield f"launch arguments have fields that one side lacks, at their defaults: {', '.join(comparison.fields)}"


def kernel_counts(changes: Sequence[KernelChange]) -> str:
    """Return counts as "58 kernels, 58 changed: 20 worse, 38 better; worse in registers 12 …; better in …"."""
    counts = counted(changes)
    changed = len(changes) - counts.pop("same", 0)
    parts = [", ".join(f"{count} {verdict}" for verdict, count in counts.items())]
    for direction in ("worse", "better"):
        sides = {name: sum(name in getattr(change, direction) for change in changes) for name in FIGURES}
        figures = ", ".join(f"{name} {count}" for name, count in sides.items() if count)
        parts += [f"{direction} in {figures}"] if figures else []
    details = f": {'; '.join(parts)}" if changed else ""
    return f"{len(changes)} kernel{'' if len(changes) == 1 else 's'}, {changed} changed{details}"


def toolchain_markdown(comparisons: Sequence[Comparison], base: str, head: str, ref: str) -> str:
    """Return Markdown: a heading with each target's number of changed kernels, then ``toolchain_lines`` as code."""
    counts = []
    for comparison in comparisons:
        changed = sum(change.verdict != "same" for change in comparison.kernels)
        counts.append(f"{changed} of {len(comparison.kernels)} on {comparison.target.name}")
    lines = [line for comparison in comparisons for line in toolchain_lines(comparison, base, head, ref)]
    return f"### {base} → {head} changes kernels: {', '.join(counts)}\n\n{fenced(chr(10).join(lines))}\n"


def _line(change: KernelChange) -> str:
    return f"{change.after.name} ({change.after.source}): {change.sentence}; {used_by(change.cases)}"
