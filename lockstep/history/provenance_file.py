"""Add the records of a provenance file to the points of asv's result file."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.history.asv_file import AsvFile, sampled
from lockstep.history.hex_digits import copied_words, packed, unpacked
from lockstep.history.model import STATES, Control
from lockstep.history.point_columns import BLANKS, COLUMNS, DTYPES, blank
from lockstep.history.problems import Problem
from lockstep.history.series_ids import digest, series_id
from lockstep.history.validation import Unreadable, finite, name, plain_file, words
from lockstep.record.file import SUFFIX, read_records
from lockstep.record.model import Code, Estimate, Provenance, Record
from lockstep.record.quantity import COST_QUANTITIES, benchmark_name

_SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

#: Maximum length of a record's machine-code facts, in characters. A kernel takes about 300.
_LONGEST_CODE = 64 * 2**10

_BASE_UNITS = {"copy": "B/s", "matmul": "FLOP/s"}


def provenance_path(path: Path) -> Path:
    """Return the path of the provenance file that belongs to asv's result file ``path``."""
    return path.with_name(path.name.removesuffix(".json") + SUFFIX)


def join_provenance(path: Path, asv: AsvFile) -> AsvFile:
    """Return asv's file completed by the records and the facts of a provenance file.

    If the provenance file is faulty, asv's file is returned unchanged, with a problem.
    """
    try:
        provenance, records = read_records(plain_file(path))
        if provenance.commit != asv.run.commit or provenance.machine != asv.run.named:
            raise Unreadable("the file names another commit or machine than asv's result file beside it")
    except OSError as error:
        return _with_problems(asv, path, {error.strerror or str(error): 1})
    except RecursionError:
        return _with_problems(asv, path, {"the file's JSON is nested too deep": 1})
    except (ValueError, OverflowError) as error:  # Unreadable, RecordError, or a sample that is not a number
        return _with_problems(asv, path, {str(error).removeprefix(str(path)).lstrip(" :,"): 1})
    joined = _RecordMerger(asv, provenance)
    problems: Counter[str] = Counter()
    counting = {record.key: record.version for record in records}
    for record in records:
        try:
            if record.version == counting[record.key]:
                joined.add(record)
        except Unreadable as error:
            problems[str(error)] += 1
    return _with_problems(_completed(joined.file(), provenance), path, problems)


def _with_problems(asv: AsvFile, path: Path, problems: Mapping[str, int]) -> AsvFile:
    """Return the content with problems of the provenance file, given with the number of times that each occurred."""
    listed = (
        Problem(path.name, message if n == 1 else f"{message} (and {n - 1} more)", message, "part")
        for message, n in problems.items()
    )
    return replace(asv, problems=(*asv.problems, *listed))


def _completed(file: AsvFile, provenance: Provenance) -> AsvFile:
    """Return the file with the conditions of its run, which the provenance states."""
    gpus = list(provenance.gpus.items())[:100]
    run = replace(
        file.run,
        measured_at=int(file.points["measured_at"].max(initial=0)),
        host={words(key)[:100]: words(value)[:300] for key, value in sorted(provenance.host.items())[:100]},
        controls=_controls(provenance.controls),
        gpu_controls={packed(words(uuid)): _controls(share.controls) for uuid, share in gpus},
        clock_state=words(provenance.clock_state),
        harness=words(provenance.harness),
        protocol=_count(provenance.protocol),
    )
    return replace(file, run=run)


def _controls(controls: Any) -> dict[str, Control]:
    if not isinstance(controls, Mapping):
        return {}
    valid = {key: entry for key, entry in list(controls.items())[:20] if isinstance(entry, Mapping)}
    return {words(key): Control(finite(entry.get("seconds")), _rate(key, entry)) for key, entry in valid.items()}


def _rate(control: str, entry: Mapping[str, Any]) -> float | None:
    """Return a control's rate in B/s or FLOP/s; ``None`` if unknown. The stored unit may have an SI prefix."""
    base = _BASE_UNITS.get(control, "")
    rate, unit = finite(entry.get("rate")), entry.get("unit")
    scale = _SCALES.get(unit.removesuffix(base)) if base and isinstance(unit, str) and unit.endswith(base) else None
    return rate * scale if rate is not None and rate > 0 and scale is not None else None


class _RecordMerger:
    """Collects asv's points of a file, and writes provenance records over them."""

    def __init__(self, asv: AsvFile, provenance: Provenance) -> None:
        self._asv = asv
        self._series = dict(asv.series)
        self._versions = dict(asv.versions)
        self._recorded_at = _instant(provenance.recorded_at)
        self._gpu = words(provenance.host.get("gpu_uuid", ""))
        controls, unknown = _controls(provenance.controls), Control(None, None)
        self._rates = [controls.get(control, unknown).rate for control in ("copy", "matmul")]
        count = len(asv.points["series"])
        stored = (asv.points.get(column, blank(kind, count)) for column, kind in COLUMNS.items())
        columns = (values if isinstance(values, list) else values.tolist() for values in stored)
        #: The values of each point by column, by the number of its series.
        self._points = {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)}
        self._recorded: set[int] = set()

    def add(self, record: Record) -> None:
        """Write a record over the points of its latency, its speedup and its costs.

        Raises:
            Unreadable: the record has a wrong form, or another benchmark version than asv's numbers.
        """
        state = name(record.state)
        if state not in ("ok", "na", "failed"):
            raise Unreadable(f"a record has the unknown state {record.state!r:.40}")
        latency, speedup = _estimate(record.latency), _estimate(record.speedup)
        if state == "ok" and latency is None:
            raise Unreadable("a record has the state ok but no positive latency")
        try:
            key = tuple(repr(name(part)) for part in (record.variant, record.case, record.l2))
            suite, version = name(record.suite), name(record.version)
        except Unreadable as error:
            raise Unreadable(f"a record is invalid: {error}") from error
        latency_id, speedup_id = (self._id(suite, quantity, key) for quantity in ("latency", "speedup"))
        version_digest = digest(version)
        stored = {self._points[number]["version"] for number in (latency_id, speedup_id) if number in self._points}
        if stored - {version_digest, _NO_VERSION}:
            raise Unreadable(
                "a record has another benchmark version than asv's number, and is not shown with the number"
            )
        self._versions[version_digest] = version
        shared = self._shared(record, version_digest, speedup)
        self._put(latency_id, shared | _own(state, record.reason, latency, record.latency_samples))
        for quantity in COST_QUANTITIES:
            # A cost that was not requested has no value.
            number, cost = self._id(suite, quantity, key), record.costs.get(quantity)
            estimate = _estimate(cost)
            if estimate or (state == "failed" and number in self._points):
                cost_values = _own("ok" if estimate else "failed", record.reason, estimate, ())
                self._put(number, shared | _NO_RATIO | cost_values | {"epochs": _count(cost.epochs if cost else 0)})
        paired = state if state != "ok" or speedup else "na"
        reason = record.reason if paired == state else f"the baseline {record.baseline} has no number for this case"
        self._put(speedup_id, shared | _own(paired, reason, speedup, record.speedup_samples))

    def file(self) -> AsvFile:
        """Return the content of asv's file with the records that were added.

        A NaN of asv without a record does not become a point: this run left the series out, because of ``--bench`` or
        an interrupt. If a series cannot be measured on this machine, it has a record that says so.
        """
        absent = STATES.index("na")
        points = {
            number: point
            for number, point in self._points.items()
            if point["state"] != absent or number in self._recorded
        }
        columns = {}
        for column, kind in COLUMNS.items():
            listed = [point[column] for point in points.values()]
            columns[column] = listed if kind in ("text", "samples") else np.array(listed, DTYPES[kind])
        series = {number: self._series[number] for number in points}
        return AsvFile(self._asv.run, columns, series, self._versions, self._asv.problems)

    def _id(self, suite: str, quantity: str, key: tuple[str, ...]) -> int:
        """Return the number of a series, and note its parameters."""
        benchmark = benchmark_name(suite, quantity)
        number = series_id(benchmark, key)
        self._series[number] = benchmark, key
        return number

    def _put(self, number: int, values: Mapping[str, Any]) -> None:
        """Write values over the point of a series, which may be new."""
        point = self._points.setdefault(number, {**_UNKNOWN, "series": number})
        if number in self._recorded:
            values = {**values, **_bridge(point, values)}
        self._recorded.add(number)
        point.update(values)

    def _shared(self, record: Record, version: int, speedup: tuple[float, float, float] | None) -> dict[str, Any]:
        """Return the values that a record's latency and speedup points share."""
        values = {column: _CLEANED[COLUMNS[column]](getattr(record, column)) for column in _OF_RECORD}
        values |= {column: _number(getattr(record.clocks, column)) for column in _OF_CLOCKS}
        flops, size = (max(finite(cost) or 0.0, 0.0) for cost in (record.flops, record.bytes))
        ratio, low, high = speedup or (math.nan,) * 3
        copied = words(record.same_work_as)
        return values | {
            "version": version,
            "measured_at": _instant(record.started_at) or self._recorded_at,
            "ratio": ratio,
            "ratio_low": low,
            "ratio_high": high,
            "flops": flops,
            "bytes": size,
            "floor_s": values["floor_s"] if values["floor_s"] > 0 else math.nan,
            "bound": self._bound(flops, size),
            "note": copied_words(copied) if copied else values["note"],
            "worst_row": _number(getattr(record.accuracy, "row", None)),
            "deterministic": float(record.deterministic) if isinstance(record.deterministic, bool) else math.nan,
            "clock_reasons": "\n".join(words(reason) for reason in record.clocks.reasons),
            "code": _code(record.code),
            "same_work_as": packed(copied),
            "gpu": packed(words(record.gpu) or self._gpu),
            "work": packed(words(record.work)),
        }

    def _bound(self, flops: float, size: float) -> str:
        """Return which rate decides the floor, ``max(bytes / copy rate, FLOPs / matmul rate)``; "" if unknown."""
        copy, matmul = self._rates
        if copy is None or matmul is None or not (size or flops):
            return ""
        return "bandwidth" if size / copy >= flops / matmul else "compute"


_NO_VERSION = digest("")

#: A point of which nothing is known.
_UNKNOWN = {column: BLANKS[kind] for column, kind in COLUMNS.items()}

#: A cost has no speedup, and the smallest detectable change of the speedup does not apply to a cost.
_NO_RATIO = dict.fromkeys(("ratio", "ratio_low", "ratio_high", "mde"), math.nan)


def _bridge(point: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return how values differ from those of another GPU, which the point of their series has."""
    other, here = point["gpu"], values["gpu"]
    log = math.log(values["value"] / point["value"])
    if math.isnan(log) or not other or not here or other == here:
        return {"bridge": math.nan}
    told = f"{math.expm1(-log):+.1%} on GPU {unpacked(other)[:8]}"
    return {"bridge": log, "note": f"{values['note']}; {told}" if values["note"] else told}


def _own(state: str, reason: Any, estimate: tuple[float, float, float] | None, samples: Any) -> dict[str, Any]:
    value, low, high = (estimate if state == "ok" and estimate else None) or (math.nan,) * 3
    numbers = {"state": STATES.index(state), "value": value, "low": low, "high": high}
    return numbers | {"reason": words(reason), "samples": sampled(list(samples))}


def _estimate(estimate: Estimate | None) -> tuple[float, float, float] | None:
    """Return a value and the ends of its interval; ``None`` if the value is not positive.

    Both ends are NaN if the interval does not contain the value.
    """
    value = finite(estimate.value) if estimate else None
    if estimate is None or value is None or value <= 0:
        return None
    low, high = finite(estimate.low), finite(estimate.high)
    if low is None or high is None or not 0 < low <= value <= high:
        return value, math.nan, math.nan
    return value, low, high


def _number(value: Any) -> float:
    number = finite(value)
    return math.nan if number is None else number


def _count(value: Any) -> int:
    return min(max(value, 0), 2**31 - 1) if isinstance(value, int) else 0


def _code(code: Code | None) -> str:
    """Return machine-code facts as JSON text; "" if there are none, if they are too long, or no JSON can hold them."""
    if not code:
        return ""
    try:
        text = json.dumps(asdict(code), separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return ""
    return text if len(text) <= _LONGEST_CODE else ""


def _instant(text: Any) -> int:
    """Return an ISO 8601 time in ms since 1970; 0 for anything else."""
    try:
        time = datetime.fromisoformat(text)
        return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        return 0


#: Columns that a point takes from its record, and from the record's clocks.
_OF_RECORD = ("epochs", "mde", "floor_s", "floor_source", "note", "baseline", "check_error")
_OF_CLOCKS = ("sm_mhz", "sm_mhz_low", "temperature_c", "power_w")

#: The function that validates a value, by the kind of its column.
_CLEANED: Mapping[str, Callable[[Any], Any]] = {"number": _number, "count": _count, "text": words}
