"""Analyse one machine: find the changes of its followed series, and add the data that may explain each change.

The analysis continues the last analysis from files. A machine whose results did not change is not read at all. For a
machine with more commits, only the points of the new commits are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from lockstep.alerts.analysis.cache_files import AnalysisCache
from lockstep.alerts.analysis.change_cache import CachedAnalysis, SeriesSteps, place_of, read_analysis, write_analysis
from lockstep.alerts.analysis.detector_state import MonitoredSeries, analyse, extend, is_current
from lockstep.alerts.analysis.followed_checks import Checks, continued, follow_checks
from lockstep.alerts.analysis.followed_series import (
    Followed,
    common_baselines,
    followed,
    name_in,
    newest_baselines,
    version_in,
)
from lockstep.alerts.analysis.reported_points import SeriesReports
from lockstep.alerts.analysis.reports import MachineReports
from lockstep.alerts.analysis.step_facts import WINDOW, StepBuilder, sized
from lockstep.alerts.cause.change_facts import Step
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.detect import Change
from lockstep.detect.exact_changes import exact_changes
from lockstep.history.model import Trend
from lockstep.history.snapshot import Results

#: If there are more new commits than this, all points are read.
_MOST_NEW = 50


@dataclass(frozen=True)
class ChangedSeries:
    """The changes of one series under one benchmark version (see ``Followed.place``), oldest first."""

    version: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class MachineChanges:
    """All changes of a machine, before the thresholds decide which of them are reported.

    Attributes:
        machine: the machine's name.
        changed: the series with changes.
        reports: the reports of every series.
    """

    machine: str
    changed: tuple[ChangedSeries, ...]
    reports: MachineReports


def analyse_machine(
    results: Results, machine: str, ranges: Ranges, cache: AnalysisCache, processes: int = 1
) -> MachineChanges:
    """Find the changes of a machine's series, and add to each change the data that may explain it.

    Args:
        cache: the cache that holds the last analysis, and receives this one.
        processes: the number of processes that share the series that the cache does not hold.
    """
    state, detector = results.state(machine), cache.detector(machine)
    cached = read_analysis(cache.cached(machine))
    hashes = [commit.hash for commit in results.commits(machine)]
    ranges.learn(hashes)
    # The repository may have been fetched or completed since then, and then knows more ranges.
    if cached and (cached.ranges, cached.lacking) != (ranges.text, ranges.lacking(hashes[: cached.commits])):
        cached = None
    if not (cached and cached.state == state and is_current(detector, state)):
        analysis = _MachineAnalysis(results, machine, ranges, detector, cached)
        cached = analysis.appended() or analysis.whole(processes)
        write_analysis(cache.cached(machine), cached)
    commits = [(commit.hash, commit.date) for commit in results.commits(machine)]
    measured_at = max((run.measured_at for run in results.runs if run.machine == machine), default=0)
    reports = MachineReports(machine, commits, measured_at, cached.reported.reports(), cached.measured)
    changed = tuple(
        ChangedSeries(version_in(row), tuple(series_steps.steps.values()))
        for row, series_steps in cached.changed.items()
    )
    return MachineChanges(machine, changed, reports)


class _MachineAnalysis:
    """Finds the changes of one machine's series, from all points or only from new points."""

    def __init__(
        self, results: Results, machine: str, ranges: Ranges, path: Path, cached: CachedAnalysis | None
    ) -> None:
        self.results = results
        self.machine = machine
        self.ranges = ranges
        self.path = path
        self.state = results.state(machine)
        self.commits = len(results.commits(machine))
        # A cached analysis is valid if its commits are still the oldest commits.
        same = cached and cached.commits <= self.commits and results.state(machine, cached.commits) == cached.state
        self.cached = cached if same else None

    def whole(self, processes: int) -> CachedAnalysis:
        """Analyse all points of the machine. The detector still continues series whose points only gained new ones."""
        order = {series: place for place, series in enumerate(self.results.series(machine=self.machine))}
        trends = sorted(self.results.trends(order), key=lambda trend: order[trend.series])
        baseline_of = newest_baselines(self.results, self.machine)
        baselines = common_baselines(
            (self.results.benchmarks[series.benchmark].suite, text) for series, text in baseline_of.items()
        )
        followed_by_row = {followed_series.row: followed_series for followed_series in followed(trends, baselines)}
        series = {
            row: followed_series
            for row, followed_series in followed_by_row.items()
            if not followed_series.trend.benchmark.exact
        }
        exact = {
            row: followed_series
            for row, followed_series in followed_by_row.items()
            if followed_series.trend.benchmark.exact
        }
        done = analyse(
            self.path,
            self.state,
            list(series),
            [followed_series.values for followed_series in series.values()],
            processes,
        )
        numbers = {self.results.number(series): text for series, text in baseline_of.items()}
        reported = SeriesReports.of(self.results, trends, series, numbers)
        checks = follow_checks(self.results, trends, baselines)
        return self._cached(reported, _measured(trends), done, series, exact, checks)

    def appended(self) -> CachedAnalysis | None:
        """Analyse only the points of new commits.

        ``None`` if the commits do more than continue the known series, or if a series is exact.
        """
        if any(self.results.benchmarks[series.benchmark].exact for series in self.results.series(machine=self.machine)):
            return None
        cached = self.cached
        if cached is None or not 0 < (new_count := self.commits - cached.commits) <= _MOST_NEW:
            return None
        new = self.results.newest(self.machine, new_count)
        added = cached.reported.added(new, self.results)
        done = extend(self.path, cached.state, self.state, added[1]) if added else None
        if added is None or done is None:
            return None
        checks = continued(cached.checks, self.results, self.machine, new_count)
        if checks is None:
            return None
        steps = {row: series_steps for row, series_steps in cached.changed.items() if name_in(row).checked}
        measured = {family: list(at) for family, at in cached.measured.items()}
        for family, commits in added[0].measured(new).items():
            measured[family] = [*measured.get(family, ()), *commits]
        return self._cached(added[0], measured, done, {}, {}, Checks({}, checks), steps)

    def _cached(
        self,
        reported: SeriesReports,
        measured: Mapping[str, Sequence[int]],
        done: MonitoredSeries,
        series: Mapping[str, Followed],
        exact: Mapping[str, Followed],
        checks: Checks,
        known: Mapping[str, SeriesSteps] = MappingProxyType({}),
    ) -> CachedAnalysis:
        return CachedAnalysis(
            state=self.state,
            commits=self.commits,
            ranges=self.ranges.text,
            lacking=self.ranges.lacking([commit.hash for commit in self.results.commits(self.machine)]),
            measured=measured,
            reported=reported,
            changed={
                **self._changed(done, series, reported),
                **self._exact(
                    {row: (followed_series, _exact_of(followed_series)) for row, followed_series in exact.items()}
                ),
                **self._exact(checks.changed),
                **known,
            },
            checks=checks.state,
        )

    def _exact(self, series: Mapping[str, tuple[Followed, Sequence[Change]]]) -> dict[str, SeriesSteps]:
        """Return the steps of series whose changes need no detector, by row.

        Args:
            series: each series and its changes, by row.
        """
        builder = StepBuilder(self.results, self.machine, self.ranges)
        changed = {}
        for row, (followed_series, changes) in series.items():
            if changes:
                steps = {place_of(change): builder.step(followed_series, change) for change in changes}
                changed[row] = SeriesSteps(len(followed_series.values), steps)
        return changed

    def _changed(
        self, done: MonitoredSeries, series: Mapping[str, Followed], reported: SeriesReports
    ) -> dict[str, SeriesSteps]:
        """Return the steps of every followed series, by row. Reuse a cached step unless new points lie next to it."""
        old = self.cached.changed if self.cached else {}
        lengths = done.monitor.detector.length.tolist()
        located = []
        for place, detected in done.monitor.changes().items():
            row = done.names[place]
            known = old.get(row)
            changes = {place_of(change): change for change in detected}
            cached_steps = {
                at: step
                for at, step in (known.steps.items() if known else ())
                # Later points may lie within the window around a change.
                if at in changes and known and at[0] + WINDOW <= known.length and step.measure == "ratio"
            }
            located.append((place, row, changes, cached_steps))
        missing = [row for _, row, changes, cached_steps in located if len(cached_steps) < len(changes)]
        if missing and not series:
            series = self._read(missing, reported)
        builder = StepBuilder(self.results, self.machine, self.ranges)
        changed = {}
        for place, row, changes, cached_steps in located:
            better = done.monitor.better[place]
            steps = {
                at: sized(cached_steps[at], better, change) if at in cached_steps else builder.step(series[row], change)
                for at, change in changes.items()
            }
            changed[row] = SeriesSteps(lengths[place], steps)
        return changed

    def _read(self, rows: Sequence[str], reported: SeriesReports) -> dict[str, Followed]:
        """Read the series with these keys (``Followed.row``), and the latencies that may explain their changes."""
        places = {(name.suite, name.case, name.l2) for name in map(name_in, rows)}
        numbered_names = zip(reported.number.tolist(), reported.name, strict=True)
        numbers = [number for number, name in numbered_names if (name.suite, name.case, name.l2) in places]
        trends = list(self.results.trends_of(self.machine, numbers))
        return {followed_series.row: followed_series for followed_series in followed(trends, reported.baselines)}


def _exact_of(followed: Followed) -> Sequence[Change]:
    """Return the changes of an exact series. Noise does not hide them, and later points do not move them."""
    return exact_changes(followed.values.values, followed.values.better)


def _measured(trends: Sequence[Trend]) -> dict[str, list[int]]:
    """Return the positions of the commits at which a series of the family was measured, by family."""
    commits: dict[str, set[int]] = defaultdict(set)
    for trend in trends:
        commits[trend.benchmark.family].update(trend.commit.tolist())
    return {family: sorted(at) for family, at in commits.items()}
