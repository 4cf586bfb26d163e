"""Format machine code and its differences: for a terminal, and as Markdown for the summary of a job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from rich.table import Table

from lockstep.machine_code.compiling.compiler_facts import compiler_differences
from lockstep.machine_code.differences.compare import Comparison
from lockstep.machine_code.differences.difference_sentences import KINDS, VERDICTS, CodeChange
from lockstep.machine_code.exact_quantities import QuantityChange, quantity_ranges, why_unknown
from lockstep.machine_code.model import CaseCode, CaseKey, KernelCode, Obstacle
from lockstep.record.console import plain_table
from lockstep.record.counted import counted

T = TypeVar("T")

#: What to do about a question without an answer, by words in the question.
ADVICE = {
    "address": "Do: choose by alignment (data_ptr() % 16) or by the shape, not by where a tensor lies",
    "is imported": "Do: ask in the function that needs the answer, so that only its cases depend on it",
    "cannot be imported": "Do: import the package on this machine (python -c 'import …') and install what it lacks",
    **dict.fromkeys(
        ("torch.cuda.", "device property", "Triton's driver"),
        "Do: take what the target's table has: name, capability, multiprocessors, shared memory, warp size",
    ),
    "torch.compile": "Do: nothing; `lockstep gate` on a GPU sees what torch.compile launches",
    "operator": "Do: nothing; `lockstep gate` on a GPU sees what the operator launches",
    "random": "Do: draw random numbers on the device, or pass them as arguments",
    "without a GPU": (
        "Do: take what decides a launch from shapes, not from values of tensors; a package that looks for its GPU may "
        "have a setting that names it"
    ),
    "": "Do: nothing; `lockstep gate` on a GPU compares these cases",
}

#: Maximum characters of a line of the host side, and maximum number of changes per kernel; the JSON has everything.
WIDTH = 200
SHOWN = 3


def code_table(codes: Mapping[CaseKey, CaseCode], title: str) -> Table:
    """Return a table with a row for each different kernel of a suite; cases that launch the same kernel share a row."""
    table = plain_table(("suite", "kernel"), title=title)
    table.add_column("used by")
    for name in ("warps", "stages", "registers", "spills", "shared", "blocks an SM"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("instructions")
    table.add_column("code", no_wrap=True)
    launches = [(key, kernel) for key, code in codes.items() for kernel in dict.fromkeys(code.kernels)]
    for group in _grouped(launches, lambda launch: (launch[0].suite, _named(launch[1]), *_cells(launch[1]))):
        (key, kernel), users = group[0], [key for key, _ in group]
        table.add_row(key.suite, _named(kernel), used_by(users, key.suite), *_cells(kernel))
    return table


def unknown_lines(codes: Mapping[CaseKey, CaseCode]) -> Iterator[str]:
    """Yield a line for each reason why quantities of a case are not known."""
    reasons = {key: reason for key, code in codes.items() if (reason := why_unknown(code))}
    yield from (f"{reasons[keys[0]]} ({used_by(keys)})" for keys in _grouped(reasons, lambda key: reasons[key]))


def host_lines(codes: Mapping[CaseKey, CaseCode]) -> Iterator[str]:
    """Yield lines with each step of the host side of each case, and the case's exact quantities."""
    for key, code in codes.items():
        yield f"{key.suite} {key.variant} {key.case}: host {code.host_fingerprint or 'not traced'}"
        yield from (f"  {step}" for step in code.host)
        if quantities := quantity_ranges(code):
            yield f"  a call: {', '.join(f'{name} {spell_range(value)}' for name, value in quantities.items())}"


def spell_range(value: tuple[int, int]) -> str:
    """Return a quantity, or its range over the configurations of tuned kernels: "128", "64 … 128"."""
    return str(value[0]) if value[0] == value[1] else f"{value[0]} … {value[1]}"


def obstacle_lines(codes: Mapping[CaseKey, CaseCode], name: str) -> Iterator[str]:
    """Yield what stops the traces of a tree, with the cases that each question stops, and what to do."""
    asked: list[tuple[Obstacle, CaseKey]] = []
    for key, code in codes.items():
        asked += [(each, key) for each in code.obstacles or ([Obstacle(code.unknown, "")] if code.unknown else [])]
    groups = sorted(_grouped(asked, lambda each: each[0]), key=len, reverse=True)
    stopped = len({key for _, key in asked})
    yield f"{name}: {len(codes) - stopped} of {len(codes)} cases are traced" + (
        f"; {len(groups)} question{'s' * (len(groups) > 1)} stop{'s' * (len(groups) == 1)} the others" if groups else ""
    )
    for group in groups:
        (question, line), keys = group[0][0], [key for _, key in group]
        yield f"  {line or 'the suite'}: {question}"
        yield f"    stops {len(keys)}: {used_by(keys)}"
        yield f"    {next(advice for word, advice in ADVICE.items() if word in question)}"


def diff_lines(comparison: Comparison, base: str, head: str) -> Iterator[str]:
    """Yield the report on two trees, or on one tree under two compilers.

    The number of cases by status comes first, then the differences of the compilers, those of the code by kind, and the
    changed kernels that only a GPU can run.
    """
    yield f"{comparison.target.name}: {base} → {head}"
    yield _status_line(comparison)
    yield from (f"  {line}" for line in compiler_lines(comparison))
    for kind, heading in KINDS.items():
        changes = [change for change in comparison.changes if change.kind == kind]
        if changes:
            yield f"  {heading}{_verdicts(changes)}"
        for group in _grouped(changes, _alike):
            yield from _change_lines(group)
    if comparison.quantities:
        yield "  a call"
        yield from _quantity_lines(comparison.quantities)
    tuned = (change for change in comparison.changes if change.after and change.after.configuration)
    if worse := {change.kernel for change in tuned if change.verdict == "worse"}:
        yield f"  --worse leaves out {', '.join(sorted(worse))}: without a GPU the tuner's choice is not known"
    if names := ", ".join(_uninterpreted(comparison)):
        yield (
            "  no machine without a GPU can run these changed kernels, because Triton's interpreter cannot: "
            f"{names}. Run their tests on a GPU"
        )


def _uninterpreted(comparison: Comparison) -> list[str]:
    """Return name and reason of each kernel that is new, changed or launched in another way, and is not interpreted."""
    kernels = [change.after for change in comparison.changes if change.kind == "kernel" and change.after]
    relaunched = {key for change in comparison.changes if change.kind in ("host", "new") for key in change.cases}
    kernels += [kernel for key in relaunched if key in comparison.head for kernel in comparison.head[key].kernels]
    return sorted({f"{kernel.name} ({kernel.uninterpreted})" for kernel in kernels if kernel.uninterpreted})


def compiler_lines(comparison: Comparison) -> Iterator[str]:
    """Yield a sentence for each version and default option that differs between the compilers."""
    if comparison.compilers:
        differences = list(compiler_differences(*comparison.compilers))
        yield from differences or ["the compilers have the same versions and the same default options"]


def _verdicts(changes: Sequence[CodeChange]) -> str:
    """Return the number of changes of kernels by verdict as ": 20 worse, 38 better", or ""."""
    counts = Counter(change.verdict for change in changes)
    parts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    return f": {parts}" if parts else ""


def in_short(comparison: Comparison) -> str:
    """Return a line with the number of cases by status, and of cases in which a quantity is worse."""
    worse = Counter(change.quantity for change in comparison.quantities for _ in change.cases if change.worse)
    named = ", ".join(f"{quantity} of {count}" for quantity, count in worse.most_common())
    line = f"{comparison.target.name}: {_counted(comparison) or 'same sources'}"
    return f"{line}; worse: {named}" if named else line


def _counted(comparison: Comparison) -> str:
    return ", ".join(f"{count} {KINDS.get(status, status)}" for status, count in comparison.counts.most_common())


def _status_line(comparison: Comparison) -> str:
    """Return the number of cases by status, and the number of suites that need no comparison."""
    counts, same = _counted(comparison), len(comparison.same_sources)
    same_sources = f"{same} suite{'s have' if same > 1 else ' has'} the same sources" if same else ""
    found = "the same kernels and steps" if comparison.quantities else "no difference found in what was traced"
    parts = ("" if comparison.changes else found, counts and f"cases: {counts}", same_sources)
    return f"  {'; '.join(filter(None, parts))}"


def _quantity_lines(changes: Sequence[QuantityChange]) -> Iterator[str]:
    """Yield a line for each quantity, direction and variant: the largest change, and the number of further changes."""
    for group in _grouped(changes, lambda change: (change.quantity, change.worse, *change.cases[0][:2])):
        largest = max(group, key=lambda change: abs(change.after - change.before))
        keys = [*largest.cases, *(key for change in group if change is not largest for key in change.cases)]
        yield from (f"    {largest}", f"      {used_by(keys)}")


def used_by(keys: Sequence[CaseKey], suite: str = "") -> str:
    """Return a text that names cases, without the name ``suite``: "linear triton at M=512,K=4096,N=2048 and 3 more"."""
    variants = (key.variant if key.suite == suite else f"{key.suite} {key.variant}" for key in keys)
    first, *others = dict.fromkeys(key.case for key in keys)
    return f"{', '.join(dict.fromkeys(variants))} at {first}{f' and {len(others)} more' if others else ''}"


def _alike(change: CodeChange) -> object:
    """Return a key that changes share if they differ only in their numbers: the kernel, or variants (host side)."""
    users = tuple(dict.fromkeys((key.suite, key.variant) for key in change.cases))
    return {"kernel": (change.kernel, change.source), "host": users}.get(change.kind, change)


def _grouped(changes: Iterable[T], key: Callable[[T], object]) -> Iterable[list[T]]:
    groups: dict[object, list[T]] = {}
    for change in changes:
        groups.setdefault(key(change), []).append(change)
    return groups.values()


def _change_lines(group: Sequence[CodeChange]) -> Iterator[str]:
    """Yield the lines of one group of changes: the most severe change, and the number of the others."""
    shown = sorted(group, key=_severity, reverse=True)[: SHOWN if group[0].kernel else 1]
    for change in shown:
        if change.kernel:
            configured = _named(change.after or change.before).removeprefix(change.kernel)
            yield f"    {change.kernel} ({change.source}){configured}: {change.sentence}"
        else:
            yield f"    {change.sentence if len(change.sentence) <= WIDTH else f'{change.sentence[:WIDTH]}…'}"
        yield f"      {used_by(change.cases)}"
    unshown = [key for change in group if change not in shown for key in change.cases]
    if unshown:
        yield f"      and in {counted(len(group) - len(shown), 'more way')}: {used_by(unshown)}"


def _severity(change: CodeChange) -> tuple[int, int]:
    """Return how many spilled bytes and how many registers changed, in either direction, as a sort key."""
    before, after = (side.machine if side else None for side in (change.before, change.after))
    if before is None or after is None:
        return (0, 0)
    return abs(after.spill_bytes - before.spill_bytes), abs(after.registers - before.registers)


def _named(kernel: KernelCode | None) -> str:
    """Return the name of a kernel, and what the configuration sets if it is tuned."""
    return "" if kernel is None else " with ".join(filter(None, (kernel.name, kernel.configuration)))


def _cells(kernel: KernelCode) -> list[str]:
    options = [str(kernel.options.get(name, "")) for name in ("num_warps", "num_stages")]
    machine = kernel.machine
    if machine is None:
        return [*options, "", "", "", "", kernel.failure or "not compiled", ""]
    mix = " ".join(f"{name} {count}" for name, count in machine.mix.items() if name != "all")
    return [
        *options,
        str(machine.registers),
        f"{machine.spill_bytes} B" if machine.spill_bytes else "",
        f"{machine.shared_bytes / 1024:.0f} KiB" if machine.shared_bytes else "",
        f"{machine.blocks} ({machine.limit})" if machine.blocks else f"none fits ({machine.limit})",
        f"{machine.mix.get('all', 0)}: {mix}" if mix else str(machine.mix.get("all", 0)),
        machine.fingerprint[:8],
    ]


#: Maximum number of characters for all targets together; a job's summary holds 1 MiB.
MOST_TEXT = 60_000


def to_markdown(comparisons: Sequence[Comparison], base: str, head: str) -> str:
    """Return the differences as Markdown: a heading that names the targets, then ``diff_lines`` as a code block."""
    different = [
        comparison.target.name
        for comparison in comparisons
        if any(change.kind != "unknown" for change in comparison.changes)
    ]
    outcome = f"differs on {', '.join(different)}" if different else "has no difference in what was traced"
    lines = [line for comparison in comparisons for line in diff_lines(comparison, base, head)]
    return f"### Machine code {outcome}\n\n{fenced(chr(10).join(lines))}\n"


def fenced(text: str) -> str:
    """Return a code block that the text cannot close: its fence is longer than any run of backticks in the text."""
    shown = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\n… cut; `lockstep code diff` shows all"
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{shown}\n{fence}\n"
