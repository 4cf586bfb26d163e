"""What the pages show: one series at one commit, and the numbers that follow from it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from lockstep.record import Clocks

#: "ok"; "na" (not supported here); "failed"; "bare" (a number from asv's file that no provenance stands behind).
State = Literal["ok", "na", "failed", "bare"]

STATE_LABELS: dict[State, str] = {"ok": "ok", "na": "n/a", "failed": "failed", "bare": "no provenance"}


@dataclass(frozen=True, slots=True)
class Measured:
    """A value and its confidence interval, ``None`` at both ends where none is known.

    The interval is the record's 95 % one, or asv's 99 % one in a row without provenance.
    """

    value: float
    low: float | None = None
    high: float | None = None

    def inverse(self, numerator: float) -> Measured:
        """``numerator / self``; the ends of the interval change places."""
        low, high = (None if end is None else numerator / end for end in (self.high, self.low))
        return Measured(numerator / self.value, low, high)

    def times(self, factor: float) -> Measured:
        """``factor × self`` for a positive factor."""
        low, high = (None if end is None else factor * end for end in (self.low, self.high))
        return Measured(factor * self.value, low, high)


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


@dataclass(frozen=True, slots=True)
class Row:
    """One series at one commit on one machine.

    Attributes:
        machine, environment: asv's names; the clock state is part of the machine's.
        commit: full hash.
        date: of the commit, milliseconds since 1970 (as in asv's file).
        family, op: the suite's; a plain asv benchmark's full name and "".
        variant, case, l2: as the suite names them; "" where a plain asv benchmark has none.
        version: the ruler's digest; another one is another series.
        state, reason: see ``State``; the reason of "na" and "failed".
        latency: seconds a call. speedup: baseline's latency over this one's.
        flops, bytes: the task's cost in operations and bytes; 0 unknown.
        floor_s: seconds at the machine's own rates; floor_source "measured" or "datasheet".
        bound: which rate makes the floor, "bandwidth" or "compute"; "" unknown.
        mde: smallest relative change that the measurement could tell.
        measured_at: when, milliseconds since 1970; 0 unknown.
    """

    machine: str
    environment: str
    commit: str
    date: int
    family: str
    op: str
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
    floor_source: str = ""
    bound: str = ""
    mde: float | None = None
    note: str = ""
    clock_state: str = ""
    clocks: Clocks = field(default_factory=Clocks)
    measured_at: int = 0

    @property
    def suite(self) -> str:
        """``family`` or ``family.op``."""
        return f"{self.family}.{self.op}" if self.op else self.family

    @property
    def series(self) -> tuple[str, str, str, str, str]:
        """Identity of the series: machine, suite, variant, case, cache state."""
        return self.machine, self.suite, self.variant, self.case, self.l2

    def measured(self, quantity: str) -> Measured | None:
        """The number called ``quantity`` in ``QUANTITIES``, in its unit; ``None`` where the row has none."""
        latency = self.latency
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


def positive(value: float | None, low: float | None = None, high: float | None = None) -> Measured | None:
    """``Measured`` of a positive value; an interval that does not hold the value is dropped."""
    if value is None or value <= 0:
        return None
    if low is None or high is None or not 0 < low <= value <= high:
        return Measured(value)
    return Measured(value, low, high)


def natural(text: str) -> tuple[tuple[int, float, str], ...]:
    """Sort key that reads digits as numbers: ``M=8`` before ``M=16``."""
    parts = re.findall(r"\d+(?:\.\d+)?|\D+", text)
    return tuple((0, float(part), "") if part[0].isdecimal() else (1, 0.0, part) for part in parts)


def axes_of(case: str) -> dict[str, str]:
    """Axes of a case's label: ``M=8,bias`` → ``{"M": "8", "bias": "true"}``."""
    pairs = (part.partition("=") for part in case.split(",") if part)
    return {name: value if equals else "true" for name, equals, value in pairs}
