"""Compare two sides case by case: two commits, machines, variants or toolchains."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lockstep.alerts.analysis.latest_findings import MachineFindings
from lockstep.alerts.cause.code_evidence import code_evidence, code_of, same_code, same_kernels
from lockstep.compare.difference import Differences, Quantity, compare_rows, geomean, loudest_first
from lockstep.compare.read_rows import rows_at
from lockstep.compare.row_table import RowTable
from lockstep.compare.series_status import keys_by_name
from lockstep.compare.verdict import LOUDEST, Times, Verdict, quantile
from lockstep.history.model import STATES, Run, SeriesKey
from lockstep.history.row_keys import PARTS
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered_few
from lockstep.suite.thresholds import Thresholds

_TOOLS = ("torch", "triton", "ptxas", "cuda", "driver", "python")


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a machine at a commit (full hash).

    If ``variant`` is "", each variant is compared with the same variant on the other side.
    """

    machine: str
    commit: str
    variant: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """A case with its numbers on both sides.

    Attributes:
        base_variant, head_variant: the variant on each side; they differ only if variants are compared.
        base, head: the number on each side, in ``unit``; ``None`` for a side without a number.
        log: natural log of head's number divided by base's number; NaN if unknown. For "speedup", of the times relative
            to the baseline.
        error: the standard error of ``log``; NaN if unknown.
        verdict: the verdict by the thresholds of the series.
        why: the reason for a verdict that the numbers do not explain; otherwise "".
        code: the differences of the machine code, for people. "the same" if both codes are known and equal; "the
            kernels are the same" if the code that launches them is unknown; "" if nothing is known.
        times: for a speedup that changed, the changes of the variant's and the baseline's time; ``None`` if unknown.
        unit: "seconds", or the unit of another project's benchmark.
    """

    suite: str
    case: str
    l2: str
    base_variant: str
    head_variant: str
    base: float | None
    head: float | None
    log: float
    error: float
    verdict: Verdict
    why: str = ""
    code: str = ""
    times: Times | None = None
    unit: str = "seconds"

    @property
    def difference(self) -> float | None:
        """Head's number minus base's if they have no ratio, because one is zero or negative; otherwise ``None``."""
        if self.base is None or self.head is None or min(self.base, self.head) > 0:
            return None
        return self.head - self.base

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval of ``log``."""
        return self.log - quantile(0.95) * self.error

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval of ``log``."""
        return self.log + quantile(0.95) * self.error


@dataclass(frozen=True, eq=False)
class Comparison:
    """The cases that both sides have, as columns, and how many cases cannot be compared. An item is a ``Pair``.

    The most urgent verdict comes first, and within a verdict the largest change.

    Attributes:
        differences: the differences of head's rows from base's.
        codes: the machine code of each side as JSON text, by series.
        other_version: number of cases whose two sides were measured with different versions of the benchmark.
        one_sided: number of cases that only one side has.
    """

    differences: Differences
    codes: Sequence[Mapping[SeriesKey, str]]
    other_version: int
    one_sided: int

    def __len__(self) -> int:
        return len(self.differences)

    @cached_property
    def base(self) -> RowTable:
        """Base's rows, in the order of ``head``."""
        return self.differences.before.select(self.differences.earlier)

    @property
    def head(self) -> RowTable:
        """Head's rows."""
        return self.differences.rows

    def __iter__(self) -> Iterator[Pair]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Pair:
        keys = (side.key_at(index) for side in (self.base, self.head))
        codes = [side.get(key, "") for side, key in zip(self.codes, keys, strict=True)]
        return pair_of(self.differences, index, self._reason(index), _code(*codes))

    @property
    def timed(self) -> NDArray[np.intp]:
        """The indices of the pairs whose number is a time."""
        part = self.base.series_keys.part_at[self.base.columns["rank"]]
        return np.flatnonzero(part == PARTS.index("latency"))

    @cached_property
    def units(self) -> tuple[str, ...]:
        """The units of the pairs, each once: "seconds" for times, otherwise the unit of the benchmark."""
        # One row per series is enough, because all rows of a series belong to one benchmark.
        _, places = np.unique(self.base.columns["rank"], return_index=True)
        return tuple(sorted({self.base.benchmark(place).unit for place in places.tolist()}))

    @property
    def ours(self) -> bool:
        """Whether Lockstep suites measured all pairs."""
        return not self.base.foreign.any()

    @property
    def geomean(self) -> float:
        """The mean of ``Pair.log`` over the pairs in which it is known; NaN for none."""
        return geomean(self.differences.of_number(self.differences.worse))

    @property
    def counts(self) -> Counter[Verdict]:
        """The number of pairs with each verdict."""
        return Counter(LOUDEST[code] for code in self.differences.verdict.tolist())

    def _reason(self, index: int) -> str:
        for name, side in (("base", self.base), ("head", self.head)):
            if STATES[side.at("state", index)] == "failed":
                reason = side.reason(index)
                return f"{name}: {reason}" if reason else name
        if LOUDEST[self.differences.verdict[index]] != "unsure":
            return ""
        if math.isnan(self.differences.worse[index]):
            numbers = [_number(side, index) for side in (self.base, self.head)]
            if None in numbers:
                return "a number is missing"
        return "its noise is unknown" if math.isnan(self.differences.error[index]) else ""


@remembered_few
def compare(
    results: Results,
    base: Side,
    head: Side,
    quantity: Quantity,
    thresholds: Thresholds,
    suite: str = "",
    l2: str = "",
    findings: MachineFindings | None = None,
) -> Comparison:
    """Compare the cases that two sides have in common.

    Args:
        quantity: the quantity for Lockstep suites. Numbers of other projects are compared as they are.
        suite, l2: the suite and the cache state to compare; "" for all.
        findings: the detector's findings on head's machine, which know the noise of other projects' numbers; ``None``
            while they are unknown. The noise of a Lockstep suite comes from the intervals of the two runs.
    """
    across = bool(base.variant and head.variant)
    tables = [rows_at(results, side.machine, side.commit) for side in (base, head)]
    cases = [_places(table, side.variant, across, suite, l2) for table, side in zip(tables, (base, head), strict=True)]
    common_cases = cases[0].keys() & cases[1].keys()
    before, after = tables
    # Use the order of head, because the order of a set may differ from run to run of Python.
    common = [case for case in cases[1] if case in common_cases]
    heads = np.array([cases[1][case] for case in common], dtype=np.intp)
    earlier = np.full(len(after), -1, dtype=np.intp)
    earlier[heads] = [cases[0][case] for case in common]
    # Pass all rows, because the comparison also needs the baselines of the cases.
    noise, unit_noise = _noise(results, head.machine, findings, tables)
    differences = compare_rows(before, earlier, after, thresholds, noise, unit_noise, quantity)
    same = before.columns["version"][earlier[heads]] == after.columns["version"][heads]
    both_baselines = before.is_baseline[earlier[heads]] & after.is_baseline[heads]
    chosen = heads[same if quantity == "latency" else same & ~both_baselines]
    listed = differences.select(chosen)
    listed = listed.select(loudest_first(listed))
    codes = [_codes(results, side) for side in (base, head)]
    one_sided = len(cases[0]) + len(cases[1]) - 2 * len(common_cases)
    return Comparison(listed, codes, int((~same).sum()), one_sided)


def pair_of(differences: Differences, place: int, why: str = "", code: str = "") -> Pair:
    """Return a row and its earlier row, which may be missing, as a pair of base and head."""
    rows, before, earlier = differences.rows, differences.before, int(differences.earlier[place])
    key, worse = rows.key_at(place), float(differences.worse[place])
    return Pair(
        suite=key.suite,
        case=key.case,
        l2=key.l2,
        base_variant=before.key_at(earlier).variant if earlier >= 0 else key.variant,
        head_variant=key.variant,
        base=_number(before, earlier) if earlier >= 0 else None,
        head=_number(rows, place),
        log=-worse if differences.flipped[place] else worse,
        error=float(differences.error[place]),
        verdict=LOUDEST[differences.verdict[place]],
        why=why,
        code=code,
        times=differences.times.get(place),
        unit=rows.benchmark(place).unit,
    )


def _noise(
    results: Results, machine: str, findings: MachineFindings | None, tables: Sequence[RowTable]
) -> tuple[Mapping[SeriesKey, float], Mapping[SeriesKey, float]]:
    """Return the run-to-run noise of other projects' series: of logarithms, and in the unit where there are none."""
    if findings is None:
        return {}, {}
    scale_of = findings.noise
    keys = {name: key for name, key in keys_by_name(results, machine).items() if name.foreign and name in scale_of}
    logs = {key: scale_of[name] for name, key in keys.items() if math.isfinite(scale_of[name])}
    # The noise of other series is read from a file, so only that of numbers without a ratio is.
    without_ratio = {
        table.key_at(place)._replace(machine=machine)
        for table in tables
        for place in np.flatnonzero((table.column("value") <= 0) | (table.column("latency") <= 0)).tolist()
    }
    differences = {}
    for name, key in keys.items():
        behaviour = findings.behaviour(name) if key in without_ratio else None
        if behaviour is not None and behaviour.noise.measure == "difference":
            differences[key] = behaviour.noise.scale
    return logs, differences


def _places(rows: RowTable, only: str, across: bool, suite: str, l2: str) -> dict[tuple[str, str, str, str], int]:
    """Return the indices of the rows to compare, by suite, variant, case and cache state.

    The variant is "" if different variants are compared (``across``).
    """
    absent, ratio = STATES.index("na"), PARTS.index("speedup")
    part = rows.series_keys.part_at[rows.columns["rank"]]
    # Leave out rows that have only a speedup, because they have no time to show.
    measured = np.flatnonzero((rows.columns["state"] != absent) & (part != ratio)).tolist()
    places = {}
    for place in measured:
        key = rows.key_at(place)
        if only in ("", key.variant) and suite in ("", key.suite) and l2 in ("", key.l2):
            places[key.suite, "" if across else key.variant, key.case, key.l2] = place
    return places


def differing(base: Run, head: Run) -> list[tuple[str, str, str]]:
    """Return how the conditions of two runs differ, as triples of name, base's value and head's value."""
    strings = []
    for name in ("machine", "clock_state", "protocol"):
        strings.append((name.replace("_", " "), str(getattr(base, name)), str(getattr(head, name))))
    for facts in ((base.toolchain, head.toolchain), (base.host, head.host), (base.strings, head.strings)):
        strings += [(name, facts[0].get(name, ""), facts[1].get(name, "")) for name in sorted({*facts[0], *facts[1]})]
    unique = {
        name: (name, base_text, head_text) for name, base_text, head_text in reversed(strings) if base_text != head_text
    }
    return list(unique.values())[::-1]


def toolchain_text(run: Run) -> str:
    """Return ``torch 2.11.0 · triton 3.6.0 · driver 580.1``, or the environment's name if no version is known."""
    tools = [f"{name} {run.toolchain[name]}" for name in _TOOLS if run.toolchain.get(name)]
    return " · ".join(tools) or run.environment


def _codes(results: Results, side: Side) -> Mapping[SeriesKey, str]:
    """Return the machine code of a side's series as JSON text, without series whose code is unknown."""
    index = results.keys(side.machine)
    points = results.columns(side.machine, ("code",), side.commit)
    known = np.flatnonzero(points["code"] != "").tolist() if points else []
    return {index.keys[index.key_at[points["rank"][place]]]: points["code"][place] for place in known}


def _number(rows: RowTable, index: int) -> float | None:
    """Return the time of a row, or its value if it has no time; ``None`` if it has neither."""
    latency = rows.number("latency", index)
    return rows.number("value", index) if latency is None else latency


def _code(base: str, head: str) -> str:
    base_code, head_code = code_of(base), code_of(head)
    if not base_code or not head_code:
        return ""
    if same_code(base_code, head_code):
        return "the same"
    evidence = "; ".join(part.text for part in code_evidence(base_code, head_code) if part.changed)
    # An older record has no fingerprint of the launching code, so only its kernels can be compared.
    return evidence or ("the kernels are the same" if same_kernels(base_code, head_code) else "")
