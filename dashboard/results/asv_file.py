"""asv's file of one machine, commit and environment, as columns of points.

The layout is what ``asv.results.Results.save`` of asv 0.6.6 writes (``api_version`` 2). asv's own loader
is not used: it raises what it meets (TypeError, AttributeError …) and makes an object of every number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from dashboard.results.columns import FilePoints
from dashboard.results.guards import LATEST_TIME, Unreadable, finite, in_range, name, read_json, time_ms
from dashboard.results.model import STATES, Floats
from dashboard.results.series_ids import Ids, SeriesIds, digest

#: A benchmark with more combinations of parameters, and a file with more points, is a mistake or an attack.
MOST_SERIES = 100_000
MOST_POINTS = 200_000

#: Samples of a point that are kept.
MOST_SAMPLES = 100

#: The two benchmarks that ``lockstep.suite.Suite.series`` makes of a suite.
OURS = re.compile(
    r"(?P<family>[\w.]+)\.(?:(?!time_|timeraw_|track_|mem_|peakmem_)(?P<op>\w+)_)?(?P<quantity>latency|speedup)"
)

#: asv's prefixes of what cannot be zero or less.
_POSITIVE = re.compile(r"(time|timeraw|mem|peakmem)_|(Time|Timeraw|Mem|PeakMem)[A-Z_]")

_BARE, _NA, _FAILED = (STATES.index(state) for state in ("bare", "na", "failed"))
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
class Head:
    """What all points of a file share; the date is in ms since 1970."""

    machine: str
    environment: str
    commit: str
    date: int
    python: str = ""
    requirements: Mapping[str, str] = field(default_factory=dict)
    strings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AsvFile:
    """What one file says. ``versions`` maps the numbers in the column "version" to their texts."""

    head: Head
    points: FilePoints
    versions: Mapping[int, str]
    complaints: tuple[str, ...]


def read_asv(path: Path, ids: SeriesIds) -> AsvFile:
    """Read a result file; what is wrong with single benchmarks is told in ``complaints`` and left out.

    Raises:
        Unreadable: the file as a whole is not a result of the machine and commit that its path names.
        OSError: it cannot be opened.
    """
    data = read_json(path)
    head = _head(data, path)
    columns, results = data.get("result_columns"), data.get("results")
    if not isinstance(columns, list) or not isinstance(results, dict):
        raise Unreadable("has no results or no result_columns")
    gathered = _Gathered()
    complaints = []
    for benchmark, values in results.items():
        try:
            gathered.add(name(benchmark), _by_column(columns, values), ids)
        except Unreadable as error:
            complaints.append(f"{benchmark!r:.100} {error}")
    return AsvFile(head, gathered.points(), gathered.versions, tuple(complaints))


def _head(data: Any, path: Path) -> Head:
    if not isinstance(data, dict) or data.get("version") != 2:
        if isinstance(data, dict) and data.get("version") == 1:
            raise Unreadable("is in asv's format of old: run `asv update` over these results")
        raise Unreadable("is not an asv result of version 2")
    commit, date, parameters = data.get("commit_hash"), data.get("date"), data.get("params")
    if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", commit):
        raise Unreadable("has no full hash as commit_hash")
    if not path.name.startswith(f"{commit[:8]}-"):
        raise Unreadable(f"is named after another commit than the {commit[:8]} in it")
    if not isinstance(date, int) or isinstance(date, bool) or not 0 <= date < LATEST_TIME:
        raise Unreadable("has a date that is not a time in milliseconds")
    machine = parameters.get("machine") if isinstance(parameters, dict) else None
    if machine != path.parent.name:
        raise Unreadable(f"says it is of machine {machine!r:.60}, not of the one whose folder it lies in")
    strings = {key: value for key, value in _strings(parameters).items() if key not in ("machine", "python")}
    requirements = _strings(data.get("requirements"))
    python = _strings({"python": data.get("python")}).get("python", "")
    return Head(name(machine), name(data.get("env_name")), commit, date, python, requirements, strings)


def _strings(values: Any) -> dict[str, str]:
    """The printable texts of an object; others are of no use as facts."""
    if not isinstance(values, dict):
        return {}
    texts = {key: value for key, value in list(values.items())[:200] if isinstance(value, str)}
    return {key: value for key, value in texts.items() if f"{key}{value}".isprintable() and len(key + value) < 600}


def _by_column(columns: list[Any], values: Any) -> dict[str, Any]:
    if not isinstance(values, list) or len(values) > len(columns):
        raise Unreadable("has other columns than result_columns")
    return dict(zip(map(str, columns), values, strict=False))


class _Gathered:
    """Columns of a file's benchmarks: lists while they come, arrays when all are there."""

    def __init__(self) -> None:
        self.versions: dict[int, str] = {}
        self._ids: list[Ids] = []
        self._sizes: list[int] = []
        self._of_benchmark: list[tuple[int, int, bool]] = []
        self._values: list[Any] = []
        self._stats: dict[str, list[Any]] = {part: [] for part in _STATS}
        self._samples: list[Any] = []
        self._sampled = False

    def add(self, benchmark: str, column: Mapping[str, Any], ids: SeriesIds) -> None:
        """Take in one benchmark, or nothing of it.

        Raises:
            Unreadable: its columns do not fit its parameters.
        """
        axes = column.get("params") or []
        if not isinstance(axes, list) or not all(isinstance(axis, list) for axis in axes):
            raise Unreadable("has parameters that are not a list of lists")
        size = math.prod(map(len, axes))
        if size > MOST_SERIES:
            raise Unreadable(f"has {size} combinations of parameters, more than {MOST_SERIES}")
        if len(self._values) + size > MOST_POINTS:
            raise Unreadable(f"is left out: the file holds more than {MOST_POINTS} numbers")
        values = _column(column, "result", size)
        stats = {part: _column(column, stored, size) for part, stored in _STATS.items()}
        samples = _column(column, "samples", size)
        version = column.get("version")
        text = version if isinstance(version, str) and version.isprintable() and len(version) < 300 else ""
        number = digest(text)
        self._ids.append(ids.of(benchmark, axes))
        self.versions[number] = text
        self._sizes.append(size)
        must_be_positive = bool(OURS.fullmatch(benchmark) or _POSITIVE.match(benchmark.rpartition(".")[2]))
        self._of_benchmark.append((number, time_ms(column.get("started_at")), must_be_positive))
        self._values += values
        for part, listed in stats.items():
            self._stats[part] += listed
        self._samples += samples
        self._sampled |= column.get("samples") is not None

    def points(self) -> FilePoints:
        """All benchmarks' points as columns."""
        sizes = np.array(self._sizes, dtype=np.int64)
        version, started, positive = zip(*self._of_benchmark, strict=True) if self._of_benchmark else ((), (), ())
        value, state, reasons = _states(self._values, np.repeat(np.array(positive, dtype=bool), sizes))
        columns: dict[str, Any] = {
            "series": np.concatenate(self._ids) if self._ids else np.empty(0, np.int64),
            "version": np.repeat(np.array(version, dtype=np.int64), sizes),
            "state": state,
            "value": value,
            "measured_at": np.repeat(np.array(started, dtype=np.int64), sizes),
        }
        stats = {part: numbers(listed) for part, listed in self._stats.items() if any(map(_something, listed))}
        columns |= {part: _counts(stats[part]) for part in ("number", "repeat") if part in stats}
        columns |= {part: stats[part] for part in ("q25", "q75") if part in stats}
        if "low" in stats and "high" in stats:
            columns["low"], columns["high"] = interval(value, stats["low"], stats["high"])
        if reasons:
            columns["reason"] = reasons
        if self._sampled:
            columns["samples"] = [sampled(one) for one in self._samples]
        return FilePoints(columns)


def _something(value: Any) -> bool:
    return value is not None


def _column(column: Mapping[str, Any], part: str, size: int) -> list[Any]:
    """One value a combination; asv leaves out a column that holds nothing but null."""
    values = column.get(part)
    if values is None:
        return [None] * size
    if not isinstance(values, list) or len(values) != size:
        raise Unreadable(f"does not have one {part} for each of {size} combinations of parameters")
    return values


def numbers(values: list[Any]) -> Floats:
    """Finite numbers of a usual size as floats, NaN for everything else."""
    if set(map(type, values)) <= _NUMBERS:
        try:
            found = np.array(values, dtype=np.float64)
        except OverflowError:  # an integer of more than 308 digits
            pass
        else:
            found[~in_range(found)] = np.nan
            return found
    one_by_one = (finite(value) for value in values)
    return np.array([np.nan if value is None else value for value in one_by_one], dtype=np.float64)


def _states(values: list[Any], positive: Any) -> tuple[Floats, Any, list[str]]:
    """Values, their states, and why the odd ones failed; asv writes NaN for what was skipped, null for failures."""
    found = numbers(values)
    found[positive & (found <= 0)] = np.nan
    state = np.full(len(values), _BARE, dtype=np.uint8)
    reasons: list[str] = []
    for place in np.flatnonzero(np.isnan(found)):
        value = values[place]
        if isinstance(value, float) and math.isnan(value):
            state[place] = _NA
            continue
        state[place] = _FAILED
        if value is not None:
            reasons = reasons or [""] * len(values)
            reasons[place] = f"{value!r:.40} is not {'a positive' if positive[place] else 'a finite'} number"
    return found, state, reasons


def _counts(found: Floats) -> Any:
    return np.nan_to_num(np.clip(found, 0, 2**31 - 1)).astype(np.int32)


def interval(value: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Both ends of an interval, NaN where it does not hold the value."""
    # A comparison with NaN is false, so that half an interval is none.
    good = (low <= value) & (value <= high)
    return np.where(good, low, np.nan), np.where(good, high, np.nan)


def sampled(values: Any) -> list[float]:
    """At most ``MOST_SAMPLES`` numbers of a list, evenly taken; what is no number is left out."""
    if not isinstance(values, list):
        return []
    kept = values if len(values) <= MOST_SAMPLES else values[:: -(-len(values) // MOST_SAMPLES)]
    return [number for value in kept if (number := finite(value)) is not None]
