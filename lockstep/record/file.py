"""Write and read the provenance file, which holds the facts that asv's result file cannot hold.

asv's file of a commit and environment is ``results/MACHINE/COMMIT-ENV.json``. The provenance file is in the same folder
and is named ``COMMIT-ENV.provenance.jsonl``. It holds clocks, intervals of ratios and the toolchain, for example. Its
first line is a ``Provenance``, and the other lines hold the records (``lockstep.record.shared_fields``). The file is
always replaced as a whole, so a reader never sees a part of it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from lockstep.record.model import (
    SCHEMA_VERSION,
    Accuracy,
    Clocks,
    Code,
    CostEstimate,
    Estimate,
    GpuShare,
    Kernel,
    Provenance,
    Record,
)
from lockstep.record.shared_fields import json_line, lines_of, rows_of

#: End of the name of every provenance file.
SUFFIX = ".provenance.jsonl"


class RecordError(ValueError):
    """A provenance file cannot be read. The message names the file, the line and what to do."""


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
                first = json.loads(file.readline())
            newest = max(newest, (first["recorded_at"], first["harness"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # whoever needs the records of the file reports what is wrong
    return newest


def read_records(path: Path) -> tuple[Provenance, list[Record]]:
    """Return the provenance and the records of a provenance file.

    If several GPUs measured a series, the record that counts comes last. Unknown fields of a line are ignored, because
    a newer version of Lockstep may have added them. Missing fields get their defaults.

    Raises:
        RecordError: the file is not UTF-8, not JSON, incomplete or of a newer schema, or the structure or identity of a
            line has a wrong type. Numbers and notes are not checked.
        FileNotFoundError: the file does not exist.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise RecordError(f"{path} is not UTF-8 text ({error}); delete it and measure again") from error
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise RecordError(
                f"{path}, line {number}: not JSON ({error}); delete the file and measure again"
            ) from error
        if not isinstance(row, dict):
            raise RecordError(
                f"{path}, line {number}: expected an object, got {type(row).__name__}; delete it and measure again"
            )
        rows.append(row)
    if not rows:
        raise RecordError(f"{path} is empty; delete it and measure again")
    schema = rows[0].get("schema")
    if not isinstance(schema, int) or schema > SCHEMA_VERSION:
        raise RecordError(
            f"{path} has schema {schema!r}; this version of lockstep reads up to {SCHEMA_VERSION}: update it"
        )
    try:
        provenance = Provenance(**_known(Provenance, rows[0]))
        gpus = {uuid: GpuShare(**_known(GpuShare, share)) for uuid, share in rows[0].get("gpus", {}).items()}
        provenance = replace(provenance, gpus=gpus)
        _demand(str, rows[0], "commit", "machine", "recorded_at")
        _demand(dict, rows[0], "host")
        records = [record_from(row) for row in rows_of(rows[1:])]
        return provenance, sorted(records, key=lambda record: record.rank) if gpus else records
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise RecordError(
            f"{path}: a field is missing or of the wrong type ({error}); delete the file and measure again"
        ) from error


def record_from(row: dict[str, Any]) -> Record:
    """Return a record from its JSON object. Unknown fields are ignored."""
    known = _known(Record, row)
    _demand(str, row, "suite", "variant", "case", "l2", "state", "version")
    for name in ("latency", "speedup"):
        known[name] = Estimate(**_known(Estimate, known[name])) if known.get(name) else None
    costs = known.get("costs") or {}
    known["costs"] = {name: CostEstimate(**_known(CostEstimate, row)) for name, row in costs.items()}
    known["accuracy"] = Accuracy(**_known(Accuracy, known["accuracy"])) if known.get("accuracy") else None
    clocks = _known(Clocks, known.get("clocks") or {})
    known["clocks"] = Clocks(**{**clocks, "reasons": tuple(clocks.get("reasons", ()))})
    for name in ("latency_samples", "speedup_samples"):
        known[name] = tuple(float(sample) for sample in known.get(name, ()))
    known["code"] = _code_from(known["code"]) if known.get("code") else None
    return Record(**known)


def _code_from(row: dict[str, Any]) -> Code:
    kernels = tuple(Kernel(**_known(Kernel, kernel)) for kernel in row.get("kernels", ()))
    return Code(**{**_known(Code, row), "kernels": kernels})


def _demand(kind: type, row: dict[str, Any], *names: str) -> None:
    for name in names:
        if not isinstance(row[name], kind):
            raise TypeError(f"{name} is {row[name]!r}")


def _known(kind: type, row: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in row.items() if name in names}
