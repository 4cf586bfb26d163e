"""Write and read the provenance file, which holds the facts that asv's result file cannot hold.

asv's file of a commit and environment is ``results/MACHINE/COMMIT-ENV.json``. The provenance file is in the same folder
and is named ``COMMIT-ENV.provenance.jsonl``. It holds clocks, intervals of ratios and the toolchain, for example. Its
first line is a ``Provenance``, and the other lines hold the records (``lockstep.record.shared_fields``). The file is
always replaced as a whole, so a reader never sees a part of it.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from lockstep.processes.exit_status import UsageError
from lockstep.record.model import SCHEMA_VERSION, Provenance, Record
from lockstep.record.shared_fields import json_line, lines_of, rows_of

#: End of the name of every provenance file.
SUFFIX = ".provenance.jsonl"

#: Returns what validates the fields of a dataclass. It is made at its first use.
_validator = cache(TypeAdapter)


class RecordError(UsageError):
    """A provenance file cannot be read. The message names the file, the line and what to do."""


def records_path(folder: Path, commit: str, environment: str) -> Path:
    """Return the path of the provenance file of a commit and an asv environment. ``folder`` is that of the machine."""
    # asv uses eight digits of the hash in the names of its files, whatever ``hash_length`` is.
    return folder / f"{commit[:8]}-{environment}{SUFFIX}"


def provenance_path(result: Path) -> Path:
    """Return the path of the provenance file that belongs to asv's result file."""
    return result.with_name(result.name.removesuffix(".json") + SUFFIX)


def result_path(provenance: Path) -> Path:
    """Return the path of asv's result file that belongs to a provenance file."""
    return provenance.with_name(provenance.name.removesuffix(SUFFIX) + ".json")


def set_aside(path: Path, recorded_at: str) -> Path:
    """Rename a provenance file of another toolchain, and return its new path. ``recorded_at`` is that of its records.

    A provenance file holds records of one toolchain.
    """
    stamp = "".join(character for character in recorded_at if character.isdigit())[:14]
    return path.rename(path.with_name(f"{path.stem}.{stamp}.old"))


def write_records(path: Path, provenance: Provenance, records: Iterable[Record]) -> None:
    """Replace a file by the provenance and these records. A crash leaves the old file or the new file.

    Records with the same case, cache state and outcome are written together, in the place of the first of them.
    """
    replace_file(path, records_text(provenance, records))


def records_text(provenance: Provenance, records: Iterable[Record]) -> str:
    """Return the text of a provenance file."""
    first = json_line(asdict(replace(provenance, schema=SCHEMA_VERSION)))
    return "".join([first, *lines_of(records, Record("", "", "", "", "", ""))])


def replace_file(path: Path, text: str) -> None:
    """Write a file atomically: a crash leaves the old content or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def newest_harness(results: Path, machine: str = "*") -> str:
    """Return the commit of the suites with which results were recorded last; "" if it is unknown.

    Args:
        machine: name of the machine's folder in ``results``.
    """
    return newest_record(results, machine)[1].partition("+")[0]


def newest_record(results: Path, machine: str = "*") -> tuple[str, str]:
    """Return when the newest provenance file was begun, and its harness; blank without files."""
    newest = ("", "")
    for path in results.glob(f"{machine}/*{SUFFIX}"):
        try:
            with path.open(encoding="utf-8") as file:
                first = from_json(file.readline())
            newest = max(newest, (first["recorded_at"], first["harness"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # whoever needs the records of the file reports what is wrong
    return newest


def read_records(path: Path) -> tuple[Provenance, list[Record]]:
    """Return the provenance and the records of a provenance file, see ``read_file``.

    Raises:
        RecordError: the file or one of its records cannot be read.
        FileNotFoundError: the file does not exist.
    """
    provenance, records, faults = read_file(path)
    if faults:
        raise RecordError(f"{path}, {faults[0]}; delete the file and measure again")
    return provenance, records


def read_file(path: Path) -> tuple[Provenance, list[Record], list[str]]:
    """Return the provenance of a provenance file, the records that can be read, and the fault of each other record.

    If several GPUs measured a series, the record that counts comes last. Unknown fields of a line are ignored, because
    a newer version of Lockstep may have added them. Missing fields get their defaults. After a line that is not JSON,
    records up to the next shared fields are left out, because it may have held theirs.

    Raises:
        RecordError: the file is of a newer schema, or its first line is not a provenance.
        FileNotFoundError: the file does not exist.
    """
    first, *lines = path.read_bytes().splitlines() or [b""]
    provenance = _provenance_from(first, path)
    rows, records, faults = [], [], []
    for number, line in enumerate(lines, 2):
        try:
            rows.append((number, _object(line)))
        except ValueError as error:
            faults.append(f"line {number}: {error}")
            rows.append((number, {"common": None}))
    for number, row in rows_of(rows):
        try:
            records.append(record_from(row))
        except ValidationError as error:
            faults.append(f"line {number}: {_fault(error)}")
    return provenance, sorted(records, key=lambda record: record.rank) if provenance.gpus else records, faults


def _provenance_from(line: bytes, path: Path) -> Provenance:
    try:
        row = _object(line)
        schema = row.get("schema")
        if isinstance(schema, int) and schema <= SCHEMA_VERSION:
            if isinstance(host := row.get("host"), dict):  # in some files cuBLAS's version is a number
                row["host"] = {name: str(fact) if type(fact) is int else fact for name, fact in host.items()}
            provenance: Provenance = _validator(Provenance).validate_python(row)
            return provenance
    except ValueError as error:
        raise RecordError(f"{path}, line 1: {_fault(error)}; delete the file and measure again") from error
    raise RecordError(f"{path} has schema {schema!r}; this version of lockstep reads up to {SCHEMA_VERSION}: update it")


def _object(line: bytes) -> dict[str, Any]:
    """Return the object of a line.

    Raises:
        ValueError: the line is not JSON, or it or its shared fields are not an object.
    """
    row = from_json(line)
    if not isinstance(row, dict) or not all(isinstance(row.get(name, {}), dict) for name in ("kernels", "common")):
        raise ValueError(f"expected an object, got {line.decode('utf-8', 'replace')[:40]}")
    return row


def record_from(row: Mapping[str, Any]) -> Record:
    """Return a record from its JSON object. Unknown fields are ignored.

    Raises:
        pydantic.ValidationError: a field is missing or has a wrong type.
    """
    record: Record = _validator(Record).validate_python({**row, **_without_null(row)})
    return record


def _without_null(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return those fields of a record in which null stands for a number that JSON cannot hold, with that number.

    An interval from one epoch has no bounds. The error of an output is NaN if there is nothing to divide by.
    """
    found = {}
    for name in ("latency", "speedup"):
        if isinstance(estimate := row.get(name), dict):
            found[name] = _unbounded(estimate)
    if isinstance(costs := row.get("costs"), dict):
        found["costs"] = {name: _unbounded(one) if isinstance(one, dict) else one for name, one in costs.items()}
    if isinstance(accuracy := row.get("accuracy"), dict):
        found["accuracy"] = {name: math.nan if error is None else error for name, error in accuracy.items()}
    return found


def _unbounded(estimate: Mapping[str, Any]) -> dict[str, Any]:
    ends = {"low": -math.inf, "high": math.inf}
    return {name: ends.get(name) if value is None else value for name, value in estimate.items()}


def _fault(error: ValueError) -> str:
    """Return what is wrong, with the name of the field."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
