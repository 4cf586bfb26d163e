"""Read asv's result file of one machine, commit and environment as columns of points.

The file has the layout that ``asv.results.Results.save`` of asv 0.6.6 writes (``api_version`` 2). This module reads
every file that asv's own loader reads, but does not call that loader. For a faulty file, asv's loader raises any
exception (TypeError, AttributeError …), and it makes a Python object of every number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from lockstep.history.asv_file_header import read_head, updated
from lockstep.history.model import STATES, Floats, Run
from lockstep.history.point_columns import MOST_SAMPLES, FilePoints
from lockstep.history.problems import Problem
from lockstep.history.series_ids import Ids, Parameters, digest, series_ids
from lockstep.history.validation import Unreadable, finite, in_range, read_json, short_name, time_ms
from lockstep.record.quantity import QUANTITIES, SUITE_BENCHMARK

#: Maximum number of parameter combinations in a benchmark, and of points in a file. A file with more of them is a
#: mistake or an attack.
MOST_SERIES = 100_000
MOST_POINTS = 200_000

#: Name prefixes of asv's benchmarks whose values are always above zero, and of those whose values may also be zero.
_POSITIVE = re.compile(r"(time|timeraw)_|(Time|Timeraw)[A-Z_]")
_NOT_NEGATIVE = re.compile(r"(mem|peakmem)_|(Mem|PeakMem)[A-Z_]")

_OK, _BARE, _NA, _FAILED = (STATES.index(state) for state in ("ok", "bare", "na", "failed"))
_NUMBERS = {float, int, NoneType}
_STATS = {
    "low": "stats_ci_99_a",
    "high": "stats_ci_99_b",
    "q25": "stats_q_25",
    "q75": "stats_q_75",
    "number": "stats_number",
    "repeat": "stats_repeat",
}


@dataclass(frozen=True)
class AsvFile:
    """The content of one asv result file.

    ``series`` and ``versions`` map the numbers in the columns of these names to the parameters of the series and to the
    text of the benchmark version. The paths of ``problems`` are relative to the folder of the file.
    """

    run: Run
    points: FilePoints
    series: Mapping[int, Parameters]
    versions: Mapping[int, str]
    problems: tuple[Problem, ...]


def read_asv(path: Path, folders_machine: str = "") -> AsvFile:
    """Return the content of a result file, if asv's own loader would accept the file.

    Faulty values of a benchmark are left out or mended, and ``problems`` lists the faults.

    Args:
        folders_machine: the machine that ``machine.json`` in the same folder names; "" if unknown.

    Raises:
        Unreadable: the file is not an asv result.
        OSError: the file cannot be opened.
    """
    data, problems = updated(read_json(path), path.name)
    run, notes = read_head(data, path, folders_machine)
    columns, results = data.get("result_columns"), data.get("results")
    if not isinstance(columns, list) or not isinstance(results, dict):
        raise Unreadable("the file has no results or no result_columns")
    gathered = _PointCollector()
    problems += notes
    for benchmark, values in results.items():
        shown = short_name(benchmark)
        try:
            mended = gathered.add(shown, _by_column(columns, values))
        except Unreadable as error:
            what, reason = f"in benchmark {shown!r:.100}, {error}", f"in a benchmark, {error.reason}"
            problems.append(Problem(path.name, what, reason, "part"))
        else:
            problems += [
                Problem(path.name, f"in benchmark {shown!r:.100}, {change}", f"in a benchmark, {change}", "note")
                for change in mended
            ]
    points = gathered.points()
    newest = int(points["measured_at"].max(initial=0))
    run = replace(run, measured_at=newest, date=run.date or newest)
    return AsvFile(run, points, gathered.series, gathered.versions, tuple(problems))


def _by_column(columns: list[Any], values: Any) -> dict[str, Any]:
    """Return the values by column name. Values beyond the last column are ignored, as in asv."""
    if not isinstance(values, list):
        raise Unreadable("the entry is not a list of columns")
    return dict(zip(map(str, columns), values, strict=False))


class _PointCollector:
    """Collects the points of a file's benchmarks, and joins them into columns at the end."""

    def __init__(self) -> None:
        self.series: dict[int, Parameters] = {}
        self.versions: dict[int, str] = {}
        self._ids: list[Ids] = []
        self._sizes: list[int] = []
        self._of_benchmark: list[tuple[int, int, float, bool]] = []
        self._values: list[Any] = []
        self._stats: dict[str, list[Any]] = {part: [] for part in _STATS}
        self._samples: list[Any] = []
        self._sampled = False

    def add(self, benchmark: str, column: Mapping[str, Any]) -> list[str]:
        """Add the points of a benchmark. Return a description of each value that was mended.

        If an error is raised, nothing was added.

        Raises:
            Unreadable: the parameters are not a list of lists, or the benchmark or the file has too many numbers.
        """
        axes = column.get("params") or []
        if not isinstance(axes, list) or not all(isinstance(axis, list) for axis in axes):
            raise Unreadable("the parameters are not a list of lists")
        size = math.prod(map(len, axes))
        if size > MOST_SERIES:
            reason = f"the parameters have more than {MOST_SERIES} combinations, the limit"
            raise Unreadable(f"the parameters have {size} combinations, over the limit of {MOST_SERIES}", reason)
        if len(self._values) + size > MOST_POINTS:
            raise Unreadable(f"the numbers exceed the limit of {MOST_POINTS} for one file and are left out")
        values, mended = _fitted(_listed(column, "result"), size)
        stats = {part: _fitted(_listed(column, stored), size)[0] for part, stored in _STATS.items()}
        samples, _ = _fitted(_listed(column, "samples"), size)
        numbers, known = series_ids(benchmark, axes)
        if len(known) < len(numbers):
            # asv keeps the last of equal combinations, because it makes a dictionary of them.
            mended.append("a parameter has the same value twice; the last number counts")
            last = {number: place for place, number in enumerate(numbers.tolist())}
            numbers = np.array(list(last), dtype=np.int64)
            values, samples = ([listed[at] for at in last.values()] for listed in (values, samples))
            stats = {part: [listed[at] for at in last.values()] for part, listed in stats.items()}
        version = column.get("version")
        text = version if isinstance(version, str) and version.isprintable() and len(version) < 300 else ""
        number = digest(text)
        self._ids.append(numbers)
        self.series |= known
        self.versions[number] = text
        self._sizes.append(len(numbers))
        suite_match = SUITE_BENCHMARK.fullmatch(benchmark)
        exact = bool(suite_match and QUANTITIES[suite_match["quantity"]].exact)
        last_part = benchmark.rpartition(".")[2]
        least = -math.inf
        if (suite_match and not exact) or _POSITIVE.match(last_part):
            least = math.ulp(0.0)
        elif _NOT_NEGATIVE.match(last_part):
            least = 0.0
        self._of_benchmark.append((number, time_ms(column.get("started_at")), least, exact))
        self._values += values
        for part, listed in stats.items():
            self._stats[part] += listed
        self._samples += samples
        self._sampled |= column.get("samples") is not None
        return mended

    def points(self) -> FilePoints:
        """Return the points of all benchmarks as columns."""
        sizes = np.array(self._sizes, dtype=np.int64)
        version, started, least, exact = zip(*self._of_benchmark, strict=True) if self._of_benchmark else 4 * ((),)
        value, state, reasons = _states(self._values, np.repeat(np.array(least, dtype=np.float64), sizes))
        # An exact quantity needs no provenance record, because its number has no conditions.
        state[np.repeat(np.array(exact, dtype=bool), sizes) & (state == _BARE)] = _OK
        columns: dict[str, Any] = {
            "series": np.concatenate(self._ids) if self._ids else np.empty(0, np.int64),
            "version": np.repeat(np.array(version, dtype=np.int64), sizes),
            "state": state,
            "value": value,
            "measured_at": np.repeat(np.array(started, dtype=np.int64), sizes),
        }
        stats = {part: numbers(listed) for part, listed in self._stats.items() if listed.count(None) < len(listed)}
        columns |= {part: _counts(stats[part]) for part in ("number", "repeat") if part in stats}
        columns |= {part: stats[part] for part in ("q25", "q75") if part in stats}
        if "low" in stats and "high" in stats:
            columns["low"], columns["high"] = interval(value, stats["low"], stats["high"])
        if reasons:
            columns["reason"] = reasons
        if self._sampled:
            columns["samples"] = [sampled(samples) for samples in self._samples]
        return columns


def _listed(column: Mapping[str, Any], part: str) -> list[Any]:
    """Return the values of a column; an empty list if the column is absent, because asv omits a column of nulls."""
    values = column.get(part)
    if values is not None and not isinstance(values, list):
        raise Unreadable(f"the column {part!r} is not a list", "a column is not a list")
    return values or []


def _fitted(values: list[Any], size: int) -> tuple[list[Any], list[str]]:
    """Return exactly one value per combination of parameters, and a note if the number of values was wrong.

    Missing values become null, and surplus values are dropped, as in asv.
    """
    if not values or len(values) == size:
        return values or [None] * size, []
    comparison = "fewer" if len(values) < size else "more"
    return (values + [None] * (size - len(values)))[:size], [
        f"there are {comparison} values than combinations of parameters"
    ]


def numbers(values: list[Any]) -> Floats:
    """Return the values as floats, with NaN for values that are not finite numbers within the allowed range."""
    if set(map(type, values)) <= _NUMBERS:
        try:
            floats = np.array(values, dtype=np.float64)
        except OverflowError:  # the integer has more than 308 digits
            pass
        else:
            floats[~in_range(floats)] = np.nan
            return floats
    one_by_one = (finite(value) for value in values)
    return np.array([np.nan if value is None else value for value in one_by_one], dtype=np.float64)


def _states(values: list[Any], least: Floats) -> tuple[Floats, Any, list[str]]:
    """Return the values, their state codes, and the reason for each invalid value.

    NaN means that asv skipped the benchmark, and null that the benchmark failed. ``least`` has the smallest valid value
    for each value's benchmark.
    """
    floats = numbers(values)
    floats[floats < least] = np.nan
    state = np.full(len(values), _BARE, dtype=np.uint8)
    reasons: list[str] = []
    for place in np.flatnonzero(np.isnan(floats)):
        value = values[place]
        if isinstance(value, float) and math.isnan(value):
            state[place] = _NA
            continue
        state[place] = _FAILED
        if value is not None:
            reasons = reasons or [""] * len(values)
            kind = "positive" if least[place] > 0 else "finite and positive or zero" if least[place] == 0 else "finite"
            reasons[place] = f"{value!r:.40} is not a {kind} number"
    return floats, state, reasons


def _counts(values: Floats) -> Any:
    return np.nan_to_num(np.clip(values, 0, 2**31 - 1)).astype(np.int32)


def interval(value: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return both ends of each interval, with NaN for intervals that do not contain their value."""
    # An interval with one unknown end also becomes NaN, because a comparison with NaN is false.
    valid = (low <= value) & (value <= high)
    return np.where(valid, low, np.nan), np.where(valid, high, np.nan)


def sampled(values: Any) -> list[float]:
    """Return at most ``MOST_SAMPLES`` values of a list, at even steps, without those that are not finite numbers."""
    if not isinstance(values, list):
        return []
    thinned = values if len(values) <= MOST_SAMPLES else values[:: -(-len(values) // MOST_SAMPLES)]
    return [number for value in thinned if (number := finite(value)) is not None]
