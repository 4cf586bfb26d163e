"""Find changes in the results of correctness checks: the error, and whether two calls give the same bits.

The store has no separate series for checks, because their results are stored with the points of latencies. All cache
states of a case share one check, so only the check of the first cache state is followed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lockstep.alerts.analysis.followed_series import Followed, name_of, select
from lockstep.detect import Change
from lockstep.detect import Trend as Values
from lockstep.detect.check_changes import AGREEING, PART, ROUNDING, STEP, determinism_changes, error_changes
from lockstep.detect.exact_changes import positive
from lockstep.history.model import STATES, Floats, Series, SeriesKey, Trend
from lockstep.history.row_keys import key_of
from lockstep.history.snapshot import Results

#: Number of series that are read at once, which limits memory: a point takes a hundred bytes.
_AT_ONCE = 500

_COLUMNS = ("check_error", "deterministic")


@dataclass(frozen=True)
class Checks:
    """The changes in the checks of a machine, and the state from which the next analysis continues.

    Attributes:
        changed: the series of checks that changed, with their changes, by row.
        state: for each followed latency, by its number as text, a list of four numbers: the mean logarithm of the
            errors since the last change; the number of these errors; 1 if the variant is deterministic, 0 if not, −1 if
            unknown; the number of newest consecutive checks with equal bits.
    """

    changed: Mapping[str, tuple[Followed, Sequence[Change]]]
    state: Mapping[str, Sequence[float]]


def follow_checks(results: Results, trends: Sequence[Trend], baselines: Mapping[str, str]) -> Checks:
    """Find the changes in all checks of a machine, from all of its points.

    Args:
        trends: all trends of a machine.
        baselines: the baseline of each Lockstep suite, by suite.
    """
    latencies = _first_of_each_case(trends)
    names = {key: trend for key, trend in latencies.items() if key.variant == baselines.get(key.suite)}
    of_baseline = {
        key: dict(zip(trend.commit.tolist(), error.tolist(), strict=True))
        for key, (trend, error, _) in zip(names, _read(results, list(names.values())), strict=True)
    }
    changed: dict[str, tuple[Followed, Sequence[Change]]] = {}
    state: dict[str, Sequence[float]] = {}
    for (key, trend), (_, error, same) in zip(latencies.items(), _read(results, list(latencies.values())), strict=True):
        base = of_baseline.get(key.of(baselines.get(key.suite, "")), {}) if key not in names else {}
        ok = trend.state == STATES.index("ok")
        versions = list(_by_version(trend, error, ok))
        level = None
        for place, points in enumerate(versions):
            baseline_errors = np.array([base.get(commit, math.nan) for commit in points.commit.tolist()])
            changes, level = error_changes(points.value, baseline_errors)
            _add(changed, "error", points, np.maximum(points.value, ROUNDING), changes, place)
        last: Floats = np.empty(0)
        for place, points in enumerate(_by_version(trend, same, ok)):
            last = points.value
            _add(changed, "deterministic", points, positive(last), determinism_changes(last), place)
        mean = (level.mean, level.points) if level else (0.0, 0)
        state[str(results.number(trend.series))] = [*mean, *_bits(last)]
    return Checks(changed, state)


def continued(
    state: Mapping[str, Sequence[float]], results: Results, machine: str, new_commits: int
) -> Mapping[str, Sequence[float]] | None:
    """Return ``Checks.state`` after the newest commits, without reading older points.

    ``None`` if one of the new checks may be a change. Then ``follow_checks`` has to read all points.

    Args:
        state: the state before the newest commits.
        new_commits: the number of the newest commits.
    """
    if not any(benchmark.ours for benchmark in results.benchmarks.values()):
        return state
    entries = {number: list(entry) for number, entry in state.items()}
    series = results.series(machine=machine)
    for commit in results.commits(machine)[-new_commits:]:
        columns = results.columns(machine, _COLUMNS, commit.hash)
        if not columns:
            continue
        known = (columns["state"] == STATES.index("ok")) & ~(
            np.isnan(columns["check_error"]) & np.isnan(columns["deterministic"])
        )
        for at in np.flatnonzero(known).tolist():
            entry = entries.get(str(results.number(series[int(columns["rank"][at])])))
            if entry is not None and not _extend(entry, columns["check_error"][at], columns["deterministic"][at]):
                return None
    return entries


def _extend(entry: list[float], error: float, same: float) -> bool:
    """Add one check to the state of a latency's checks, in place. Return ``False`` if the check may be a change."""
    if not math.isnan(error):
        log_error = math.log(max(error, ROUNDING))
        if not entry[1] or abs(log_error - entry[0]) >= PART * STEP:
            return False
        entry[1] += 1
        entry[0] += (log_error - entry[0]) / entry[1]
    if math.isnan(same):
        return True
    agreeing = entry[3] + 1 if same else 0
    # A nondeterministic variant counts as deterministic again after ``AGREEING`` consecutive checks with equal bits.
    # That is a change.
    if entry[2] < 0 or (entry[2] == 1 and not same) or (entry[2] == 0 and agreeing >= AGREEING):
        return False
    entry[3] = agreeing
    return True


def _bits(same: Floats) -> tuple[float, float]:
    if not len(same):
        return -1.0, 0.0
    changes = determinism_changes(same)
    now = changes[-1].sense == "better" if changes else bool(same[0])
    agreeing = next((place for place, equal in enumerate(same[::-1].tolist()) if not equal), len(same))
    return float(now), float(agreeing)


def _first_of_each_case(trends: Sequence[Trend]) -> dict[SeriesKey, Trend]:
    """Return one latency for each variant and case of Lockstep's suites, by its key without the cache state."""
    first_trends: dict[SeriesKey, Trend] = {}
    for trend in trends:
        if trend.benchmark.ours and not trend.benchmark.is_ratio:
            key = key_of(trend.series, trend.benchmark)._replace(l2="")
            if key not in first_trends or trend.series.axis("l2") < first_trends[key].series.axis("l2"):
                first_trends[key] = trend
    return first_trends


def _read(results: Results, trends: Sequence[Trend]) -> Iterator[tuple[Trend, Floats, Floats]]:
    """Yield each trend with the results of the checks at its points: errors, and 1 if deterministic or 0 if not.

    A result is NaN if unknown.
    """
    for first in range(0, len(trends), _AT_ONCE):
        batch = trends[first : first + _AT_ONCE]
        machine = batch[0].series.machine
        columns = results.columns(machine, _COLUMNS, series=[trend.series for trend in batch])
        places: dict[Series, Any] = {}
        machine_series = results.series(machine=machine)
        ranks, starts = np.unique(columns["rank"], return_index=True)
        ends = [*starts[1:].tolist(), len(columns["rank"])]
        for rank, start, end in zip(ranks.tolist(), starts.tolist(), ends, strict=True):
            places[machine_series[rank]] = slice(start, end)
        for trend in batch:
            rows = places[trend.series]
            yield trend, columns["check_error"][rows], columns["deterministic"][rows]


def _by_version(trend: Trend, numbers: Floats, ok: Any) -> Iterator[Trend]:
    """Yield one trend per benchmark version, with ``numbers`` as values and only points that have a number."""
    known = ok & np.isfinite(numbers)
    for version in dict.fromkeys(trend.version[known].tolist()):
        yield select(replace(trend, value=numbers), known & (trend.version == version))


def _add(
    changed: dict[str, tuple[Followed, Sequence[Change]]],
    quantity: str,
    points: Trend,
    values: Floats,
    changes: Sequence[Change],
    index: int,
) -> None:
    if changes:
        name = replace(name_of(points.series, points.benchmark), quantity=quantity)
        better = Values(values, None, "higher" if quantity == "deterministic" else "lower")
        followed_series = Followed(name, points, better, place=index)
        changed[followed_series.row] = followed_series, changes
