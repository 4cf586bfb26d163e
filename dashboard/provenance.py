"""The provenance beside asv's file, joined with asv's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dashboard.asv_result import Head
from dashboard.results.guards import Unreadable, finite, name, plain_file, words
from dashboard.rows import Measured, Row, State, positive
from lockstep.record import SUFFIX, Clocks, Estimate, Provenance, Record, read_records

_STATES: dict[str, State] = {"ok": "ok", "na": "na", "failed": "failed"}
_SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def provenance_path(path: Path) -> Path:
    """Where the provenance of asv's file ``path`` lies."""
    return path.with_name(path.name.removesuffix(".json") + SUFFIX)


def join_provenance(path: Path, head: Head, rows: list[Row]) -> tuple[list[Row], list[str]]:
    """The rows of an asv file, those with a record replaced by what the record says.

    Args:
        path: the provenance file.
        head: of asv's file.
        rows: asv's.

    Returns:
        The rows, and what was wrong; whatever is wrong leaves asv's rows standing.

    Raises:
        FileNotFoundError: there is no such file.
    """
    try:
        provenance, records = read_records(plain_file(path))
        if provenance.commit != head.commit or provenance.machine != head.machine:
            raise Unreadable("is of another commit or machine than asv's file")
    except RecursionError:
        return rows, ["is nested too deep"]
    except (ValueError, OverflowError) as error:  # Unreadable, RecordError, and a sample that is no number
        return rows, [str(error).removeprefix(str(path)).lstrip(" :,")]
    joined = {row.series: row for row in rows}
    complaints: Counter[str] = Counter()
    for record in records:
        try:
            row = _row(head, provenance, record)
        except Unreadable as error:
            complaints[f"a record {error}"] += 1
            continue
        bare = joined.get(row.series)
        if bare and bare.version and bare.version != row.version:
            complaints["a record is of another ruler than asv's number, which is shown without it"] += 1
            continue
        joined[row.series] = row
    return list(joined.values()), [what if n == 1 else f"{what} (and {n - 1} more)" for what, n in complaints.items()]


def _row(head: Head, provenance: Provenance, record: Record) -> Row:
    family, _, op = name(record.suite).partition(".")
    state = _STATES.get(name(record.state))
    if state is None:
        raise Unreadable(f"has the unknown state {record.state!r:.40}")
    latency = _measured(record.latency)
    if state == "ok" and latency is None:
        raise Unreadable("is ok and has no positive latency")
    floor = finite(record.floor_s)
    flops, size = (max(finite(cost) or 0.0, 0.0) for cost in (record.flops, record.bytes))
    return Row(
        machine=head.machine,
        environment=head.environment,
        commit=head.commit,
        date=head.date,
        family=family,
        op=op,
        variant=name(record.variant),
        case=name(record.case),
        l2=name(record.l2),
        version=name(record.version),
        state=state,
        reason=words(record.reason),
        latency=latency,
        speedup=_measured(record.speedup),
        flops=flops,
        bytes=size,
        floor_s=floor if floor is not None and floor > 0 else None,
        floor_source=words(record.floor_source),
        bound=_bound(provenance.controls, flops, size),
        mde=finite(record.mde),
        note=words(record.note),
        clock_state=words(provenance.clock_state),
        clocks=_clocks(record.clocks),
        measured_at=_instant(record.started_at) or _instant(provenance.recorded_at),
    )


def _measured(estimate: Estimate | None) -> Measured | None:
    if estimate is None:
        return None
    return positive(finite(estimate.value), finite(estimate.low), finite(estimate.high))


def _clocks(clocks: Clocks) -> Clocks:
    return Clocks(
        sm_mhz=finite(clocks.sm_mhz),
        sm_mhz_low=finite(clocks.sm_mhz_low),
        temperature_c=finite(clocks.temperature_c),
        power_w=finite(clocks.power_w),
        reasons=tuple(words(reason) for reason in clocks.reasons),
    )


def _bound(controls: Any, flops: float, size: float) -> str:
    """Which of the run's controls makes the floor, ``max(bytes / copy rate, FLOPs / matmul rate)``."""
    copy, matmul = _rate(controls, "copy", "B/s"), _rate(controls, "matmul", "FLOP/s")
    if copy is None or matmul is None or not (size or flops):
        return ""
    return "bandwidth" if size / copy >= flops / matmul else "compute"


def _rate(controls: Any, control: str, base: str) -> float | None:
    """A control's rate in ``base``, its unit being that with an SI prefix; ``None`` if it has none."""
    entry = controls.get(control) if isinstance(controls, Mapping) else None
    if not isinstance(entry, Mapping):
        return None
    rate, unit = finite(entry.get("rate")), entry.get("unit")
    scale = _SCALES.get(unit.removesuffix(base)) if isinstance(unit, str) and unit.endswith(base) else None
    return rate * scale if rate is not None and rate > 0 and scale is not None else None


def _instant(text: Any) -> int:
    """An ISO 8601 time in ms since 1970; 0 for anything else."""
    try:
        time = datetime.fromisoformat(text)
        return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        return 0
