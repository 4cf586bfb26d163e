"""Read asv's result file of one machine, commit and environment as columns of points.

The file has the layout that ``asv.results.Results.save`` of asv 0.6.6 writes (``api_version`` 2). This module reads
every file that asv's own loader reads, but does not call that loader. For a faulty file, asv's loader raises any
exception (TypeError, AttributeError …), and it makes a Python object of every number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from lockstep.history.asv_file_header import OLD_FORMAT, read_head, updated
from lockstep.history.model import STATES, Floats, Run
from lockstep.history.point_columns import MOST_SAMPLES, FilePoints
from lockstep.history.series_ids import Ids, Parameters, digest, series_ids
from lockstep.history.validation import Problem, Unreadable, Weight, finite, in_range, read_json, short_name, time_ms
from lockstep.record.quantity import QUANTITIES, SUITE_BENCHMARK

#: Maximum number of parameter combinations in a benchmark, and of points in a file. A file with more of them is a
#: mistake or an attack.
MOST_SERIES = 100_000
MOST_POINTS = 200_000

#: Name prefixes of asv's benchmarks whose values are always above zero, and of those whose values may also be zero.
_POSITIVE = re.compile(r"(time|timeraw)_|(Time|Timeraw)[A-Z_]")
_NOT_NEGATIVE = re.compile(r"(mem|peakmem)_|(Mem|PeakMem)[A-Z_]")

_OK, _BARE, _NA, _FAILED = (STATES.index(state) for state in ("ok", "bare", "na", "failed"))
_KINDS = {math.ulp(0.0): "positive", 0.0: "finite and positive or zero"}
_OF_BENCHMARK = [("size", int), ("version", np.int64), ("started_at", np.int64), ("least", float), ("exact", bool)]
_NOTE: Weight = "note"
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
    data, problems = read_json(path), list[Problem]()
    if not isinstance(data, dict) or isinstance(data.get("version"), bool) or data.get("version") not in (1, 2):
        raise Unreadable("the file is not an asv result of version 1 or 2")
    if data["version"] == 1:
        data, problems = updated(data), [Problem(path.name, OLD_FORMAT, weight="note")]
    run, notes = read_head(data, path, folders_machine)
    columns, results = data.get("result_columns"), data.get("results")
    if not isinstance(columns, list) or not isinstance(results, dict):
        raise Unreadable("the file has no results or no result_columns")
    gathered = _PointCollector()
    problems += notes
    for benchmark, values in results.items():
        shown, weight = short_name(benchmark), _NOTE
        try:
            if not isinstance(values, list):
                raise Unreadable("the entry is not a list of columns")
            # Values beyond the last column are ignored, as in asv.
            mended = gathered.add(shown, dict(zip(map(str, columns), values, strict=False)))
            found = [(change, change) for change in mended]
        except Unreadable as error:
            found, weight = [(str(error), error.reason)], "part"
        problems += [
            Problem(path.name, f"in benchmark {shown!r:.100}, {what}", f"in a benchmark, {reason}", weight)
            for what, reason in found
        ]
    points = gathered.points()
    newest = int(points["measured_at"].max(initial=0))
    run = replace(run, measured_at=newest, date=run.date or newest)
    return AsvFile(run, points, gathered.series, gathered.versions, tuple(problems))


class _PointCollector:
    """Collects the points of a file's benchmarks, and joins them into columns at the end."""

    def __init__(self) -> None:
        self.series: dict[int, Parameters] = {}
        self.versions: dict[int, str] = {}
        self._ids: list[Ids] = []
        #: For each benchmark, its number of points, its version, its time, its least valid value, whether it is exact.
        self._of_benchmark: list[tuple[int, int, int, float, bool]] = []
        self._values: dict[str, list[Any]] = {part: [] for part in ("result", "samples", *_STATS.values())}

    def add(self, benchmark: str, row: Mapping[str, Any]) -> list[str]:
        """Add the points of a benchmark. Return a description of each value that was mended.

        If an error is raised, nothing was added. Missing values become null, and surplus values are dropped, as in asv.

        Raise ``Unreadable`` if the parameters are not a list of lists, or the benchmark or the file has too many
        numbers.
        """
        axes = row.get("params") or []
        if not isinstance(axes, list) or not all(isinstance(axis, list) for axis in axes):
            raise Unreadable("the parameters are not a list of lists")
        size = math.prod(map(len, axes))
        if size > MOST_SERIES:
            reason = f"the parameters have more than {MOST_SERIES} combinations, the limit"
            raise Unreadable(f"the parameters have {size} combinations, over the limit of {MOST_SERIES}", reason)
        if len(self._values["result"]) + size > MOST_POINTS:
            raise Unreadable(f"the numbers exceed the limit of {MOST_POINTS} for one file and are left out")
        listed: dict[str, list[Any]] = {part: row.get(part) or [None] * size for part in self._values}
        if wrong := [part for part, values in listed.items() if not isinstance(values, list)]:
            raise Unreadable(f"the column {wrong[0]!r} is not a list", "a column is not a list")
        mended = []
        if len(listed["result"]) != size:
            comparison = "fewer" if len(listed["result"]) < size else "more"
            mended.append(f"there are {comparison} values than combinations of parameters")
        numbers, known = series_ids(benchmark, axes)
        places: Iterable[int] = range(size)
        if len(known) < len(numbers):
            # asv keeps the last of equal combinations, because it makes a dictionary of them.
            mended.append("a parameter has the same value twice; the last number counts")
            last = {number: place for place, number in enumerate(numbers.tolist())}
            numbers, places = np.array(list(last), dtype=np.int64), last.values()
        for part, values in listed.items():
            whole = len(values) == len(numbers) == size
            self._values[part] += values if whole else [values[at] if at < len(values) else None for at in places]
        version = row.get("version")
        text = version if isinstance(version, str) and version.isprintable() and len(version) < 300 else ""
        self._ids.append(numbers)
        self.series |= known
        self.versions[digest(text)] = text
        suite_match = SUITE_BENCHMARK.fullmatch(benchmark)
        exact = bool(suite_match and QUANTITIES[suite_match["quantity"]].exact)
        last_part = benchmark.rpartition(".")[2]
        positive = (suite_match and not exact) or _POSITIVE.match(last_part)
        least = math.ulp(0.0) if positive else 0.0 if _NOT_NEGATIVE.match(last_part) else -math.inf
        self._of_benchmark.append((len(numbers), digest(text), time_ms(row.get("started_at")), least, exact))
        return mended

    def points(self) -> FilePoints:
        """Return the points of all benchmarks as columns.

        NaN means that asv skipped the benchmark, and null that the benchmark failed.
        """
        of_benchmark = np.array(self._of_benchmark, dtype=_OF_BENCHMARK)
        of_point = np.repeat(of_benchmark, of_benchmark["size"])
        values, least = self._values["result"], of_point["least"]
        floats = numbers(values)
        floats[floats < least] = np.nan
        # An exact quantity needs no provenance record, because its number has no conditions.
        state = np.where(of_point["exact"], _OK, _BARE).astype(np.uint8)
        columns: dict[str, Any] = {
            "series": np.concatenate(self._ids) if self._ids else np.empty(0, np.int64),
            "version": of_point["version"],
            "state": state,
            "value": floats,
            "measured_at": of_point["started_at"],
        }
        for place in np.flatnonzero(np.isnan(floats)):
            value = values[place]
            skipped = isinstance(value, float) and math.isnan(value)
            state[place] = _NA if skipped else _FAILED
            if value is not None and not skipped:
                kind = _KINDS.get(least[place], "finite")
                columns.setdefault("reason", [""] * len(values))[place] = f"{value!r:.40} is not a {kind} number"
        lists = {part: self._values[stored] for part, stored in _STATS.items()}
        stats = {part: numbers(listed) for part, listed in lists.items() if listed.count(None) < len(listed)}
        for part in ("number", "repeat"):
            if part in stats:
                columns[part] = np.nan_to_num(np.clip(stats[part], 0, 2**31 - 1)).astype(np.int32)
        columns |= {part: stats[part] for part in ("q25", "q75") if part in stats}
        if "low" in stats and "high" in stats:
            # An interval with one unknown end also becomes NaN, because a comparison with NaN is false.
            valid = (stats["low"] <= floats) & (floats <= stats["high"])
            # An interval of few samples is symmetric, and may reach below zero in a time. The file does not state what
            # a quantity can be, but a quarter of its samples shows it. No clipped interval: its end would be invented.
            valid &= np.sign(stats["low"]) >= np.sign(np.fmin(stats.get("q25", floats), floats))
            columns |= {end: np.where(valid, stats[end], np.nan) for end in ("low", "high")}
        samples = self._values["samples"]
        if samples.count(None) < len(samples):
            columns["samples"] = [sampled(values) for values in samples]
        return columns


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


def sampled(values: Any) -> list[float]:
    """Return at most ``MOST_SAMPLES`` values of a list, at even steps, without those that are not finite numbers."""
    if not isinstance(values, list):
        return []
    thinned = values if len(values) <= MOST_SAMPLES else values[:: -(-len(values) // MOST_SAMPLES)]
    return [number for value in thinned if (number := finite(value)) is not None]
