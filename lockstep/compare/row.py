"""Define the row that pages show: a series at a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lockstep.compare.number_format import significant
from lockstep.compare.shown_quantities import QUANTITIES, VALUE, Quantity
from lockstep.history.model import SeriesKey, State
from lockstep.record.quantity import SUITE_BENCHMARK, Better

#: The label of a point that copies the number of another commit with the same work.
COPIED = "same work"
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

    def ends(self, between: str) -> str:
        """Format both ends of the interval, with ``between`` between them; "" if unknown."""
        if self.low is None or self.high is None:
            return ""
        return f"{significant(self.low, 4)}{between}{significant(self.high, 4)}"


@dataclass(frozen=True, slots=True)
class Row:
    """A series at a commit on a machine. A row joins the latency and the speedup, which the store holds as two points.

    Attributes:
        measured: returns the number with the name of a quantity, in the unit of ``described``; ``None`` if the row
            lacks it.
        state: see ``lockstep.history.model.State``.
        label: the words for the state, or for numbers of another commit with the same work, which the note names.
        reason: why the state is "na" or "failed".
        latency: seconds per call.
        speedup: the baseline's latency divided by this row's latency.
        value, unit: the number of a benchmark that does not measure seconds, and its unit.
        better: the better direction of the benchmark of the latency or of the value, without rules of the thresholds.
        flops, bytes: the task's cost in operations and bytes; 0 if unknown.
        floor_s: the seconds that the task would take at the rates of the machine's controls.
        bound: the rate that decides the floor, "bandwidth" or "compute"; "" if unknown.
        mde: the smallest relative change that the measurement could detect.
    """

    key: SeriesKey
    state: State
    label: str
    measured: Callable[[str], Measured | None] = field(repr=False, compare=False)
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
    better: Better = "lower"

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


def described(rows: Iterable[Row], quantity: str, suite: str = "") -> Quantity:
    """Return the label, unit and direction of the quantity with this name.

    For ``VALUE``, the rows give the unit, and ``suite`` or else the rows' suite gives the label.
    """
    if quantity in QUANTITIES:
        return QUANTITIES[quantity]
    row = next((row for row in rows if row.value), None)
    suite_match = SUITE_BENCHMARK.fullmatch(row.suite if row else suite)
    label = suite_match["quantity"].replace("_", " ").capitalize() if suite_match else "Value"
    # Leave out the unit if it repeats the label ("Registers registers").
    unit = "" if row is None or row.unit == label.lower() else row.unit
    return Quantity(VALUE, label, unit, row.better if row else "neither")
