"""Define what each series of a machine reported at each commit, as ``freshness`` reads it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lockstep.alerts.analysis.followed_series import name_of
from lockstep.history.model import STATES, Trend
from lockstep.history.snapshot import Results
from lockstep.record.quantity import PAIRED
from lockstep.record.series_name import SeriesName

#: What a series reports at a commit.
ReportState = Literal["number", "failed", "na"]

_STATES: tuple[ReportState, ...] = ("number", "failed", "na")

#: Index in ``_STATES`` by a state's code.
_OF_STATE = np.array([_STATES.index(state) if state in ("failed", "na") else 0 for state in STATES])


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
        series: the reports. A ratio and its time count as one series.
        measured: ascending positions of the commits at which a series of the family was measured, by family. A series
            may leave out a report that equals both the previous and the next one, because ``measured`` lists its
            commit.
    """

    machine: str
    commits: Sequence[tuple[str, int]]
    series: Sequence[Reports]
    measured: Mapping[str, Sequence[int]]


def machine_reports(results: Results, machine: str, trends: Sequence[Trend]) -> MachineReports:
    """Return what the series of a machine reported, given all of its trends."""
    measured: dict[str, set[int]] = defaultdict(set)
    reports = []
    for trend in trends:
        measured[trend.benchmark.family].update(trend.commit.tolist())
        name = name_of(trend.series, trend.benchmark)
        if not (trend.benchmark.measured and name.quantity in PAIRED.values()):
            reports.append(_reports(name, trend, results.versions))
    commits = [(commit.hash, commit.date) for commit in results.commits(machine)]
    return MachineReports(machine, commits, reports, {family: sorted(at) for family, at in measured.items()})


def _reports(name: SeriesName, trend: Trend, versions: Sequence[str]) -> Reports:
    """Return the first and the last of each run of equal reports of a series."""
    state = _OF_STATE[trend.state]
    turns = np.flatnonzero((np.diff(state) != 0) | (np.diff(trend.version) != 0))
    ends = np.unique(np.concatenate([[0], turns, turns + 1, [len(trend) - 1]]))
    return Reports(
        name,
        trend.commit[ends].tolist(),
        [_STATES[code] for code in state[ends].tolist()],
        [versions[version] for version in trend.version[ends].tolist()],
    )
