"""Analyse one machine: find the changes of its followed series with their causes, and what stopped reporting.

The stored analysis of the same results is returned as it is. Otherwise all points are read, and the detector continues
each series from its stored state.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lockstep.alerts.analysis.analysis_file import AnalysisFile, DetectedSeries, Known, MachineAnalysis
from lockstep.alerts.analysis.followed_checks import follow_checks
from lockstep.alerts.analysis.followed_series import Followed, common_baselines, followed
from lockstep.alerts.analysis.step_facts import StepBuilder
from lockstep.alerts.analysis.stopped_series import freshness, machine_reports
from lockstep.alerts.cause.attribution import explained
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.detect import Analysis, Change, Trend, continue_many
from lockstep.detect.exact_changes import exact_changes
from lockstep.detect.series_state import SeriesState
from lockstep.history.model import Commit
from lockstep.history.snapshot import Results

#: Number of new points from which a second process is worth its start. Half a second suffices for this many points.
PARALLEL_POINTS = 50_000


def analyse_machine(results: Results, machine: str, ranges: Ranges, file: AnalysisFile) -> MachineAnalysis:
    """Find the changes of a machine's series with their causes, and its freshness alerts.

    Args:
        file: the file that holds the last analysis, and receives this one.
    """
    commits = results.commits(machine)
    hashes = [commit.hash for commit in commits]
    ranges.learn(hashes)
    # The repository may have been fetched or completed since the last analysis, and then knows more ranges.
    state, known_ranges = results.state(machine), f"{ranges.text}\n{ranges.lacking(hashes)}"
    stored = file.newest(machine, state, known_ranges)
    if stored is None:
        stored, detected = _analysed(results, machine, commits, ranges, file)
        file.add(stored, state, known_ranges, detected)
    return stored


def _analysed(
    results: Results, machine: str, commits: Sequence[Commit], ranges: Ranges, file: AnalysisFile
) -> tuple[MachineAnalysis, Sequence[DetectedSeries]]:
    order = {series: place for place, series in enumerate(results.series(machine=machine))}
    trends = sorted(results.trends(order), key=lambda trend: order[trend.series])
    series = followed(trends, results.numbers(machine), common_baselines(results, machine))
    noisy = [one for one in series if not one.trend.benchmark.exact]
    detected = _detect(noisy, file.known(machine))
    found: list[tuple[Followed, Sequence[Change]]] = [
        *((replace(one, noise=state.noise), _listed(state.found)) for one, state in zip(noisy, detected, strict=True)),
        # Noise does not hide the changes of an exact series, and later points do not move them.
        *((one, exact_changes(one.values.values)) for one in series if one.trend.benchmark.exact),
        *follow_checks(results, trends),
    ]
    builder = StepBuilder(results, machine, commits, ranges)
    changes = tuple(
        explained(builder.step(one_series, change)) for one_series, series_changes in found for change in series_changes
    )
    reports = list(machine_reports(trends))
    counts = Counter((report.series.family, report.series.suite) for report in reports)
    measured: dict[str, set[int]] = defaultdict(set)
    for trend in trends:
        measured[trend.benchmark.family].update(trend.commit.tolist())
    dated = [(commit.hash, commit.date) for commit in commits]
    return MachineAnalysis(machine, changes, tuple(freshness(machine, dated, reports, measured)), counts), detected


def _listed(found: Analysis) -> Sequence[Change]:
    """Return the changes of a series, and after them the step that no third point has confirmed yet."""
    return found.changes if found.unconfirmed is None else (*found.changes, found.unconfirmed)


def _detect(series: Sequence[Followed], known: Mapping[tuple[int, int], Known]) -> list[DetectedSeries]:
    """Return what the detector finds in each series. A known series is continued if its first points are the same.

    Args:
        known: what the last analysis left, by the number of the series and the index of its benchmark version.
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
