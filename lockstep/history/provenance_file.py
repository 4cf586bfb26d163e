"""Add the records of a provenance file to the points of asv's result file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from lockstep.history.asv_file import AsvFile, numbers, sampled
from lockstep.history.hex_digits import copied_words, packed, unpacked
from lockstep.history.model import STATES, Control
from lockstep.history.point_columns import COLUMNS, KINDS, Kind, blank
from lockstep.history.series_ids import Parameters, digest, series_id
from lockstep.history.validation import Problem, Unreadable, finite, is_name, plain_file
from lockstep.processes.trouble import reason_of
from lockstep.record.file import RecordError, read_file
from lockstep.record.model import Estimate, Provenance, Record
from lockstep.record.quantity import COST_QUANTITIES, benchmark_name

_SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

#: Maximum length of a text, and of a record's machine-code facts, in characters. A kernel takes about 300.
_LONGEST, _LONGEST_CODE = 2000, 64 * 2**10

_BASE_UNITS = {"copy": "B/s", "matmul": "FLOP/s"}


def join_provenance(path: Path, asv: AsvFile) -> AsvFile:
    """Return asv's file completed by the records and the facts of a provenance file.

    Each fault becomes a problem. What is faulty is left out: a record, or the whole file.
    """
    try:
        provenance, records, faults = read_file(plain_file(path))
        if provenance.commit != asv.run.commit or provenance.machine != asv.run.named:
            raise Unreadable("the file names another commit or machine than asv's result file beside it")
    except (RecordError, Unreadable, OSError) as error:
        reason = reason_of(error).removeprefix(str(path)).lstrip(" :,")
        return _with_problems(asv, path, [reason])
    joined = _RecordMerger(asv, provenance)
    counting = {record.key: record.version for record in records}
    faults += [fault for record in records if record.version == counting[record.key] and (fault := joined.add(record))]
    return _with_problems(joined.file(), path, faults)


def _with_problems(asv: AsvFile, path: Path, faults: Iterable[str]) -> AsvFile:
    """Return the content with the faults of the provenance file. Equal faults are one problem."""
    listed = (
        Problem(path.name, fault if n == 1 else f"{fault} (and {n - 1} more)", fault, "part")
        for fault, n in Counter(faults).items()
    )
    return replace(asv, problems=(*asv.problems, *listed))


def _controls(controls: Mapping[str, Mapping[str, Any]]) -> dict[str, Control]:
    return {name: Control(finite(entry.get("seconds")), _rate(name, entry)) for name, entry in controls.items()}


def _rate(control: str, entry: Mapping[str, Any]) -> float | None:
    """Return a control's rate in B/s or FLOP/s; ``None`` if unknown. The stored unit may have an SI prefix."""
    base = _BASE_UNITS.get(control, "-")
    rate, unit = finite(entry.get("rate")) or 0.0, str(entry.get("unit"))
    scale = _SCALES.get(unit.removesuffix(base)) if unit.endswith(base) else None
    return rate * scale if rate > 0 and scale is not None else None


class _RecordMerger:
    """Collects the points of provenance records, which replace asv's points of the same series."""

    def __init__(self, asv: AsvFile, provenance: Provenance) -> None:
        self._asv = asv
        self._provenance = provenance
        self._series: dict[int, Parameters] = {}
        self._versions = dict(asv.versions)
        self._recorded_at = _instant(provenance.recorded_at)
        self._gpu = provenance.host.get("gpu_uuid", "")
        controls, unknown = _controls(provenance.controls), Control(None, None)
        self._rates = [controls.get(control, unknown).rate for control in ("copy", "matmul")]
        #: The version of asv's point by the number of its series.
        self._known = dict(zip(asv.points["series"].tolist(), asv.points["version"].tolist(), strict=True))
        #: The values of each record's point by column, by the number of its series.
        self._points: dict[int, dict[str, Any]] = {}

    def add(self, record: Record) -> str:
        """Add the points of a record's latency, speedup and costs. Return why it has none; "" if it has."""
        names = record.variant, record.case, record.l2
        if not all(map(is_name, (*names, record.suite, record.version))):
            return "a record has a name that is not short and printable"
        latency, speedup = _ends(record.latency), _ends(record.speedup)
        if record.state not in ("ok", "na", "failed") or (record.state == "ok" and latency is None):
            return f"a record has the unknown state {record.state!r:.40}, or the state ok but no positive latency"
        key = tuple(map(repr, names))
        version = digest(record.version)
        ids = {q: series_id(benchmark_name(record.suite, q), key) for q in ("latency", *COST_QUANTITIES, "speedup")}
        if {self._known.get(ids[quantity], version) for quantity in ("latency", "speedup")} - {version, _NO_VERSION}:
            return "a record has another benchmark version than asv's number, and is not shown with the number"
        self._versions[version] = record.version
        shared = self._shared(record, version, speedup)
        measured = {"latency": (latency, record.latency_samples), "speedup": (speedup, record.speedup_samples)}
        for quantity, number in ids.items():
            cost = record.costs.get(quantity)
            ends, samples = measured.get(quantity) or (_ends(cost), ())
            # A cost that was not requested has no value.
            if quantity in COST_QUANTITIES and not ends and (record.state != "failed" or number not in self._known):
                continue
            state = record.state if record.state != "ok" or ends else "na"
            value, low, high = (ends if state == "ok" else None) or _NO_ENDS
            unpaired = f"the baseline {record.baseline} has no number for this case"
            values = shared | {"state": STATES.index(state), "value": value, "low": low, "high": high}
            values |= {"reason": record.reason if state == record.state else unpaired, "samples": sampled([*samples])}
            if quantity in COST_QUANTITIES:
                values |= _NO_RATIO | {"epochs": cost.epochs if cost else 0}
            if number in self._points:
                values |= _bridge(self._points[number], values)
            self._series[number] = benchmark_name(record.suite, quantity), key
            self._points[number] = values
        return ""

    def _shared(self, record: Record, version: int, speedup: _Ends | None) -> dict[str, Any]:
        """Return the values that all points of a record share."""
        ratio, low, high = speedup or _NO_ENDS
        code = to_json(record.code).decode() if record.code else ""
        values = {name: getattr(record, name) for name in _AS_RECORDED}
        values |= {name: getattr(record.clocks, name) for name in _OF_CLOCKS}
        return values | {
            "version": version,
            "measured_at": _instant(record.started_at) or self._recorded_at,
            "ratio": ratio,
            "ratio_low": low,
            "ratio_high": high,
            "flops": max(finite(record.flops) or 0.0, 0.0),
            "bytes": max(finite(record.bytes) or 0.0, 0.0),
            "deterministic": None if record.deterministic is None else float(record.deterministic),
            "floor_s": record.floor_s if record.floor_s and record.floor_s > 0 else None,
            "bound": self._bound(record.flops, record.bytes),
            "note": copied_words(record.same_work_as) if record.same_work_as else record.note,
            "worst_row": record.accuracy.row if record.accuracy else None,
            "clock_reasons": "\n".join(record.clocks.reasons),
            "code": code if len(code) <= _LONGEST_CODE else "",
            "same_work_as": packed(record.same_work_as),
            "gpu": packed(record.gpu or self._gpu),
            "work": packed(record.work),
            "bridge": math.nan,
        }

    def _bound(self, flops: float, size: float) -> str:
        """Return which rate decides the floor, ``max(bytes / copy rate, FLOPs / matmul rate)``; "" if unknown."""
        copy, matmul = self._rates
        if copy is None or matmul is None or max(flops, size) <= 0:
            return ""
        return "bandwidth" if size / copy >= flops / matmul else "compute"

    def file(self) -> AsvFile:
        """Return the content of asv's file with the records that were added, and the conditions of the run.

        A NaN of asv without a record does not become a point: this run left the series out, because of ``--bench`` or
        an interrupt. If a series cannot be measured on this machine, it has a record that says so.
        """
        asv, points, provenance = self._asv, list(self._points.values()), self._provenance
        ids = np.array(list(self._points), dtype=np.int64)
        kept = np.flatnonzero((asv.points["state"] != STATES.index("na")) & ~np.isin(asv.points["series"], ids))
        place = {number: place for place, number in enumerate(self._known)}
        places = [place.get(number, len(place)) for number in self._points]
        columns: dict[str, Any] = {"series": np.append(asv.points["series"][kept], ids)}
        for name, kind in COLUMNS.items():
            if name not in _OF_RECORD and (name in ("series", "run") or name not in asv.points):
                continue
            dtype, _, unknown, _ = KINDS[kind]
            known = asv.points.get(name, blank(kind, len(place)))
            values = [point[name] for point in points] if name in _OF_RECORD else np.append(known, unknown)[places]
            if kind == "text":
                values = [text[: _LONGEST_CODE if name == "code" else _LONGEST] for text in values]
            if dtype is object:
                columns[name] = [known[at] for at in kept] + values
            else:
                columns[name] = np.append(known[kept], np.asarray(_cleaned(values, kind), dtype))
        series = {**asv.series, **self._series}
        run = replace(
            asv.run,
            measured_at=int(columns["measured_at"].max(initial=0)),
            host=dict(sorted(provenance.host.items())),
            controls=_controls(provenance.controls),
            gpu_controls={packed(uuid): _controls(share.controls) for uuid, share in provenance.gpus.items()},
            clock_state=provenance.clock_state,
            harness=provenance.harness,
            protocol=provenance.protocol,
        )
        known_series = {number: series[number] for number in columns["series"].tolist()}
        return AsvFile(run, columns, known_series, self._versions, asv.problems)


_Ends = tuple[float, float, float]

_NO_VERSION = digest("")

_NO_ENDS = (math.nan,) * 3

#: A cost has no speedup, and the smallest detectable change of the speedup does not apply to a cost.
_NO_RATIO = dict.fromkeys(("ratio", "ratio_low", "ratio_high", "mde"), math.nan)

#: The columns that come from records; the others come from asv's file.
_OF_RECORD = COLUMNS.keys() - {"series", "run", "number", "repeat", "q25", "q75"}

#: The columns that hold a field of the record, or of its clocks, as it is.
_AS_RECORDED = ("epochs", "mde", "floor_source", "baseline", "check_error")
_OF_CLOCKS = ("sm_mhz", "sm_mhz_low", "temperature_c", "power_w")


def _cleaned(values: Any, kind: Kind) -> NDArray[Any]:
    """Return the values of a column that it can hold, with NaN for numbers out of range."""
    return numbers(list(values)) if kind == "number" else np.clip(values, 0, 2**31 - 1) if kind == "count" else values


def _bridge(point: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return how values differ from those of another GPU, which the point of their series has."""
    other, here = point["gpu"], values["gpu"]
    log = math.log(values["value"] / point["value"])
    if math.isnan(log) or not other or not here or other == here:
        return {}
    told = f"{math.expm1(-log):+.1%} on GPU {unpacked(other)[:8]}"
    return {"bridge": log, "note": f"{values['note']}; {told}" if values["note"] else told}


def _ends(estimate: Estimate | None) -> _Ends | None:
    """Return a value and the ends of its interval; ``None`` if the value is not positive.

    Both ends are NaN if the interval does not contain the value.
    """
    if estimate is None or (finite(estimate.value) or 0.0) <= 0:
        return None
    value, low, high = estimate.value, finite(estimate.low), finite(estimate.high)
    if low is None or high is None or not 0 < low <= value <= high:
        return value, math.nan, math.nan
    return value, low, high


def _instant(text: str) -> int:
    """Return an ISO 8601 time in ms since 1970; 0 for anything else."""
    try:
        time = datetime.fromisoformat(text)
        return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
