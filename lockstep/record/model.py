"""Define the record of a measurement and its provenance. ``docs/schema.md`` describes every field as it is stored.

The job that posts a pull request's comment installs nothing, so this module imports the standard library alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Version of the provenance file's layout. A reader refuses a newer version instead of guessing its meaning.
SCHEMA_VERSION = 2

#: Appended to a variant's name for the second arm of an A/A comparison.
TWIN = "~again"

#: The states of a record.
STATES = ("ok", "na", "failed")

#: The fields that only a record with state "ok" may have.
MEASURED = (
    *("latency", "speedup", "floor_s", "mde", "rounds", "epochs", "check_error", "accuracy", "deterministic"),
    *("latency_samples", "speedup_samples", "costs", "code", "chosen"),
)


@dataclass(frozen=True)
class Estimate:
    """A value with the 95 % confidence interval ``[low, high]`` in the same unit."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class CostEstimate(Estimate):
    """The estimate of a cost. Its interval was computed from ``epochs`` independent values."""

    epochs: int = 0


@dataclass(frozen=True)
class Clocks:
    """The state of the GPU while a variant was timed. A value is ``None`` if the machine does not report it.

    Attributes:
        sm_mhz: median SM clock over the replays. The clock of a replay is the number of SM cycles divided by the time
            of the GPU's nanosecond timer.
        sm_mhz_low: the lowest SM clock of a replay.
        temperature_c: GPU temperature in °C at the end.
        power_w: board power in W at the end.
        reasons: NVML clock-event reasons at the end ("power cap", …), without "idle".
        told_mhz: the reference clock to which the speedup is normalised. It stems from the series' first measurement
            (``lockstep.timing.clocks.reference_clocks``).
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
        code: fingerprint of the kernel's machine code, see ``lockstep.machine_code.model.MachineCode``; "" if unknown.
        spills: bytes of local memory per thread.
        shared: bytes of shared memory per block.
        mix: number of instructions by instruction class; empty if the kernel was not disassembled.
        warps, stages: warps of a block, and stages of its pipelined loops, as Triton compiled it; ``None`` if unknown.
    """

    name: str
    code: str
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None
    mix: Mapping[str, int] = field(default_factory=dict, hash=False)
    warps: int | None = None
    stages: int | None = None


@dataclass(frozen=True)
class Code:
    """The machine code that a variant ran.

    Attributes:
        kernels: the kernels in the order of their first launch.
        host: fingerprint of how the host launches the kernels; "" if unknown.
    """

    kernels: tuple[Kernel, ...] = ()
    host: str = ""


@dataclass(frozen=True)
class Accuracy:
    """The errors of a variant in the correctness check. If a variant has several outputs, the worst counts.

    Attributes:
        norm: ``‖out − ref‖ / ‖ref‖``.
        row, column, tile: the error of the worst row, column and 128 × 128 tile, see
            ``lockstep.timing.checks.accuracy``.
        centred: ``‖out − ref‖ / ‖ref − mean(ref)‖``.
        element: the error of the worst element.
        rounding: relative norm of the error that arises if the reference is only rounded to the output's dtype.
        non_finite: number of elements that are NaN or infinite in the output but not in the reference, or vice versa.
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
    """The result of measuring a variant in a case and cache state at a commit.

    Attributes:
        suite: ``family`` or ``family.op``.
        state: "ok"; "na" (not supported, ``reason`` says why); "failed" (wrong result, out of memory, raised,
            hung, killed; ``reason`` says which).
        rule: name of the rule (``lockstep.timing.rules.rule.Rule``) that a failed variant broke. For an "ok" variant,
            the rule because of which it has no speedup. Otherwise "".
        version: benchmark version, see ``lockstep.suite.definition.Suite``. A new version splits the series.
        latency: seconds per call.
        speedup: the baseline's latency divided by this variant's latency, from paired rounds. ``None`` if the baseline
            failed, or if the speedup was not confirmed (see ``rule``).
        flops, bytes: the task's cost in operations and bytes, independent of the variant.
        floor_s: seconds that ``bytes`` or ``flops``, whichever takes longer, need at the rates of this run's fastest
            controls.
        floor_source: "measured" (by this run's controls), or "" without a floor.
        mde: minimal detectable effect: the smallest relative change of the ratio that would be detected with 80 % power
            and 5 % false alarms.
        rounds: number of timed rounds, without voided rounds.
        epochs: number of sets of fresh buffers.
        voided: number of rounds discarded because a control's time changed.
        check_error: ``‖out − ref‖ / ‖ref‖`` of the check before timing, equal to ``accuracy.norm``.
        accuracy: all errors of the check; ``None`` in older files.
        deterministic: whether two calls on the same inputs gave the same bits; ``None`` if unknown.
        converged: whether the interval reached its required width within the budget.
        baseline: the variant with which ``speedup`` compares this one.
        note: what a reader of the number must know ("3 of 40 rounds voided: a control moved").
        costs: measured quantities besides latency and speedup (``lockstep.record.quantity.COSTS``), in their own units.
        latency_samples, speedup_samples: seconds and ratio of at most 20 rounds.
        code: the machine code that ran; ``None`` if unknown (on a CPU, in old files).
        chosen: the configuration that a tuner chose for each tuned kernel, such as "num_warps 4".
        gpu: UUID of the GPU, if records of several GPUs share the file (``Provenance.gpus``); otherwise "".
        sources: digest of the files that decide what the suite's variants do in this commit; "" if unknown.
        work: digest of what a call gives the GPU to do (``lockstep.same_work``); "" if unknown.
        same_work_as: hash of the commit whose measurement this record repeats, because both commits give the GPU the
            same work; "" for a measurement. Its numbers are copies, and its only sample is the estimate.
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
    chosen: Mapping[str, str] = field(default_factory=dict, hash=False)
    gpu: str = ""
    sources: str = ""
    work: str = ""
    same_work_as: str = ""

    def validated(self) -> Record:
        """Return the record if its state allows the fields that it has. Files of earlier versions are read without it.

        Raises:
            ValueError: the state is unknown, a record of this state needs a field that is missing, or has one that it
                must not have.
        """
        if self.state not in STATES:
            raise ValueError(f"{self.key}: state {self.state!r} is none of {', '.join(STATES)}")
        measured = [name for name in MEASURED if getattr(self, name) not in (None, (), {}, 0)]
        if self.state == "ok" and (self.latency is None or self.reason):
            raise ValueError(f"{self.key}: a record that is ok needs a latency, and has no reason")
        if self.state != "ok" and (measured or not self.reason):
            raise ValueError(f"{self.key}: a record that is {self.state} needs a reason, and has no {measured}")
        if self.same_work_as and self.state == "failed":
            raise ValueError(f"{self.key}: a failure is never that of another commit, {self.same_work_as}")
        if self.rule and self.state != "failed" and (self.state == "na" or self.speedup is not None):
            raise ValueError(f"{self.key}: the rule {self.rule} is for a failed record, or for one without a speedup")
        return self

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Suite, variant, case and cache state, which identify the series; with ``gpu`` the record within its file."""
        return self.suite, self.variant, self.case, self.l2

    @property
    def rank(self) -> tuple[bool, str, str]:
        """The rank among the records of a series at one commit. The greatest counts: the last that is not a copy."""
        return not self.same_work_as, self.started_at, self.gpu


@dataclass(frozen=True)
class GpuShare:
    """What the provenance of a merged file holds of one GPU.

    Attributes:
        host: those facts of ``Provenance.host`` that differ between the GPUs.
        recorded_at, harness, controls, spent_s: as in ``Provenance``.
    """

    host: Mapping[str, str]
    recorded_at: str
    harness: str
    controls: Mapping[str, Mapping[str, float | str | None]]
    spent_s: Mapping[str, float]


@dataclass(frozen=True)
class Provenance:
    """The conditions under which the records of a file were measured.

    Attributes:
        commit: full hash of the commit whose packages were measured.
        environment: asv's environment name.
        machine: asv's machine name, which includes the clock state.
        recorded_at: time of the first record, ISO 8601, UTC.
        harness: commit of the benchmark definitions and of Lockstep ("…+dirty" with uncommitted changes, "" if
            unknown).
        clock_state: "locked@1500", "base", "unlocked", "unlocked(no permission)", "cpu".
        host: gpu, gpu_uuid, driver, cuda, torch, triton, ptxas (Triton's assembler), python, os, cpu and torch's math
            flags; of scripts see ``lockstep.record.script_facts``.
        controls: {"seconds", "spread", "rate", "unit"} of each control ("copy", "matmul", "empty").
        protocol: lockstep.suite.definition.PROTOCOL_VERSION at the time of the measurement.
        schema: version of the file's layout, see ``SCHEMA_VERSION``.
        spent_s: seconds that the last run which wrote the file spent in each stage ("time", "capture", …, see
            ``lockstep.timing.stage_times``).
        gpus: by UUID, what differs between the GPUs that measured the records of a merged file; {} for one GPU.
            A fact of ``host`` in which they differ is a list, joined by ", ".
    """

    commit: str
    environment: str
    machine: str
    recorded_at: str
    harness: str
    clock_state: str
    host: Mapping[str, str]
    controls: Mapping[str, Mapping[str, float | str | None]]
    protocol: int
    schema: int = SCHEMA_VERSION
    spent_s: Mapping[str, float] = field(default_factory=dict)
    gpus: Mapping[str, GpuShare] = field(default_factory=dict)

    def host_of(self, record: Record) -> Mapping[str, str]:
        """Return the facts of the machine and GPU that measured a record of the file."""
        share = self.gpus.get(record.gpu)
        return {**self.host, **share.host} if share else self.host
