"""Analyse results: find the changes of every series, name the cause of each change, and group changes into alerts."""

from __future__ import annotations

import datetime
import gc
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lockstep.alerts.analysis.analysis_file import AnalysisFile, DetectedSeries, Known, MachineAnalysis
from lockstep.alerts.analysis.followed_series import Followed, followed
from lockstep.alerts.analysis.grouping import group
from lockstep.alerts.analysis.judging import commits_of_gains, judged, unreported_because, with_waivers
from lockstep.alerts.analysis.machine_results import MachineResults, read_machine
from lockstep.alerts.analysis.step_facts import StepBuilder
from lockstep.alerts.analysis.stopped_series import freshness, machine_reports, silent_machines
from lockstep.alerts.cause.attribution import explained
from lockstep.alerts.cause.benchmark_source import with_benchmark_changes
from lockstep.alerts.cause.commit_notes import CommitLog, CommitNote, notes, read_log
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.model import Alert, AnalysisResult
from lockstep.detect import Analysis, Change, Trend, continue_many
from lockstep.detect.series_state import SeriesState
from lockstep.history.cache_folder import DamagedCache
from lockstep.history.snapshot import Results
from lockstep.history.store import Store
from lockstep.processes.only_one import only_one
from lockstep.suite.thresholds import Thresholds

#: Number of new points from which a second process is worth its start. Half a second suffices for this many points.
PARALLEL_POINTS = 50_000


def analyse_store(
    store: Store, thresholds: Thresholds, repo: Path, packages: Sequence[str] = ()
) -> tuple[Results, AnalysisResult]:
    """Analyse all new results in a store. The dashboard's pages read what was found from the store's cache.

    One process analyses at a time. If the cache is damaged, it is made again and the analysis starts again, once.

    Args:
        repo: a folder in the git repository whose commits are measured.
        packages: folders of the packages under test, relative to the repository's root.

    Raises:
        StoreError: the cache cannot be written.
    """

    def analyse() -> tuple[Results, AnalysisResult]:
        results, now = store.current(), datetime.datetime.now(datetime.UTC)
        with only_one(store.cache / "analyses.lock", wait=True):
            file = AnalysisFile(store.cache)
            return results, analyse_results(results, thresholds, Ranges(repo, packages), now, file)

    collecting = gc.isenabled()
    # An analysis frees no objects until it ends. Garbage collection would take a third of its time without effect.
    gc.disable()
    try:
        return analyse()
    except DamagedCache:
        return analyse()
    finally:
        if collecting:
            gc.enable()


def analyse_results(
    results: Results, thresholds: Thresholds, ranges: Ranges, now: datetime.datetime, file: AnalysisFile
) -> AnalysisResult:
    """Find the changes and the alerts of all machines.

    Args:
        now: the current time, which decides on mutes and silent machines.
        file: the file that holds the last analysis, and receives this one.
    """
    every = results.commits()
    # The commits of a machine that measured none on the line may have nothing to do with one another.
    commits = {name: results.commits(name) for name in results.machines if results.on_line(name)}
    ranges.learn([commit.hash for commit in every])
    analyses = {name: _analyse_machine(results, name, ranges, file) for name in commits}
    changes = [change for analysis in analyses.values() for change in judged(analysis.changes, thresholds)]
    gains = commits_of_gains(changes)
    unreported = {c.key: reason for c in changes if (reason := unreported_because(c, thresholds, gains))}
    subjects = {commit.hash: commit.subject for commit in every}
    reported = (change for change in changes if change.key not in unreported)
    hashes = {name: tuple(commit.hash for commit in of_machine) for name, of_machine in commits.items()}
    levels = {(name, family): ends for name, analysis in analyses.items() for family, ends in analysis.levels.items()}
    alerts = group(with_waivers(reported, thresholds, commits, subjects, now.date()), list(subjects), levels)
    silent, dead = silent_machines(results, commits, now)
    stopped = _once([*silent, *(alert for analysis in analyses.values() for alert in analysis.freshness)], dead)
    return AnalysisResult(
        alerts=(*_noted(alerts, ranges), *stopped),
        commits=hashes,
        dead=dead,
        unreported=unreported,
        changes=tuple(changes),
        series={(name, *at): number for name, analysis in analyses.items() for at, number in analysis.series.items()},
    )


def _analyse_machine(results: Results, machine: str, ranges: Ranges, file: AnalysisFile) -> MachineAnalysis:
    """Find the changes of a machine's series with their causes, and its freshness alerts.

    ``file``: the file that holds the last analysis, and receives this one.
    """
    hashes = [commit.hash for commit in results.commits(machine)]
    # The repository may have been fetched or completed since the last analysis, and then knows more ranges.
    state, known_ranges = results.state(machine), ranges.state(hashes)
    stored = file.newest(machine, state, known_ranges)
    if stored is None:
        known = file.known(machine)
        measured = read_machine(results, machine)
        stored, detected = _analysed(measured, ranges, known)
        file.add(stored, state, known_ranges, detected)
    return stored


def _analysed(
    machine: MachineResults, ranges: Ranges, known: Mapping[tuple[int, int], Known]
) -> tuple[MachineAnalysis, Sequence[DetectedSeries]]:
    series = followed(machine)
    noisy = [one for one in series if not one.exact]
    detected = _detect(noisy, known)
    found: list[tuple[Followed, Sequence[Change]]] = [
        *(
            (replace(one, noise=state.found.noise.scale), _listed(state.found))
            for one, state in zip(noisy, detected, strict=True)
        ),
        *((one, one.changes) for one in series if one.exact),
    ]
    builder = StepBuilder(machine, ranges)
    steps = (
        builder.step(one, change, start, stop)
        for one, changes in found
        for start, change, stop in zip(
            (0, *(change.index for change in changes)),
            changes,
            (*(change.earliest for change in changes[1:]), len(one.trend.commit)),
            strict=False,
        )
    )
    changes = tuple(explained(step) for step in steps)
    reports = list(machine_reports(machine))
    counts = Counter((report.series.family, report.series.suite) for report in reports)
    measured: dict[str, set[int]] = defaultdict(set)
    for trend in machine.trends:
        measured[trend.benchmark.family].update(trend.commit.tolist())
    stopped = tuple(freshness(machine.name, machine.commits, reports, measured))
    ends = {family: (sorted(of)[2], sorted(of)[-3]) for family, of in measured.items() if len(of) > 2}
    levels = {family: (machine.commits[old].hash, machine.commits[new].hash) for family, (old, new) in ends.items()}
    return MachineAnalysis(machine.name, changes, stopped, counts, levels), detected


def _listed(found: Analysis) -> Sequence[Change]:
    """Return the changes of a series, and after them the step that no third point has confirmed yet."""
    return found.changes if found.unconfirmed is None else (*found.changes, found.unconfirmed)


def _detect(series: Sequence[Followed], known: Mapping[tuple[int, int], Known]) -> list[DetectedSeries]:
    """Return what the detector finds in each series. A known series is continued if its first points are the same.

    ``known``: what the last analysis left, by the number of the series and the index of its benchmark version.
    """
    states = [_state(known.get((one.number, one.version)), one.values) for one in series]
    new = sum(len(one.values) - (state.done if state else 0) for one, state in zip(series, states, strict=True))
    values = [one.values for one in series]
    found = continue_many(values, states, processes=2 if new > PARALLEL_POINTS else 1)
    return [
        DetectedSeries(one.number, one.version, len(one.values), _checksum(one.values, len(one.values)), *detected)
        for one, detected in zip(series, found, strict=True)
    ]


def _state(known: Known | None, trend: Trend) -> SeriesState | None:
    """Return the state that is known of a series if its first points are the same now."""
    if known is None:
        return None
    length, checksum, state = known
    return SeriesState.from_bytes(state) if length <= len(trend) and _checksum(trend, length) == checksum else None


def _checksum(trend: Trend, length: int) -> int:
    """Return a checksum of the first points of a trend, and of how they are analysed."""
    checksum = zlib.crc32(trend.values[:length].tobytes(), zlib.crc32(f"{trend.ratio}".encode()))
    return checksum if trend.errors is None else zlib.crc32(trend.errors[:length].tobytes(), checksum)


def _once(stale: Sequence[Alert], dead: Collection[str]) -> Iterator[Alert]:
    """Yield the freshness alerts, of those that say the same of several machines only the oldest.

    An alert of a dead machine comes last, because it is archived.
    """
    same: dict[tuple[str, str], list[Alert]] = defaultdict(list)
    for alert in sorted(stale, key=lambda alert: (alert.machine in dead, alert.since, alert.machine)):
        same[alert.topic, alert.text].append(alert)
    for first, *others in same.values():
        yield replace(first, also_on=tuple(sorted({other.machine for other in others} - {first.machine})))


def _noted(alerts: Sequence[Alert], ranges: Ranges) -> list[Alert]:
    """Add to each alert the notes of its commits, if git knows its range."""
    recent = [alert for alert in alerts if alert.known and not alert.old]
    log = read_log(ranges.git, {commit for alert in recent for commit in alert.commits})
    known = {id(alert) for alert in recent} if log else set()
    return [replace(alert, notes=_notes(alert, log, ranges)) if id(alert) in known else alert for alert in alerts]


def _notes(alert: Alert, log: CommitLog, ranges: Ranges) -> tuple[CommitNote, ...]:
    facts = alert.cause.evidence
    names = [alert.members[0].series.variant, *(fact.kernel for fact in facts)]
    touching = {fact.after for fact in facts if fact.what == "commit"} if ranges.packages else set()
    noted = notes(alert.commits, log, ranges.packages, touching, alert.family, names)
    worst = alert.members[0].series
    benchmark = f"{worst.suite}.{worst.variant}"
    return with_benchmark_changes(noted, ranges.git, log, benchmark) if worst.foreign else noted
