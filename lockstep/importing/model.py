"""Define the data that every format of another tool is read into."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lockstep.record.quantity import Better


@dataclass(frozen=True)
class Number:
    """A number of a benchmark, as another tool states it.

    Attributes:
        benchmark: dotted name. The last part is the quantity or the function, the parts before it are the suite.
        case: the parameters of the benchmark for people: "n=10"; "" if there are none.
        unit: "seconds", "bytes", or the tool's own unit; "" if unknown.
        value: in the unit; NaN if the tool skipped the case.
        better: the better direction, where the tool defines it; ``None`` leaves it to the unit.
        failed: whether the benchmark failed, so that it has no number.
        samples: all samples, if the tool states them. Their median then counts as the value.
        stats: what the tool states of the spread, in asv's words: "ci_99_a", "q_25", "repeat" …
    """

    benchmark: str
    case: str
    unit: str
    value: float
    better: Better | None = None
    failed: bool = False
    samples: tuple[float, ...] = ()
    stats: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ForeignRun:
    """The numbers that another tool measured on one machine at one commit.

    Attributes:
        commit: full hash; "" if the file does not name the commit.
        date: date of the commit, ms since 1970; 0 if unknown.
        measured_at: time of the measurement, ms since 1970; 0 if unknown.
        machine: name of the machine; "" if the file does not name it.
        facts: asv's machine strings, as far as the file states them: cpu, os, gpu …
    """

    numbers: tuple[Number, ...]
    commit: str = ""
    date: int = 0
    measured_at: int = 0
    machine: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


#: Seconds, by the names that tools give to units of time.
SECONDS: Mapping[str, float] = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}

#: Quantile of the normal distribution for asv's 99 % intervals.
_Z99 = 2.5758293035489004


def stats_of_mean(mean: float, deviation: float, count: int) -> dict[str, float]:
    """Return the ``Number.stats`` of a mean of ``count`` samples, with the 99 % interval if they give one."""
    stats: dict[str, float] = {"number": 1, "repeat": count} if count else {}
    if count >= 2 and math.isfinite(deviation):
        half = _Z99 * deviation / math.sqrt(count)
        stats |= {"ci_99_a": mean - half, "ci_99_b": mean + half}
    return stats


def milliseconds(text: str | None) -> int:
    """Return the ms since 1970 of a time in ISO 8601, which is UTC if it names no zone; 0 without a text."""
    if not text:
        return 0
    time = datetime.fromisoformat(text)
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
