"""Find series that stopped, silent machines, and benchmarks that vanished or changed their version.

These events raise alerts too, because nobody sees a regression of a series that is not measured. Many runs measure
only one family, and the other families have not stopped for that reason. So a commit counts for the families that were
measured at it. It counts for a family that ended if it measured at least half as many families as the last commits of
that family; if no such commit follows, ten commits of any kind count.
"""

from __future__ import annotations

import datetime
import itertools
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from lockstep.alerts.analysis.reports import MachineReports, Reports
from lockstep.alerts.analysis.vanished_names import Subject, in_few_words
from lockstep.alerts.cause.found_change import Cause
from lockstep.alerts.model import Alert, Topic
from lockstep.record.series_name import SeriesName

#: The third person singular of each verb phrase in the texts.
THIRD_PERSON = {"fail": "fails", "report nothing": "reports nothing"}

#: Number of measured commits without a number after which a series counts as stopped. A series that fails is reported
#: at its first failure.
PATIENCE = 3

#: Number of commits of any kind after which a family counts as gone, even if they measured few families.
_PARTIAL_PATIENCE = 10

#: Days without a result after which a machine counts as silent.
SILENT_DAYS = 7

_DAY_MS = 86_400_000

#: Number of names that a text lists.
_MOST_NAMES = 5


def freshness(reports: MachineReports) -> list[Alert]:
    """Return the freshness alerts of one machine, without that of a silent machine."""
    checks = _FreshnessChecks(reports)
    return [*checks.stopped(), *checks.vanished(), *checks.versions()]


def silence(machine: str, newest: str, measured_at: int, now: int) -> Alert | None:
    """Return the alert of a machine that is silent; ``None`` if it is not.

    Args:
        newest: the newest measured commit; "" if there is none.
        measured_at: time of the newest measurement, ms since 1970; 0 if unknown.
        now: the current time, ms since 1970.
    """
    if not newest or not measured_at or (now - measured_at) // _DAY_MS < SILENT_DAYS:
        return None
    # The text does not state the number of days, which would change every day.
    text = f"{machine} has reported nothing since {day_of(measured_at)}"
    return Alert("silent", machine, "", newest, (), Cause("unexplained", text), text=text)


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
        for report in reports.series:
            self.by_benchmark[report.benchmark].append(report)
        families = Counter(position for positions in reports.measured.values() for position in positions)
        #: By family, the commits that count for it.
        self.counting = {
            family: [*positions, *_after_the_end(positions, families, len(reports.commits))]
            for family, positions in reports.measured.items()
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
        self.missing = self._missing()

    def _missing(self) -> dict[SeriesName, Reports]:
        """Return the series without entries, of benchmarks that go on.

        Series of a family are left out if others of it fail since the same commit, which then did both.
        """
        going_on = [
            report for name, members in self.by_benchmark.items() if name not in self.gone for report in members
        ]
        broken = {(report.series.family, report.last_number) for report in going_on if report.states[-1] == "failed"}
        return {
            report.series: report
            for report in going_on
            if report.states[-1] == "number"
            and self._later(report.series.family, report.commits[-1]) >= PATIENCE
            and (report.series.family, report.commits[-1]) not in broken
        }

    def stopped(self) -> Iterable[Alert]:
        """Yield an alert for each family and commit at which series stopped while their benchmark continued."""
        groups: dict[tuple[str, int], dict[str, list[Reports]]] = defaultdict(lambda: defaultdict(list))
        for name, members in self.by_benchmark.items():
            for report in members if name not in self.gone else ():
                last = report.last_number
                if last is None or report.series in self.missing:
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
            text = f"since {self._hash(first)[:8]} {'; '.join(reasons)}"
            yield replace(self._alert("stopped", family, last, first, text), failing="fail" in reports_by_symptom)

    def vanished(self) -> Iterable[Alert]:
        """Yield one alert for everything that is missing since the same commit: benchmarks, and series of others."""
        ended_subjects = [(last, _benchmark(name, self.by_benchmark[name])) for name, last in self.gone.items()]
        last_of = {report.series: report.commits[-1] for report in self.missing.values()}
        for name, members in self.by_benchmark.items():
            # What else is measured of a case reports that the case is missing.
            told = {r.series.case for r in members if not r.series.exact or r.series not in self.missing}
            missing = [r for r in members if r.series in self.missing]
            for subject in _subjects(name, [r for r in missing if not (r.series.exact and r.series.case in told)]):
                ended_subjects.append((max(last_of[series] for series in subject.series), subject))
        groups: dict[int, list[tuple[int, Subject]]] = defaultdict(list)
        for last, subject in ended_subjects:
            groups[self._next(subject.series[0].family, last)].append((last, subject))
        for first, ended in sorted(groups.items()):
            yield self._missing_since(first, max(last for last, _ in ended), [subject for _, subject in ended])

    def _missing_since(self, first: int, last: int, subjects: Sequence[Subject]) -> Alert:
        subjects = sorted(subjects, key=lambda subject: subject.label)
        begun = [
            subject
            for name, members in self.by_benchmark.items()
            for subject in _begun(name, members, range(last + 1, first + 1))
        ]
        sizes = {subject.size for subject in subjects}
        begun = sorted((subject for subject in begun if subject.size in sizes), key=lambda subject: subject.label)
        alive, older = (
            [_label(name) for name, members in self.by_benchmark.items() if any(map(counts, members))]
            for counts in (lambda report: report.commits[-1] >= first, lambda report: report.commits[0] <= last)
        )
        text = f"since {self._hash(first)[:8]} there is no {_names(in_few_words(subjects, alive))}"
        if begun:
            new = _names(in_few_words(begun, older))
            text += f"; {new} began there: [[same]] in thresholds.toml joins what was renamed"
        families = sorted({name.family for subject in subjects for name in subject.series})
        return self._alert("vanished", _shared_room(families), last, first, text)

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

    def _later(self, family: str, position: int) -> int:
        """Return how many commits after ``position`` count for the family."""
        counting = self.counting[family]
        return len(counting) - bisect_right(counting, position)

    def _next(self, family: str, position: int) -> int:
        counting = self.counting[family]
        place = bisect_right(counting, position)
        return counting[place] if place < len(counting) else position

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


def _after_the_end(positions: Sequence[int], families: Mapping[int, int], commits: int) -> Sequence[int]:
    """Return the commits that count for a family although they did not measure it: those after its last commit.

    Args:
        positions: the commits that measured the family.
        families: the number of families that each commit measured.
        commits: the number of commits.
    """
    later = range(positions[-1] + 1, commits)
    usual = max(families[position] for position in positions[-PATIENCE:])
    full = [position for position in later if 2 * families[position] >= usual]
    return later if len(full) < PATIENCE and len(later) >= _PARTIAL_PATIENCE else full


def _label(benchmark: tuple[str, str]) -> str:
    return ".".join(part for part in benchmark if part)


def _benchmark(name: tuple[str, str], members: Sequence[Reports]) -> Subject:
    return Subject(_label(name), "", tuple(report.series for report in members))


def _subjects(name: tuple[str, str], reports: Iterable[Reports]) -> Iterator[Subject]:
    """Yield a subject for each series, and one for all exact quantities of a case."""
    of_case: dict[str, list[SeriesName]] = defaultdict(list)
    for report in reports:
        if report.series.exact:
            of_case[report.series.case].append(report.series)
        else:
            yield Subject(report.series.label, _label(name), (report.series,))
    for series in of_case.values():
        yield Subject(replace(series[0], quantity="latency").label, _label(name), tuple(series))


def _begun(name: tuple[str, str], members: Sequence[Reports], at: range) -> Iterable[Subject]:
    """Yield the benchmark if it began within a range of commits, else those of its cases that did."""
    begun = [report for report in members if report.commits[0] in at]
    if len(begun) == len(members):
        yield _benchmark(name, members)
    else:
        yield from _subjects(name, begun)


def _shared_room(families: Sequence[str]) -> str:
    """Return the family, or the class or module that several families share; "" if they share none."""
    parts = [family.split(".") for family in families]
    return ".".join(same[0] for same in itertools.takewhile(lambda at: len(set(at)) == 1, zip(*parts, strict=False)))


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


def day_of(milliseconds: int) -> str:
    """Return the day of a time in ms since 1970: ``2026-11-21``."""
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).date().isoformat()
