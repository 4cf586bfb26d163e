"""Define the rows that pages show, each a series at a commit, and the quantities that can be shown of a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lockstep.compare.number_format import significant
from lockstep.history.model import SeriesKey, State
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.record.quantity import COST_QUANTITIES, EXACT, SUITE_BENCHMARK, benchmark_name

STATE_LABELS: dict[State, str] = {"ok": "ok", "na": "n/a", "failed": "failed", "bare": "no provenance"}


@dataclass(frozen=True, slots=True)
class Measured:
    """A value with its confidence interval, whose ends are ``None`` if unknown.

    The interval is the 95 % interval of the record, or asv's 99 % interval if the row has no record. ``error`` is the
    standard error of the logarithm, which follows from the interval.
    """

    value: float
    low: float | None = None
    high: float | None = None
    error: float | None = None

    def inverse(self, numerator: float) -> Measured:
        """Return ``numerator`` divided by the value, with its interval."""
        low, high = (None if end is None else numerator / end for end in (self.high, self.low))
        return Measured(numerator / self.value, low, high, self.error)

    def times(self, factor: float) -> Measured:
        """Return the value and its interval multiplied by a positive factor."""
        low = None if self.low is None else factor * self.low
        high = None if self.high is None else factor * self.high
        return Measured(factor * self.value, low, high, self.error)

    def ends(self, between: str) -> str:
        """Format both ends of the interval, with ``between`` between them; "" if unknown."""
        if self.low is None or self.high is None:
            return ""
        return f"{significant(self.low, 4)}{between}{significant(self.high, 4)}"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that a row can show: its name, label and unit, and whether a higher number is better."""

    name: str
    label: str
    unit: str
    higher_is_better: bool


QUANTITIES: dict[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        Quantity("latency", "Latency", "µs", False),
        Quantity("speedup", "Speedup", "×", True),
        Quantity("floor", "% of floor", "%", True),
        Quantity("bandwidth", "Bandwidth", "GB/s", True),
        Quantity("compute", "Compute", "TFLOP/s", True),
        Quantity("error", "Error", "", False),
    )
}

#: The time or value divided by the first one of the series under the same benchmark version. A single row does not have
#: this quantity.
RELATIVE = "relative"

#: A cost, an exact quantity, or a number of another project that is not in seconds. The benchmark gives its unit and
#: its better direction.
VALUE = "value"

#: The unit in which numbers are shown and the factor to it, for units that are not shown as they are stored.
SHOWN_AS = {"bytes": ("MB", 1e-6), "seconds": ("µs", 1e6), "J": ("mJ", 1e3)}


@dataclass(frozen=True, slots=True)
class Row:
    """A series at a commit on a machine. A row joins the latency and the speedup, which the store holds as two points.

    Attributes:
        key: the key of the series.
        commit: the full hash of the commit.
        state: see ``lockstep.history.model.State``.
        reason: why the state is "na" or "failed".
        latency: seconds per call.
        speedup: the baseline's latency divided by this row's latency.
        value, unit, higher_is_better: the number of a benchmark that does not measure seconds, its unit and direction.
        baseline: the variant with which the speedup compares this one; "" if unknown.
        flops, bytes: the task's cost in operations and bytes; 0 if unknown.
        floor_s: the seconds that the task would take at the rates of the machine's controls.
        bound: the rate that decides the floor, "bandwidth" or "compute"; "" if unknown.
        mde: the smallest relative change that the measurement could detect.
        check_error: the norm of the error against the reference, divided by the reference's norm.
    """

    key: SeriesKey
    commit: str
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
    sm_mhz: float | None = None
    clock_reasons: tuple[str, ...] = ()
    value: Measured | None = None
    unit: str = ""
    higher_is_better: bool = False
    baseline: str = ""
    check_error: float | None = None

    @property
    def machine(self) -> str:
        """The machine of the row's series."""
        return self.key.machine

    @property
    def suite(self) -> str:
        """The suite of the row's series."""
        return self.key.suite

    @property
    def variant(self) -> str:
        """The variant of the row's series."""
        return self.key.variant

    @property
    def case(self) -> str:
        """The case of the row's series."""
        return self.key.case

    @property
    def l2(self) -> str:
        """The cache state of the row's series."""
        return self.key.l2

    def measured(self, quantity: str) -> Measured | None:
        """Return the number with the name ``quantity``, in the unit of ``described``; ``None`` if the row lacks it."""
        latency = self.latency
        if quantity == VALUE:
            return self.value
        if quantity == "speedup":
            return self.speedup
        if latency is None or quantity == RELATIVE:
            return None
        if quantity == "error":
            return None if self.check_error is None else Measured(self.check_error)
        if quantity == "latency":
            return latency.times(1e6)
        numerators = {
            "floor": 100 * (self.floor_s or 0.0),
            "bandwidth": self.bytes / 1e9,
            "compute": self.flops / 1e12,
        }
        return latency.inverse(numerators[quantity]) if numerators[quantity] > 0 else None


@remembered
def suites(results: Results) -> frozenset[str]:
    """Return the names of all suites in the results, see ``Benchmark.key_suite``."""
    return frozenset(benchmark.key_suite for benchmark in results.benchmarks.values())


def related_suites(results: Results, suite: str) -> Mapping[str, str]:
    """Return the label of each quantity of the Lockstep suite to which ``suite`` belongs, by the name that pages show.

    For example, "linear" shows latency and speedup, "linear.host" a cost, and "linear.registers" an exact quantity. {}
    for another project's suite.
    """
    suite_benchmarks = [benchmark for benchmark in results.benchmarks.values() if benchmark.of_suite]
    named = next((benchmark.suite for benchmark in suite_benchmarks if benchmark.key_suite == suite), None)
    key_suites = {benchmark.key_suite for benchmark in suite_benchmarks if benchmark.suite == named}
    labels = {named or "": "time"}
    labels |= {benchmark_name(named or "", name): name.replace("_", " ") for name in (*COST_QUANTITIES, *EXACT)}
    return {key_suite: label for key_suite, label in labels.items() if key_suite in key_suites}


def described(rows: Iterable[Row], quantity: str, suite: str = "") -> Quantity:
    """Return the label, unit and direction of the quantity with this name.

    For ``VALUE``, the rows give the unit, and ``suite`` or else the rows' suite gives the label.
    """
    if quantity in QUANTITIES:
        return QUANTITIES[quantity]
    if quantity == RELATIVE:
        return Quantity(RELATIVE, "Relative to the first", "×", False)
    row = next((row for row in rows if row.value), None)
    suite_match = SUITE_BENCHMARK.fullmatch(row.suite if row else suite)
    label = suite_match["quantity"].replace("_", " ").capitalize() if suite_match else "Value"
    # Leave out the unit if it repeats the label ("Registers registers").
    unit = "" if row is None or row.unit == label.lower() else row.unit
    return Quantity(VALUE, label, unit, row.higher_is_better if row else False)


def quantities_of(results: Results, suite: str) -> tuple[str, ...]:
    """Return the names of the quantities that a suite can have, see ``Benchmark.key_suite``."""
    benchmark = results.benchmarks.get(suite)
    if benchmark is None:
        return (*QUANTITIES, RELATIVE)
    return ("latency" if benchmark.part == "latency" else VALUE), RELATIVE


def keys_of(results: Results, suite: str, machine: str | None = None) -> list[SeriesKey]:
    """Return the keys of a suite, in the order of the series. ``machine`` restricts them to this machine."""
    machines = results.machines if machine is None else [machine]
    return [key for name in machines for key in results.keys(name).of_suite.get(suite, ())]


def axes_of(case: str) -> dict[str, str]:
    """Return the axes in the label of a case: ``M=8,bias`` → ``{"M": "8", "bias": "true"}``."""
    pairs = (part.partition("=") for part in case.split(",") if part)
    return {name: value if equals else "true" for name, equals, value in pairs}
