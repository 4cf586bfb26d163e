"""The result of one measurement. ``docs/schema.md`` describes every field as it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Version of the file's layout. A reader refuses a newer one by name instead of guessing.
SCHEMA_VERSION = 2

#: Appended to a variant's name for the second arm of an A/A comparison.
TWIN = "~again"


@dataclass(frozen=True)
class Estimate:
    """A value with the 95 % confidence interval ``[low, high]`` in the same unit."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class CostEstimate(Estimate):
    """An estimate that has an interval of its own; ``epochs`` is the number of independent values behind it."""

    epochs: int = 0


@dataclass(frozen=True)
class Clocks:
    """Clocks while one arm ran; ``None`` where the machine does not report them.

    Attributes:
        sm_mhz: median SM clock, from SM cycles against the GPU's nanosecond timer around each replay.
        sm_mhz_low: lowest replay's.
        temperature_c: GPU temperature in °C at the end.
        power_w: board power in W at the end.
        reasons: NVML clock-event reasons active at the end ("power cap", …), "idle" left out.
        told_mhz: the reference clock that the speedup is normalised to: the mean clock of the first measurement of the
            series (``lockstep.timing.reference_clocks``).
    """

    sm_mhz: float | None = None
    sm_mhz_low: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    reasons: tuple[str, ...] = ()
    told_mhz: float | None = None


@dataclass(frozen=True)
class Kernel:
    """A Triton or Gluon kernel that a variant launched while it was measured.

    Attributes:
        name: the name of the function.
        code: fingerprint of the kernel's machine code, see ``lockstep.machine_code.MachineCode``; "" if unknown.
        registers: registers per thread.
        spills: bytes of local memory per thread.
        shared: bytes of shared memory per block.
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
    """The code that ran: kernels in the order of their first launch, and the fingerprint of the host side or ""."""

    kernels: tuple[Kernel, ...] = ()
    host: str = ""


@dataclass(frozen=True)
class Accuracy:
    """Relative errors of a variant's outputs in the check, each the worst over the outputs.

    Attributes:
        norm: ``‖out − ref‖ / ‖ref‖``.
        row, column, tile: the error of the worst row, column and 128 × 128 tile, see ``lockstep.timing.accuracy``.
        centred: ``‖out − ref‖ / ‖ref − mean(ref)‖``.
        element: the error of the worst element.
        rounding: norm of the error that the reference has when it is rounded to the output's dtype.
        non_finite: elements that are NaN or infinite on one side alone.
    """

    norm: float
    row: float
    column: float
    tile: float
    centred: float
    element: float
    rounding: float
    non_finite: int = 0


@dataclass(frozen=True)
class Record:
    """One series (suite × variant × case × cache state) at one commit.

    Attributes:
        suite: ``family`` or ``family.op``.
        state: "ok"; "na" (not supported here, ``reason`` says why); "failed" (wrong result, out of
            memory, raised, hung, killed; ``reason`` says which).
        rule: name of the rule that a failed variant broke (``lockstep.timing.rules.Rule``), or for which the speedup of
            one that is "ok" is withheld; or "".
        version: benchmark version, a digest of the benchmark definition; another version is another series.
        latency: seconds a call.
        speedup: baseline's latency over this one's, from pairs. ``None`` when the baseline failed, or
            where nobody confirmed it (``rule`` says so).
        flops, bytes: the task's cost in operations and bytes, independent of the variant.
        floor_s: seconds that ``bytes`` or ``flops`` take at the rates of this run's fastest controls.
        floor_source: "measured" (by this run's controls), or "" without a floor.
        mde: minimal detectable effect, a relative change of the ratio (5 % false alarms, 80 % power).
        rounds, epochs, voided: timed rounds that count, sets of fresh buffers, voided rounds.
        check_error: ``‖out − ref‖ / ‖ref‖`` of the check before timing, ``accuracy.norm``.
        accuracy: all measures of the check; ``None`` in older files.
        deterministic: whether two calls on the same inputs gave the same bits; ``None`` where it is unknown.
        converged: whether the interval was as narrow as asked before the budget ended.
        baseline: the variant that ``speedup`` refers to.
        note: anything a reader of the number must know ("3 of 40 rounds voided: a control moved").
        costs: measured quantities besides latency and speedup (``lockstep.record.quantity.COSTS``), in their units.
        latency_samples, speedup_samples: per round, seconds and ratio, at most 20 of them.
        code: the machine code that ran; ``None`` where it is unknown (on a CPU, in old files).
    """

    suite: str
    variant: str
    case: str
    l2: str
    state: str
    version: str
    reason: str = ""
    rule: str = ""
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
    accuracy: Accuracy | None = None
    deterministic: bool | None = None
    converged: bool = True
    baseline: str = ""
    note: str = ""
    clocks: Clocks = field(default_factory=Clocks)
    started_at: str = ""
    wall_s: float = 0.0
    latency_samples: tuple[float, ...] = ()
    speedup_samples: tuple[float, ...] = ()
    costs: Mapping[str, CostEstimate] = field(default_factory=dict, hash=False)
    code: Code | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return the identity of the series within one file."""
        return self.suite, self.variant, self.case, self.l2


@dataclass(frozen=True)
class Provenance:
    """Where and how the records of one file were measured.

    Attributes:
        commit: full hash of the commit whose packages were measured.
        environment: asv's environment name.
        machine: asv's machine name; the clock state is part of it.
        recorded_at: ISO 8601, UTC, when the first record was taken.
        harness: commit of benchmark definitions and harness ("…+dirty" with uncommitted changes, "" unknown).
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
