"""The result of one measurement. ``docs/schema.md`` describes every field as it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Version of the file's layout. A reader names a newer version in an error instead of guessing.
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
    """The estimate of a cost. ``epochs`` is the number of independent values from which the interval was computed."""

    epochs: int = 0


@dataclass(frozen=True)
class Clocks:
    """Clocks while one arm ran; ``None`` if the machine does not report them.

    Attributes:
        sm_mhz: median SM clock: SM cycles over the GPU's nanosecond timer around each replay.
        sm_mhz_low: SM clock of the lowest replay.
        temperature_c: GPU temperature in °C at the end.
        power_w: board power in W at the end.
        reasons: NVML clock-event reasons at the end ("power cap", …), without "idle".
        told_mhz: the reference clock to which the speedup is normalised: the mean clock of the first measurement of the
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
    """A Triton or Gluon kernel that a variant launched during its measurement.

    Attributes:
        name: the name of the function.
        code: fingerprint of the kernel's machine code, see ``lockstep.machine_code.MachineCode``; "" if unknown.
        registers: registers per thread.
        spills: bytes of local memory per thread.
        shared: bytes of shared memory per block.
        mix: number of instructions by instruction class; empty if the kernel was not disassembled.
    """

    name: str
    code: str
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None
    mix: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Code:
    """The code that ran.

    Attributes:
        kernels: kernels in the order of their first launch.
        host: fingerprint of the host side, or "".
    """

    kernels: tuple[Kernel, ...] = ()
    host: str = ""


@dataclass(frozen=True)
class Accuracy:
    """Relative errors of a variant's outputs in the check. Each error is the worst over the outputs.

    Attributes:
        norm: ``‖out − ref‖ / ‖ref‖``.
        row, column, tile: the error of the worst row, column and 128 × 128 tile, see ``lockstep.timing.accuracy``.
        centred: ``‖out − ref‖ / ‖ref − mean(ref)‖``.
        element: the error of the worst element.
        rounding: norm of the error that rounding to the output's dtype causes in the reference.
        non_finite: number of elements that are NaN or infinite in only one of output and reference.
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
        state: "ok"; "na" (not supported here, ``reason`` says why); "failed" (wrong result, out of memory, raised,
            hung, killed; ``reason`` says which).
        rule: name of the rule (``lockstep.timing.rules.Rule``) that a failed variant broke, or because of which the
            speedup of an "ok" variant is withheld; or "".
        version: benchmark version, a digest of the benchmark definition; another version is another series.
        latency: seconds per call.
        speedup: baseline's latency over this variant's latency, from pairs. ``None`` if the baseline failed, or if the
            speedup was not confirmed (``rule`` says so).
        flops, bytes: the task's cost in operations and bytes, independent of the variant.
        floor_s: seconds that ``bytes`` or ``flops`` take at the rates of this run's fastest controls.
        floor_source: "measured" (by this run's controls), or "" without a floor.
        mde: minimal detectable effect, a relative change of the ratio (5 % false alarms, 80 % power).
        rounds: number of timed rounds that count.
        epochs: number of sets of fresh buffers.
        voided: number of voided rounds.
        check_error: ``‖out − ref‖ / ‖ref‖`` of the check before timing, equal to ``accuracy.norm``.
        accuracy: all errors of the check; ``None`` in older files.
        deterministic: whether two calls on the same inputs gave the same bits; ``None`` if unknown.
        converged: whether the interval reached its required width within the budget.
        baseline: the variant that ``speedup`` refers to.
        note: anything a reader of the number must know ("3 of 40 rounds voided: a control moved").
        costs: measured quantities besides latency and speedup (``lockstep.record.quantity.COSTS``), in their own units.
        latency_samples, speedup_samples: seconds and ratio of at most 20 rounds.
        code: the machine code that ran; ``None`` if unknown (on a CPU, in old files).
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
        """The identity of the series within one file."""
        return self.suite, self.variant, self.case, self.l2


@dataclass(frozen=True)
class Provenance:
    """The conditions under which the records of one file were measured.

    Attributes:
        commit: full hash of the commit whose packages were measured.
        environment: asv's environment name.
        machine: asv's machine name, which includes the clock state.
        recorded_at: time of the first record, ISO 8601, UTC.
        harness: commit of benchmark definitions and harness ("…+dirty" with uncommitted changes, "" if unknown).
        clock_state: "locked@1500", "base", "unlocked", "unlocked(no permission)", "cpu".
        host: gpu, gpu_uuid, driver, cuda, torch, triton, ptxas (Triton's assembler), python, os, cpu and torch's math
            flags.
        controls: {"seconds", "spread", "rate", "unit"} of each control ("copy", "matmul", "empty").
        protocol: lockstep.suite.model.PROTOCOL_VERSION at the time of the measurement.
        schema: layout of this file.
        spent_s: seconds of each stage ("time", "capture", …, see ``lockstep.timing.stage_times``) in the last run that
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
