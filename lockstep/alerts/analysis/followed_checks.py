"""Find changes in the results of correctness checks: the error, and whether two calls give the same bits.

The store has no separate series for checks, because their results are stored with the points of latencies. All cache
states of a case share one check, so only the check of the first cache state is followed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lockstep.alerts.analysis.followed_series import Followed, name_of, select
from lockstep.detect import Change
from lockstep.detect import Trend as Values
from lockstep.detect.check_changes import ROUNDING, determinism_changes, error_changes
from lockstep.detect.exact_changes import positive
from lockstep.history.model import STATES, Floats, Trend
from lockstep.history.snapshot import Results
from lockstep.record.series_name import SeriesName

_COLUMNS = ("check_error", "deterministic")


def follow_checks(
    results: Results, trends: Sequence[Trend], baselines: Mapping[str, str]
) -> list[tuple[Followed, Sequence[Change]]]:
    """Return the checks of a machine that changed, each with its changes.

    Args:
        trends: all trends of a machine.
        baselines: the baseline of each Lockstep suite, by suite.
    """
    checks = _read(results, _first_of_each_case(trends))
    known = {
        name: dict(zip(trend.commit.tolist(), error.tolist(), strict=True))
        for name, (trend, error, _) in checks.items()
        if name.variant == baselines.get(name.suite)
    }
    changed: list[tuple[Followed, Sequence[Change]]] = []
    for name, (trend, error, same) in checks.items():
        baseline = replace(name, variant=baselines.get(name.suite, ""))
        base = {} if name in known else known.get(baseline, {})
        ok = (trend.state == STATES.index("ok")) & (trend.same_work_as == 0)
        for version, points in enumerate(_by_version(trend, error, ok)):
            baseline_errors = np.array([base.get(commit, math.nan) for commit in points.commit.tolist()])
            changes = error_changes(points.value, baseline_errors)
            changed.append(_followed("error", points, np.maximum(points.value, ROUNDING), changes, version))
        for version, points in enumerate(_by_version(trend, same, ok)):
            changes = determinism_changes(points.value)
            changed.append(_followed("deterministic", points, positive(points.value), changes, version))
    return [(series, changes) for series, changes in changed if changes]


def _first_of_each_case(trends: Sequence[Trend]) -> dict[SeriesName, Trend]:
    """Return one latency for each variant and case of Lockstep's suites, by its name without the cache state."""
    first_trends: dict[SeriesName, Trend] = {}
    for trend in trends:
        if trend.benchmark.ours and not trend.benchmark.is_ratio:
            name = replace(name_of(trend.series, trend.benchmark), l2="")
            if name not in first_trends or trend.series.axis("l2") < first_trends[name].series.axis("l2"):
                first_trends[name] = trend
    return first_trends


def _read(results: Results, trends: Mapping[SeriesName, Trend]) -> dict[SeriesName, tuple[Trend, Floats, Floats]]:
    """Return each trend with the results of the checks at its points: errors, and 1 if deterministic or 0 if not.

    A result is NaN if unknown.
    """
    series = [trend.series for trend in trends.values()]
    columns = results.columns(series[0].machine, _COLUMNS, series=series) if series else {}
    if not columns:
        return {}
    machine_series = results.series(machine=series[0].machine)
    ranks, starts = np.unique(columns["rank"], return_index=True)
    error, same = (np.split(columns[name], starts[1:]) for name in _COLUMNS)
    places = {machine_series[rank]: place for place, rank in enumerate(ranks.tolist())}
    return {name: (trend, error[places[trend.series]], same[places[trend.series]]) for name, trend in trends.items()}


def _by_version(trend: Trend, numbers: Floats, ok: Any) -> Iterator[Trend]:
    """Yield one trend per benchmark version, with ``numbers`` as values and only points that have a number."""
    known = ok & np.isfinite(numbers)
    for version in dict.fromkeys(trend.version[known].tolist()):
        yield select(replace(trend, value=numbers), known & (trend.version == version))


def _followed(
    quantity: str, points: Trend, values: Floats, changes: Sequence[Change], version: int
) -> tuple[Followed, Sequence[Change]]:
    name = replace(name_of(points.series, points.benchmark), quantity=quantity)
    return Followed(name, points, Values(values), version=version), changes
