"""Write and read the records of a provenance file, in which fields that several records share are stored once.

There are three kinds of lines. ``{"kernels": {id: facts}}`` occurs at most once and holds the kernels.
``{"common": {field: value}}`` holds the fields that all records up to the next such line share. All other lines are
records, whose ``code.kernels`` holds the ids of kernels. Schema 1 had only records, each with the facts of its kernels.
Both schemas are read.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lockstep.record.model import Kernel, Record

#: A field whose parts are shared separately: the variants of a case share temperature and power, but not clocks.
PARTED = "clocks"


def lines_of(records: Iterable[Record], blank: Record) -> Iterator[str]:
    """Yield the lines that store these records. Records with the same case, cache state and outcome come together.

    Args:
        records: records in the order of their cases.
        blank: a record with default values. A field that is equal to the default is left out.
    """
    ordered = list(records)
    kernels = dict.fromkeys(kernel for record in ordered if record.code for kernel in record.code.kernels)
    if kernels:
        yield json_line({"kernels": {_identity(kernel): asdict(kernel) for kernel in kernels}})
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in ordered:
        groups.setdefault((record.suite, record.case, record.l2, record.state), []).append(record)
    previous: dict[str, Any] = {}
    for group in groups.values():
        common, own_lines = _group(tuple(group), blank)
        if common or previous:
            yield json_line({"common": common})
        previous = common
        yield own_lines


def rows_of(lines: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each record as a complete JSON object, with shared fields and kernels put back, after its line number.

    Args:
        lines: the lines and their numbers, without the provenance. Records after ``{"common": None}`` are left out.
    """
    kernels: dict[str, Any] = {}
    common: dict[str, Any] | None = {}
    for number, row in lines:
        if "kernels" in row:
            kernels |= row["kernels"]
        elif "common" in row:
            common = row["common"]
        elif common is not None:
            yield number, _resolved({**common, **row, **_parted(common, row)}, kernels)


def json_line(row: Mapping[str, Any]) -> str:
    """Return a row as one line of JSON. Floats get seven digits. NaN and infinity, which JSON lacks, become null."""
    return json.dumps(finite(row), separators=(",", ":")) + "\n"


# The file is replaced after every case. Without the cache, writing 1,900 records 260 times took a minute.
@functools.lru_cache(maxsize=4096)
def _group(records: Sequence[Record], blank: Record) -> tuple[dict[str, Any], str]:
    """Return the fields that the records share, and the records' lines without these fields."""
    defaults = asdict(blank)
    rows = [_row(record, defaults) for record in records]
    common = _shared(rows) if len(rows) > 1 else {}
    if len(rows) > 1 and all(PARTED in row for row in rows) and PARTED not in common:
        parts = _shared([row[PARTED] for row in rows])
        common |= {PARTED: parts} if parts else {}
    own_rows = [{name: value for name, value in row.items() if name not in common} | _rest(row, common) for row in rows]
    return common, "".join(map(json_line, own_rows))


def _row(record: Record, defaults: Mapping[str, Any]) -> dict[str, Any]:
    row = {name: value for name, value in asdict(record).items() if value != defaults[name]}
    if record.code is not None:
        row["code"] = {**row["code"], "kernels": [_identity(kernel) for kernel in record.code.kernels]}
    return row


def _shared(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields that have the same value in all rows."""
    first, *others = rows
    return {name: value for name, value in first.items() if all(name in row and row[name] == value for row in others)}


def _rest(row: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's clocks (``PARTED``) without the entries that ``common`` holds; {} if ``common`` holds them all."""
    if PARTED not in common or row[PARTED] == common[PARTED]:
        return {}
    return {PARTED: {name: value for name, value in row[PARTED].items() if name not in common[PARTED]}}


def _parted(common: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    shared, own = common.get(PARTED), row.get(PARTED)
    return {PARTED: shared | own} if isinstance(shared, dict) and isinstance(own, dict) else {}


def _resolved(row: dict[str, Any], kernels: Mapping[str, Any]) -> dict[str, Any]:
    """Put the facts of kernels in the place of their ids. A wrong form stays, and ``record_from`` refuses it."""
    code = row.get("code")
    if not isinstance(code, dict) or not isinstance(code.get("kernels"), list):
        return row
    facts = [kernels.get(kernel, kernel) if isinstance(kernel, str) else kernel for kernel in code["kernels"]]
    return {**row, "code": {**code, "kernels": facts}}


def _identity(kernel: Kernel) -> str:
    """Return a digest of all facts of a kernel; 32 bits are enough for the few hundred kernels of a file."""
    return hashlib.sha256(json.dumps(asdict(kernel), sort_keys=True).encode()).hexdigest()[:8]


def finite(value: Any) -> Any:
    """Return a value that JSON can hold: floats have seven digits, and NaN and infinity become ``None``."""
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return value
