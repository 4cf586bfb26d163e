"""Define what each series of a machine reported at each commit, as ``freshness`` reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lockstep.record.series_name import SeriesName

#: What a series reports at a commit.
ReportState = Literal["number", "failed", "na"]


@dataclass(frozen=True)
class Reports:
    """What a series reported at each commit, oldest first: a number, a failure, or that it does not apply.

    Attributes:
        series: the name of the series.
        commits: positions, among the machine's commits, at which the series has an entry.
        states: "number", "failed" or "na" at each of ``commits``.
        versions: the benchmark version at each of ``commits``; "" if unknown.
    """

    series: SeriesName
    commits: Sequence[int]
    states: Sequence[ReportState]
    versions: Sequence[str]

    @property
    def last_number(self) -> int | None:
        """Position of the newest commit with a number; ``None`` if the series never had a number."""
        return next((c for c, s in zip(self.commits[::-1], self.states[::-1], strict=True) if s == "number"), None)

    @property
    def benchmark(self) -> tuple[str, str]:
        """Suite and variant, which identify the benchmark. All of its series vanish or are renamed together."""
        return self.series.suite, self.series.variant


@dataclass(frozen=True)
class MachineReports:
    """What all series of a machine reported, and when.

    Attributes:
        commits: hash and date (ms since 1970) of the machine's commits, oldest first.
        measured_at: time of the newest measurement, ms since 1970.
        measured: ascending positions of the commits at which a series of the family was measured, by family. A series
            may leave out a report that equals both the previous and the next one, because ``measured`` lists its
            commit.
    """

    machine: str
    commits: Sequence[tuple[str, int]]
    measured_at: int
    series: Sequence[Reports]
    measured: Mapping[str, Sequence[int]] = field(default_factory=dict)
