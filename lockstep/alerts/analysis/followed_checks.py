"""Find changes in the results of correctness checks: the error, and whether two calls give the same bits.

The store has no separate series for checks, because their results are stored with the points of latencies. All cache
states of a case share one check, so only the check of the first cache state is followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lockstep.alerts.analysis.followed_series import Followed, by_version, name_of
from lockstep.detect import Change
from lockstep.detect import Trend as Values
from lockstep.detect.exact_changes import ROUNDING, determinism_changes, error_changes, positive
from lockstep.history.model import STATES, Floats, Trend
from lockstep.history.snapshot import Results
from lockstep.record.series_name import SeriesName

_COLUMNS = ("check_error", "deterministic")


def follow_checks(results: Results, trends: Sequence[Trend]) -> list[tuple[Followed, Sequence[Change]]]:
    """Return the checks of a machine that changed, each with its changes. ``trends`` are all trends of the machine."""
    changed: list[tuple[Followed, Sequence[Change]]] = []
    for trend, error, same in _read(results, _first_of_each_case(trends)):
        ok = (trend.state == STATES.index("ok")) & (trend.same_work_as == 0)
        for quantity, numbers in (("error", error), ("deterministic", same)):
            checked = replace(trend, value=numbers)
            for version, points in enumerate(by_version(checked, ok & np.isfinite(numbers))):
                if quantity == "error":
                    changes, values = error_changes(points.value), np.maximum(points.value, ROUNDING)
                else:
                    changes, values = determinism_changes(points.value), positive(points.value)
                if changes:
                    of = replace(name_of(points.series, points.benchmark), quantity=quantity)
                    changed.append((Followed(of, points, Values(values), version=version), changes))
    return changed


def _first_of_each_case(trends: Sequence[Trend]) -> list[Trend]:
    """Return one latency for each variant and case of Lockstep's suites."""
    first_trends: dict[SeriesName, Trend] = {}
    for trend in trends:
        if trend.benchmark.ours and not trend.benchmark.is_ratio:
            name = replace(name_of(trend.series, trend.benchmark), l2="")
            if name not in first_trends or trend.series.axis("l2") < first_trends[name].series.axis("l2"):
                first_trends[name] = trend
    return list(first_trends.values())


def _read(results: Results, trends: Sequence[Trend]) -> list[tuple[Trend, Floats, Floats]]:
    """Return each trend with the results of the checks at its points: errors, and 1 if deterministic or 0 if not.

    A result is NaN if unknown.
    """
    series = [trend.series for trend in trends]
    columns = results.columns(series[0].machine, _COLUMNS, series=series) if series else {}
    if not columns:
        return []
    machine_series = results.series(machine=series[0].machine)
    ranks, starts = np.unique(columns["rank"], return_index=True)
    error, same = (np.split(columns[name], starts[1:]) for name in _COLUMNS)
    places = {machine_series[rank]: place for place, rank in enumerate(ranks.tolist())}
    return [(trend, error[places[trend.series]], same[places[trend.series]]) for trend in trends]
