"""What the pages show: one series at one commit, and the numbers that follow from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from lockstep.compare.number_format import significant
from lockstep.history.model import Benchmark, Point, Series, State
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered

#: Machine, suite, variant, case, cache state.
Key = tuple[str, str, str, str, str]

STATE_LABELS: dict[State, str] = {"ok": "ok", "na": "n/a", "failed": "failed", "bare": "no provenance"}


@dataclass(frozen=True, slots=True)
class Measured:
    """A value and its confidence interval, ``None`` at both ends where none is known.

    The interval is the record's 95 % one, or asv's 99 % one in a row without provenance; ``error`` is the standard
    error of the logarithm that it tells.
    """

    value: float
    low: float | None = None
    high: float | None = None
    error: float | None = None

    def inverse(self, numerator: float) -> Measured:
        """``numerator / self``; the ends of the interval change places."""
        low, high = (None if end is None else numerator / end for end in (self.high, self.low))
        return Measured(numerator / self.value, low, high, self.error)

    def times(self, factor: float) -> Measured:
        """``factor × self`` for a positive factor."""
        low = None if self.low is None else factor * self.low
        high = None if self.high is None else factor * self.high
        return Measured(factor * self.value, low, high, self.error)

    def ends(self, between: str) -> str:
        """Both ends of the interval, with something between them; "" where none is known."""
        if self.low is None or self.high is None:
            return ""
        return f"{significant(self.low, 4)}{between}{significant(self.high, 4)}"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that a row has: how it is called, in which unit, and whether more of it is better."""

    name: str
    label: str
    unit: str
    higher_is_better: bool


QUANTITIES: dict[str, Quantity] = {
    one.name: one
    for one in (
        Quantity("latency", "Latency", "µs", False),
        Quantity("speedup", "Speedup", "×", True),
        Quantity("floor", "% of floor", "%", True),
        Quantity("bandwidth", "Bandwidth", "GB/s", True),
        Quantity("compute", "Compute", "TFLOP/s", True),
    )
}

#: Latency or value over the series' first one of the same ruler; only several rows together have it.
RELATIVE = "relative"

#: What other projects measure in other units than seconds; the unit and the good way are the benchmark's.
VALUE = "value"

#: Units that are shown in another one, and the factor to it.
SHOWN_AS = {"bytes": ("MB", 1e-6), "seconds": ("µs", 1e6)}


@dataclass(frozen=True, slots=True)
class Row:
    """One series at one commit on one machine: latency and speedup, which are two points of the store, together.

    Attributes:
        machine: the store's name of it.
        commit: full hash.
        suite: ours, or the full name of another project's benchmark.
        variant, case, l2: as the suite names them; other parameters are joined into the case.
        version: the ruler's digest; another one is another series.
        state, reason: see ``State``; the reason of "na" and "failed".
        latency: seconds a call. speedup: baseline's latency over this one's.
        value, unit, higher_is_better: of a benchmark that does not measure seconds.
        axes: parameters of the case, as text.
        baseline: variant that the speedup refers to; "" unknown.
        relative: see ``relative_rows``.
        flops, bytes: the task's cost in operations and bytes; 0 unknown.
        floor_s: seconds at the machine's own rates.
        bound: which rate makes the floor, "bandwidth" or "compute"; "" unknown.
        mde: smallest relative change that the measurement could tell.
        measured_at: when, milliseconds since 1970; 0 unknown.
    """

    machine: str
    commit: str
    suite: str
    variant: str
    case: str
    l2: str
    version: str
    state: State
    reason: str = ""
    latency: Measured | None = None
    speedup: Measured | None = None
    flops: float = 0.0
    bytes: float = 0.0
    floor_s: float | None = None
    bound: str = ""
    mde: float | None = None
    note: str = ""
    clock_state: str = ""
    sm_mhz: float | None = None
    clock_reasons: tuple[str, ...] = ()
    measured_at: int = 0
    value: Measured | None = None
    unit: str = ""
    higher_is_better: bool = False
    axes: tuple[tuple[str, str], ...] = ()
    baseline: str = ""
    relative: Measured | None = None

    @property
    def key(self) -> Key:
        """Identity of the series."""
        return self.machine, self.suite, self.variant, self.case, self.l2

    @property
    def baseline_key(self) -> Key:
        """Identity of its baseline's series."""
        return self.machine, self.suite, self.baseline, self.case, self.l2

    def measured(self, quantity: str) -> Measured | None:
        """The number called ``quantity`` (see ``described``), in its unit; ``None`` where the row has none."""
        latency = self.latency
        if quantity == VALUE:
            return self.value
        if quantity == RELATIVE:
            return self.relative
        if quantity == "speedup":
            return self.speedup
        if latency is None:
            return None
        if quantity == "latency":
            return latency.times(1e6)
        numerators = {
            "floor": 100 * (self.floor_s or 0.0),
            "bandwidth": self.bytes / 1e9,
            "compute": self.flops / 1e12,
        }
        return latency.inverse(numerators[quantity]) if numerators[quantity] > 0 else None


def suite_of(benchmark: Benchmark) -> str:
    """What a page of the benchmark is called: our suite, or another project's benchmark."""
    return benchmark.suite if benchmark.ours else benchmark.name


@remembered
def suites(results: Results) -> frozenset[str]:
    """Return the names of all suites, see ``suite_of``."""
    return frozenset(map(suite_of, results.benchmarks.values()))


def benchmarks_of(results: Results, suite: str) -> Sequence[Benchmark]:
    """Return the benchmarks of a suite; () for an unknown one."""
    named = results.benchmarks.get(suite)
    return (*_ours(results).get(suite, ()), *([named] if named and not named.ours else []))


@remembered
def _ours(results: Results) -> Mapping[str, Sequence[Benchmark]]:
    found: dict[str, list[Benchmark]] = defaultdict(list)
    for one in results.benchmarks.values():
        if one.ours:
            found[one.suite].append(one)
    return dict(found)


def described(rows: Iterable[Row], quantity: str) -> Quantity:
    """The quantity of this name; a value's unit is that of the rows."""
    if quantity in QUANTITIES:
        return QUANTITIES[quantity]
    if quantity == RELATIVE:
        return Quantity(RELATIVE, "Relative to the first", "×", False)
    row = next((row for row in rows if row.value), None)
    return Quantity(VALUE, "Value", row.unit if row else "", row.higher_is_better if row else False)


def relative_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows with their latency (or value) over the first one of the same series and ruler; oldest first."""
    first: dict[tuple[Key, str], float] = {}
    found = []
    for row in rows:
        own = row.latency or row.value
        base = first.setdefault((row.key, row.version), own.value) if own and own.value > 0 else None
        found.append(replace(row, relative=own.times(1 / base) if own and base else None))
    return found


def quantities_of(results: Results, suite: str) -> tuple[str, ...]:
    """Names of the quantities that a suite can have."""
    own = benchmarks_of(results, suite)
    if any(one.ours for one in own):
        return (*QUANTITIES, RELATIVE)
    return ("latency", RELATIVE) if all(one.unit == "seconds" for one in own) else (VALUE, RELATIVE)


def key_of(series: Series, suite: str) -> Key:
    """Identity of the row that a series belongs to."""
    if not series.axes:
        return series.machine, suite, "", "", ""
    named = dict(series.axes)
    variant, l2 = named.pop("variant", ""), named.pop("l2", "")
    case = named["case"] if list(named) == ["case"] else ",".join(f"{key}={value}" for key, value in named.items())
    return series.machine, suite, variant, case, l2


@remembered
def keys_of(results: Results, machine: str | None = None) -> frozenset[Key]:
    """Rows that a machine (``None``: any) ever had."""
    if machine is None:
        first, *others = (keys_of(results, one) for one in results.machines) if results.machines else [frozenset()]
        return first.union(*others) if others else first
    of = results.benchmarks
    return frozenset(key_of(one, suite_of(of[one.benchmark])) for one in results.series(machine=machine))


def series_of(results: Results, suite: str, machine: str | None = None) -> dict[Key, list[Series]]:
    """Series of a suite by row."""
    found: dict[Key, list[Series]] = {}
    for benchmark in benchmarks_of(results, suite):
        for one in results.series(machine=machine, benchmark=benchmark.name):
            found.setdefault(key_of(one, suite), []).append(one)
    return found


def rows_of(results: Results, points: Iterable[Point]) -> list[Row]:
    """Points as rows, in the order of the points."""
    pairs: dict[tuple[Key, str], dict[str, Point] | Row] = {}
    for point in points:
        benchmark = results.benchmarks[point.series.benchmark]
        key = key_of(point.series, suite_of(benchmark))
        if benchmark.ours:
            pair = pairs.setdefault((key, point.run.commit), {})
            assert isinstance(pair, dict)
            pair[part_of(benchmark)] = point
        else:
            # Nothing else belongs to it, and the point need not be held until all are read.
            pairs[key, point.run.commit] = _row(key, {part_of(benchmark): point}, results)
    return [one if isinstance(one, Row) else _row(key, one, results) for (key, _), one in pairs.items()]


def part_of(benchmark: Benchmark) -> str:
    """Which number of a row a benchmark gives: "latency", "speedup" or "value"."""
    if benchmark.ours:
        return "speedup" if benchmark.is_ratio else "latency"
    return "latency" if benchmark.unit == "seconds" else VALUE


def _row(key: Key, pair: dict[str, Point], results: Results) -> Row:
    # What the record says stands at both; the state of the row is its latency's.
    point = pair.get("latency") or pair.get(VALUE) or pair["speedup"]
    machine, suite, variant, case, l2 = key
    benchmark = results.benchmarks[point.series.benchmark]
    unit, factor = SHOWN_AS.get(benchmark.unit, (benchmark.unit, 1.0))
    value = pair[VALUE] if VALUE in pair and pair[VALUE].value is not None else None
    return Row(
        machine=machine,
        commit=point.run.commit,
        suite=suite,
        variant=variant,
        case=case,
        l2=l2,
        version=point.version,
        state=point.state,
        reason=point.reason,
        latency=_measured(pair.get("latency")),
        speedup=_measured(pair.get("speedup")),
        flops=point.flops,
        bytes=point.bytes,
        floor_s=point.floor_s,
        bound=point.bound,
        mde=point.mde,
        note=point.note,
        clock_state=point.run.clock_state if point.state != "bare" else "",
        sm_mhz=point.sm_mhz,
        clock_reasons=point.clock_reasons,
        measured_at=point.measured_at,
        value=Measured(value.value or 0.0, value.low, value.high, value.error).times(factor) if value else None,
        unit=unit if VALUE in pair else "",
        higher_is_better=benchmark.higher_is_better,
        axes=_case_axes(case) if benchmark.ours else _other_axes(point.series),
        baseline=point.baseline,
    )


def _measured(point: Point | None) -> Measured | None:
    if point is None or point.value is None or point.value <= 0:
        return None
    return Measured(point.value, point.low, point.high, point.error)


def _other_axes(series: Series) -> tuple[tuple[str, str], ...]:
    return tuple(axis for axis in series.axes if axis[0] not in ("variant", "l2"))


@lru_cache(maxsize=100_000)
def _case_axes(case: str) -> tuple[tuple[str, str], ...]:
    return tuple(axes_of(case).items())


def axes_of(case: str) -> dict[str, str]:
    """Axes of a case's label: ``M=8,bias`` → ``{"M": "8", "bias": "true"}``."""
    pairs = (part.partition("=") for part in case.split(",") if part)
    return {name: value if equals else "true" for name, equals, value in pairs}
