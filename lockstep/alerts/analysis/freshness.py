"""Find series that stopped, silent machines, and benchmarks that vanished, were renamed or changed their version.

These events raise alerts too, because nobody sees a regression of a series that is not measured. Many runs measure
only one family, and the other families have not stopped for that reason. So a commit counts only for the families that
were measured at it.
"""

from __future__ import annotations

import datetime
import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from lockstep.alerts.cause.attribution import Cause
from lockstep.alerts.model import Alert, Topic
from lockstep.record.series_name import SeriesName

#: The third person singular of each verb phrase in the texts.
THIRD_PERSON = {"fail": "fails", "report nothing": "reports nothing"}

#: Number of measured commits without a number after which a series counts as stopped. A series that fails is reported
#: at its first failure.
PATIENCE = 3

#: Days without a result after which a machine counts as silent.
SILENT_DAYS = 7

_DAY_MS = 86_400_000

#: Number of names that a text lists.
_MOST_NAMES = 5


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


def freshness(reports: MachineReports, now: int) -> list[Alert]:
    """Return the freshness alerts of one machine; ``now`` is in ms since 1970."""
    checks = _FreshnessChecks(reports)
    alerts = [*checks.stopped(), *checks.vanished(), *checks.versions()]
    silence = (now - reports.measured_at) // _DAY_MS
    if reports.commits and reports.measured_at and silence >= SILENT_DAYS:
        last = reports.commits[-1][0]
        # The text does not state the number of days, which would change every day.
        text = f"{reports.machine} has reported nothing since {_day(reports.measured_at)}"
        alerts.append(Alert("silent", reports.machine, "", last, (), Cause("unexplained", text), text=text))
    return alerts


def dead_machines(measured_at: Mapping[str, int]) -> frozenset[str]:
    """Return the machines that stopped measuring while another machine continued.

    If all machines stopped at about the same time, none is dead, because the results may be an old history.

    Args:
        measured_at: newest measurement of each machine, ms since 1970; 0 if unknown.
    """
    newest = max(measured_at.values(), default=0)
    return frozenset(machine for machine, at in measured_at.items() if at and (newest - at) // _DAY_MS >= SILENT_DAYS)


class _FreshnessChecks:
    """Searches the reports of one machine for freshness alerts."""

    def __init__(self, reports: MachineReports) -> None:
        self.reports = reports
        self.by_benchmark: dict[tuple[str, str], list[Reports]] = defaultdict(list)
        measured: dict[str, set[int]] = defaultdict(set)
        for report in reports.series:
            self.by_benchmark[report.benchmark].append(report)
            measured[report.series.family].update(report.commits)
        self.measured: Mapping[str, Sequence[int]] = reports.measured or {
            family: sorted(positions) for family, positions in measured.items()
        }
        ended = {
            name: max(report.commits[-1] for report in members)
            for name, members in self.by_benchmark.items()
            if any(report.last_number is not None for report in members)
        }
        self.gone = {
            name: last
            for name, last in ended.items()
            if self._later(self.by_benchmark[name][0].series.family, last) >= PATIENCE
        }

    def stopped(self) -> Iterable[Alert]:
        """Yield an alert for each family and commit at which series stopped while their benchmark continued."""
        groups: dict[tuple[str, int], dict[str, list[Reports]]] = defaultdict(lambda: defaultdict(list))
        for name, members in self.by_benchmark.items():
            for report in members if name not in self.gone else ():
                last = report.last_number
                if last is None:
                    continue
                if report.states[-1] == "failed":
                    groups[report.series.family, last]["fail"].append(report)
                elif self._later(report.series.family, last) >= PATIENCE:
                    groups[report.series.family, last]["report nothing"].append(report)
        for (family, last), reports_by_symptom in sorted(groups.items()):
            first = self._next(family, last)
            reasons = [
                f"{len(stopped_reports)} series {symptom if len(stopped_reports) > 1 else THIRD_PERSON[symptom]}: "
                f"{_names(report.series.label for report in stopped_reports)}"
                for symptom, stopped_reports in reports_by_symptom.items()
            ]
            yield self._alert("stopped", family, last, first, f"since {self._hash(first)[:8]} {'; '.join(reasons)}")

    def vanished(self) -> Iterable[Alert]:
        """Yield alerts for benchmarks that ended. The topic is "renamed" if another benchmark continues the same cases,
        else "vanished".
        """
        groups: dict[tuple[str, int, Topic], list[str]] = defaultdict(list)
        for name, last in sorted(self.gone.items()):
            members = self.by_benchmark[name]
            heir = self._heir(members, last)
            label = ".".join(part for part in name if part)
            entry = f"{label} is now recorded as {'.'.join(part for part in heir if part)}" if heir else label
            groups[members[0].series.family, last, "renamed" if heir else "vanished"].append(entry)
        for (family, last, topic), names in sorted(groups.items()):
            first = self._next(family, last)
            text = f"since {self._hash(first)[:8]} there is no {_names(names)}"
            yield self._alert(topic, family, last, first, text if topic == "vanished" else _names(names))

    def versions(self) -> Iterable[Alert]:
        """Yield alerts for the newest change of each benchmark's version, at which a new series starts."""
        groups: dict[tuple[str, int, int], set[str]] = defaultdict(set)
        for report in self.reports.series:
            pairs = list(zip(report.commits, report.versions, strict=True))
            for (before, old), (after, new) in list(itertools.pairwise(pairs))[::-1]:
                if old and new and old != new:
                    groups[report.series.family, before, after].add(f"{report.series.suite} {old[:8]} → {new[:8]}")
                    break
        for (family, before, after), changed in sorted(groups.items()):
            text = f"the benchmark version changed ({_names(sorted(changed))}): new series start here"
            alert = self._alert("version", family, before, after, text)
            yield replace(alert, cause=Cause("protocol", text))

    def _heir(self, members: Sequence[Reports], last: int) -> tuple[str, str] | None:
        """Return the benchmark that continues an ended benchmark under another name; ``None`` if there is none.

        It has the same family and cases, and begins at the next commit at which the family was measured.

        Args:
            members: the reports of the ended benchmark.
            last: the position of its last commit.
        """
        family = members[0].series.family
        cases = {(report.series.case, report.series.l2) for report in members}
        for name, candidates in sorted(self.by_benchmark.items()):
            begins = min(report.commits[0] for report in candidates)
            same = cases == {(report.series.case, report.series.l2) for report in candidates}
            if same and begins == self._next(family, last) and candidates[0].series.family == family:
                return name
        return None

    def _later(self, family: str, position: int) -> int:
        """Return at how many commits after ``position`` the family was measured."""
        measured = self.measured[family]
        return len(measured) - bisect_right(measured, position)

    def _next(self, family: str, position: int) -> int:
        measured = self.measured[family]
        place = bisect_right(measured, position)
        return measured[place] if place < len(measured) else position

    def _hash(self, position: int) -> str:
        return self.reports.commits[position][0]

    def _alert(self, topic: Topic, family: str, last: int, first: int, text: str) -> Alert:
        commit, date = self.reports.commits[first]
        return Alert(
            topic,
            self.reports.machine,
            family,
            before=self._hash(last),
            commits=(commit,),
            cause=Cause("unexplained", text),
            since=date,
            old=is_old(first, self.reports.commits),
            text=text,
        )


#: A change that is older than both limits is recorded without a report, because it is history when it is found.
OLD_COMMITS = 30
OLD_DAYS = 30


def is_old(position: int, commits: Sequence[tuple[str, int]]) -> bool:
    """Return whether a commit is too far behind the machine's newest commit for its changes to be reported."""
    behind = len(commits) - 1 - position
    return behind > OLD_COMMITS and commits[-1][1] - commits[position][1] > OLD_DAYS * _DAY_MS


def _names(names: Iterable[str]) -> str:
    listed = list(dict.fromkeys(names))
    omitted = f" and {len(listed) - _MOST_NAMES} more" if len(listed) > _MOST_NAMES else ""
    return ", ".join(listed[:_MOST_NAMES]) + omitted


def _day(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).date().isoformat()
