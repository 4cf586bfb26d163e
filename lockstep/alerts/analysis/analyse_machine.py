"""Analyse one machine: find the changes of its followed series with their causes, and what stopped reporting.

The stored analysis of the same results is returned as it is. Otherwise all points are read, and the detector continues
each series from its stored state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from lockstep.alerts.analysis.analysis_file import AnalysisFile
from lockstep.alerts.analysis.detection import detect
from lockstep.alerts.analysis.followed_checks import follow_checks
from lockstep.alerts.analysis.followed_series import (
    Followed,
    common_baselines,
    followed,
    newest_baselines,
)
from lockstep.alerts.analysis.freshness import freshness
from lockstep.alerts.analysis.reports import machine_reports
from lockstep.alerts.analysis.step_facts import StepBuilder
from lockstep.alerts.analysis.stored_analysis import (
    DetectedSeries,
    MachineAnalysis,
    read_analysis,
    read_detected,
    write_analysis,
)
from lockstep.alerts.cause.attribution import explained
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.detect import Change
from lockstep.detect.exact_changes import exact_changes
from lockstep.history.snapshot import Results


def analyse_machine(
    results: Results, machine: str, ranges: Ranges, file: AnalysisFile, processes: int = 1
) -> MachineAnalysis:
    """Find the changes of a machine's series with their causes, and its freshness alerts.

    Args:
        file: the file that holds the last analysis, and receives this one.
        processes: the number of processes that share the series.
    """
    hashes = [commit.hash for commit in results.commits(machine)]
    ranges.learn(hashes)
    # The repository may have been fetched or completed since the last analysis, and then knows more ranges.
    state, known_ranges = results.state(machine), f"{ranges.text}\n{ranges.lacking(hashes)}"
    stored = read_analysis(file, machine, state, known_ranges)
    if stored is None:
        stored, detected = _analysed(results, machine, ranges, file, processes)
        write_analysis(file, stored, state, known_ranges, detected)
    return stored


def _analysed(
    results: Results, machine: str, ranges: Ranges, file: AnalysisFile, processes: int
) -> tuple[MachineAnalysis, Sequence[DetectedSeries]]:
    order = {series: place for place, series in enumerate(results.series(machine=machine))}
    trends = sorted(results.trends(order), key=lambda trend: order[trend.series])
    baselines = common_baselines(
        (results.benchmarks[series.benchmark].suite, text)
        for series, text in newest_baselines(results, machine).items()
    )
    series = followed(trends, results.numbers(machine), baselines)
    noisy = [one_series for one_series in series if not one_series.trend.benchmark.exact]
    detected = detect(noisy, read_detected(file, machine), processes)
    found: list[tuple[Followed, Sequence[Change]]] = [
        *((replace(one, noise=state.noise), state.changes) for one, state in zip(noisy, detected, strict=True)),
        *((one_series, _exact(one_series)) for one_series in series if one_series.trend.benchmark.exact),
        *follow_checks(results, trends, baselines),
    ]
    builder = StepBuilder(results, machine, ranges)
    changes = tuple(
        explained(builder.step(one_series, change)) for one_series, series_changes in found for change in series_changes
    )
    reports = machine_reports(results, machine, trends)
    counts = Counter(
        (report.series.family, report.series.suite) for report in reports.series if report.last_number is not None
    )
    return MachineAnalysis(machine, changes, tuple(freshness(reports)), counts), detected


def _exact(followed_series: Followed) -> Sequence[Change]:
    """Return the changes of an exact series. Noise does not hide them, and later points do not move them."""
    return exact_changes(followed_series.values.values, followed_series.values.better)
