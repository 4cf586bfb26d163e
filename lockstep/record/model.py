"""What one measurement says, as it is stored beside asv's results.

asv's file of a commit and environment, ``results/MACHINE/COMMIT-ENV.json``, has no place for clocks,
intervals of a ratio or the toolchain. They go into ``COMMIT-ENV.provenance.jsonl`` beside it: the
first line is a ``Provenance``, the further ones tell each ``Record`` (``lockstep.record.lines``). The
file is replaced whole and atomically, so a reader never sees half of one. ``docs/schema.md`` describes
every field.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from lockstep.record.lines import json_line, lines_of, rows_of

#: Version of the file's layout. A reader refuses a newer one by name instead of guessing.
SCHEMA_VERSION = 2

SUFFIX = ".provenance.jsonl"

#: Appended to a variant's name for the second arm of an A/A comparison.
TWIN = "~again"


class RecordError(ValueError):
    """A file beside asv's results cannot be read; the message names the file, the line and what to do."""


@dataclass(frozen=True)
class Estimate:
    """A value with the 95 % confidence interval ``[low, high]`` in the same unit."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Clocks:
    """Clocks while one arm ran. ``None`` where the machine does not tell.

    Attributes:
        sm_mhz: median SM clock, from SM cycles against the GPU's nanosecond timer around each replay.
        sm_mhz_low: lowest replay's.
        temperature_c: GPU temperature in °C at the end.
        power_w: board power in W at the end.
        reasons: NVML clock-event reasons active at the end ("power cap", …), "idle" left out.
        told_mhz: the clock at which the speedup tells the arm: the mean one that its series met when it was first
            measured (``lockstep.timing.reference_clocks``).
    """

    sm_mhz: float | None = None
    sm_mhz_low: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    reasons: tuple[str, ...] = ()
    told_mhz: float | None = None


@dataclass(frozen=True)
class Kernel:
    """One Triton or Gluon kernel that a variant launched while it was measured.

    Attributes:
        name: of the function.
        code: fingerprint of its machine code, see ``lockstep.machine_code.MachineCode``; "" where none could be had.
        registers: a thread.
        spills: bytes of local memory a thread.
        shared: bytes of shared memory a block.
        mix: instruction class to number of instructions; empty if it was not disassembled.
    """

    name: str
    code: str
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None
    mix: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Code:
    """What ran: kernels in the order of their first launch, and the fingerprint of the host side ("" unknown)."""

    kernels: tuple[Kernel, ...] = ()
    host: str = ""


@dataclass(frozen=True)
class Record:
    """One series (suite × variant × case × cache state) at one commit.

    Attributes:
        suite: ``family`` or ``family.op``.
        state: "ok"; "na" (not supported here, ``reason`` says why); "failed" (wrong result, out of
            memory, raised, hung, killed; ``reason`` says which).
        version: the ruler's digest (asv's benchmark version); another one is another series.
        latency: seconds a call.
        speedup: baseline's latency over this one's, from pairs. ``None`` when the baseline failed.
        flops, bytes: the task's cost in operations and bytes, independent of the variant.
        floor_s: seconds that ``bytes`` or ``flops`` take at the rates of this run's fastest controls.
        floor_source: "measured" (by this run's controls), or "" without a floor.
        mde: smallest relative change of the ratio that this measurement could tell (5 % false alarms, 80 % power).
        rounds, epochs, voided: timed rounds that count, sets of fresh buffers, rounds thrown out.
        check_error: ``‖out − ref‖ / ‖ref‖`` of the check before timing.
        converged: whether the interval was as narrow as asked before the budget ended.
        baseline: the variant that ``speedup`` refers to.
        note: anything a reader of the number must know ("3 of 40 rounds voided: a control moved").
        latency_samples, speedup_samples: per round, seconds and ratio, at most 20 of them.
        code: the machine code that ran; ``None`` where it is not known (on a CPU, in old files).
    """

    suite: str
    variant: str
    case: str
    l2: str
    state: str
    version: str
    reason: str = ""
    latency: Estimate | None = None
    speedup: Estimate | None = None
    flops: float = 0.0
    bytes: float = 0.0
    floor_s: float | None = None
    floor_source: str = ""
    mde: float | None = None
    rounds: int = 0
    epochs: int = 0
    voided: int = 0
    check_error: float | None = None
    converged: bool = True
    baseline: str = ""
    note: str = ""
    clocks: Clocks = field(default_factory=Clocks)
    started_at: str = ""
    wall_s: float = 0.0
    latency_samples: tuple[float, ...] = ()
    speedup_samples: tuple[float, ...] = ()
    code: Code | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Identity of the series within one file."""
        return self.suite, self.variant, self.case, self.l2


@dataclass(frozen=True)
class Provenance:
    """Where and how the records of one file were measured.

    Attributes:
        commit: full hash of the commit whose packages were measured.
        environment: asv's environment name.
        machine: asv's machine name; the clock state is part of it.
        recorded_at: ISO 8601, UTC, when the first record was taken.
        harness: commit of the ruler and harness ("…+dirty" with uncommitted changes, "" unknown).
        clock_state: "locked@1500", "base", "unlocked", "unlocked(no permission)", "cpu".
        host: gpu, gpu_uuid, driver, cuda, torch, triton, ptxas (Triton's assembler), python, os, cpu and torch's
            math flags.
        controls: name ("copy", "matmul", "empty") to {"seconds", "spread", "rate", "unit"}.
        protocol: lockstep.suite.model.PROTOCOL_VERSION when measured.
        schema: layout of this file.
        spent_s: stage ("time", "capture", …, see ``lockstep.timing.stage_times``) to seconds, of the last run that
            wrote the file.
    """

    commit: str
    environment: str
    machine: str
    recorded_at: str
    harness: str
    clock_state: str
    host: Mapping[str, str]
    controls: Mapping[str, Mapping[str, float | str]]
    protocol: int
    schema: int = SCHEMA_VERSION
    spent_s: Mapping[str, float] = field(default_factory=dict)


def write_records(path: Path, provenance: Provenance, records: Iterable[Record]) -> None:
    """Replace ``path`` with these records, atomically: a crash leaves the old file or the new one.

    Records of one case, cache state and state are put together, where the first of them stands.
    """
    first = json_line(asdict(replace(provenance, schema=SCHEMA_VERSION)))
    text = "".join([first, *lines_of(records, Record("", "", "", "", "", ""))])
    replace_file(path, text)


def replace_file(path: Path, text: str) -> None:
    """Write a file whole, atomically."""
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


def read_records(path: Path) -> tuple[Provenance, list[Record]]:
    """Read a provenance file.

    Unknown fields of a line are ignored (a newer minor version may add some); absent ones have their default.

    Raises:
        RecordError: not UTF-8, not JSON, half written, a newer schema, or a line whose structure or identity
            has the wrong type. Numbers and notes are handed on as they stand.
        FileNotFoundError: no such file.
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
            raise RecordError(f"{path}, line {number}: expected an object, got {type(row).__name__}")
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
        _demand(str, rows[0], "commit", "machine", "recorded_at")
        _demand(dict, rows[0], "host")
        return provenance, [record_from(row) for row in rows_of(rows[1:])]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise RecordError(f"{path}: a field is missing or of the wrong type ({error})") from error


def record_from(row: dict[str, Any]) -> Record:
    """A record from its JSON object; unknown fields are ignored."""
    known = _known(Record, row)
    _demand(str, row, "suite", "variant", "case", "l2", "state", "version")
    for name in ("latency", "speedup"):
        known[name] = Estimate(**_known(Estimate, known[name])) if known.get(name) else None
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
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in row.items() if name in names}
