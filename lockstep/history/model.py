"""Define the data classes of the store, which describe machines, commits, runs, benchmarks, series and points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lockstep.record.quantity import COST_TYPE, EXACT_TYPE, Better

#: What a point holds: a number ("ok"), a number of asv without a provenance record ("bare"), or no number because the
#: case is not supported ("na") or because it failed ("failed").
State = Literal["ok", "na", "failed", "bare"]

#: States in the order of their codes in arrays: ``STATES[trend.state[i]]``.
STATES: tuple[State, ...] = ("ok", "na", "failed", "bare")

#: The reason that is shown for asv's NaN ("na") and null ("failed").
NO_NUMBER: Mapping[State, str] = {"na": "skipped", "failed": "asv stored no number"}

#: Which number of a stored row a series shows: the latency, the speedup, or the value of another project's benchmark.
Part = Literal["latency", "speedup", "value"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine whose numbers are comparable over time.

    All of its results have the same folder and the same hardware. If a folder holds results of two operating systems or
    processors, they are two machines. The older one has the folder's name, and the newer one is called ``folder (what
    differs)``. Two environments that are measured side by side are also two machines. An environment that begins after
    another has ended belongs to the same machine.

    Attributes:
        name: unique among the store's machines.
        folder: asv's name of the machine, which is the name of the machine's folder in the results.
        environments: asv's environment names, the oldest first. Each commit was measured in one of them.
        strings: asv's machine strings of the machine's newest run: os, cpu, arch, num_cpu, ram, gpu …
        clock_state: clock state of the newest run: "locked@1500", "unlocked", "cpu" …; "" in other projects' results.
        last_date: the date of the machine's newest commit, ms since 1970.
    """

    name: str
    folder: str
    environments: tuple[str, ...]
    strings: Mapping[str, str]
    clock_state: str
    last_date: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that has results.

    Attributes:
        date: ms since 1970.
        subject: "" if git does not know the commit.
        apart: whether the commit is off the line (``lockstep.history.line``).
        fork: for a commit apart, full hash of the commit of the line where it forked; "" if unknown.
        base: the fork, or the newest measured commit of the line before it; "" if unknown.
        by_date: whether git could not place the commit, so that its date places it.
    """

    hash: str
    date: int
    subject: str = ""
    apart: bool = False
    fork: str = ""
    base: str = ""
    by_date: bool = False

    @property
    def short(self) -> str:
        """The first eight digits of the commit's hash, as in the names of asv's files."""
        return self.hash[:8]


@dataclass(frozen=True, slots=True)
class Control:
    """A measurement of a control, a fixed operation that shows how fast the machine itself was during a run.

    Attributes:
        seconds: median time of a call.
        rate: bytes or floating-point operations per second.
    """

    seconds: float | None
    rate: float | None


@dataclass(frozen=True)
class Run:
    """One measurement of a commit on a machine, with its conditions. A result file holds one run.

    Attributes:
        machine: a ``Machine.name``.
        commit: full hash.
        date: the date of the commit, ms since 1970.
        environment: asv's name of the environment.
        path: the path of the file, relative to the results folder; of the newest file if several measured the commit.
        named: the machine that the file names. It may differ from the name of the folder, which Lockstep uses.
        python: Python's version, as asv writes it.
        requirements: version of each package, as asv writes it.
        strings: asv's machine strings.
        measured_at: the time of the file's newest number, ms since 1970; 0 if unknown.
        host: facts from the provenance: gpu, driver, cuda, torch, triton, python, os, cpu …; {} without provenance.
        controls: the controls copy, matmul and empty; {} without provenance.
        gpu_controls: the controls of each GPU (``Trend.gpu``), if several GPUs measured the run.
        clock_state: state of the clocks, such as "locked@1500"; "" without provenance.
        harness: commit of the suites and of Lockstep; "" without provenance.
        protocol: version of the measuring protocol; 0 without provenance.
    """

    machine: str
    commit: str
    date: int
    environment: str
    path: str
    python: str = ""
    requirements: Mapping[str, str] = field(default_factory=dict)
    strings: Mapping[str, str] = field(default_factory=dict)
    measured_at: int = 0
    host: Mapping[str, str] = field(default_factory=dict)
    controls: Mapping[str, Control] = field(default_factory=dict)
    gpu_controls: Mapping[int, Mapping[str, Control]] = field(default_factory=dict)
    clock_state: str = ""
    harness: str = ""
    protocol: int = 0
    named: str = ""

    @cached_property
    def toolchain(self) -> Mapping[str, str]:
        """Versions of the software on which a number depends besides the commit: python, torch, triton, cuda …"""
        parts = {
            name: self.host[name] for name in ("python", "torch", "triton", "cuda", "driver") if self.host.get(name)
        }
        return {"python": self.python, **self.requirements, **parts}

    @property
    def board(self) -> str:
        """The first digits of the UUID of each GPU; "" if unknown."""
        return ", ".join(uuid.removeprefix("GPU-")[:8] for uuid in self.host.get("gpu_uuid", "").split(", "))


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark under asv's name. All of its numbers have the same unit.

    Attributes:
        name: asv's name of the benchmark.
        unit: "seconds", "bytes", "x" (a ratio), or the unit that a ``track_*`` states; "" if unknown.
        kind: type that asv's table states: "time", "track", "memory", "peakmemory", "timeraw", "lockstep", "cost",
            "exact"; "" if unknown.
        parameters: names of the parameters, in order.
        suite: the Lockstep suite, or the module and class of another project's benchmark.
        quantity: the quantity of a Lockstep suite, see ``lockstep.record.quantity``; otherwise the last part of the
            name.
        better: the better direction. For other projects' benchmarks, a rule of thresholds.toml may state another one.
    """

    name: str
    unit: str = ""
    kind: str = ""
    parameters: tuple[str, ...] = ()
    suite: str = ""
    quantity: str = ""
    better: Better = "neither"

    @property
    def ours(self) -> bool:
        """Whether the benchmark is the latency or the speedup of a Lockstep suite."""
        return self.kind == "lockstep"

    @property
    def exact(self) -> bool:
        """Whether the benchmark is a quantity of a Lockstep suite without noise, so every difference is a change."""
        return self.kind == EXACT_TYPE

    @property
    def cost(self) -> bool:
        """Whether the benchmark is a measured quantity of a Lockstep suite other than latency and speedup."""
        return self.kind == COST_TYPE

    @property
    def measured(self) -> bool:
        """Whether a Lockstep suite measures the benchmark: a latency, a speedup or a cost."""
        return self.ours or self.cost

    @property
    def of_suite(self) -> bool:
        """Whether the benchmark is any quantity of a Lockstep suite."""
        return self.measured or self.exact

    @property
    def is_ratio(self) -> bool:
        """Whether the benchmark is the speedup of a Lockstep suite, whose points also store the latency."""
        return self.ours and self.quantity == "speedup"

    @property
    def part(self) -> Part:
        """Which number of a stored row belongs to the benchmark. One row stores the latency and the speedup."""
        if self.ours:
            return "speedup" if self.is_ratio else "latency"
        return "latency" if self.unit == "seconds" and not self.cost else "value"

    @property
    def key_suite(self) -> str:
        """The suite in a ``SeriesKey``: the Lockstep suite of a latency or speedup, else the benchmark's full name."""
        return self.suite if self.ours else self.name

    @property
    def family(self) -> str:
        """The family of a Lockstep suite (``grouped`` of ``grouped.mlp``); the suite itself in other projects."""
        return self.suite.partition(".")[0] if self.of_suite else self.suite


class SeriesKey(NamedTuple):
    """Key by which pages, comparisons and addresses name a series.

    The latency and the speedup of a variant in a case have the same key.

    Attributes:
        machine: a ``Machine.name``.
        suite: the Lockstep suite, or the full name of another project's benchmark.
        variant: as the suite names it; "" if there is none.
        case: as the suite names it, joined with all other parameters; "" if there is none.
        l2: the cache state, as the suite names it; "" if there is none.
    """

    machine: str
    suite: str
    variant: str = ""
    case: str = ""
    l2: str = ""

    def of(self, variant: str) -> SeriesKey:
        """Return the key of another variant in the same case."""
        return self._replace(variant=variant)


@dataclass(frozen=True, slots=True)
class Series:
    """What is followed over the commits: a benchmark with one value for each parameter, on one machine.

    Attributes:
        machine: a ``Machine.name``.
        benchmark: a ``Benchmark.name``.
        axes: parameter name and value, in the benchmark's order. The value is asv's text, without quotes if the text
            is unambiguous without them.
    """

    machine: str
    benchmark: str
    axes: tuple[tuple[str, str], ...] = ()

    def axis(self, name: str) -> str:
        """Return the series' value of a parameter; "" if no parameter has that name."""
        return next((value for key, value in self.axes if key == name), "")

    @property
    def text(self) -> str:
        """The parameters of the series for people: ``size=100, dtype=float32``."""
        return ", ".join(f"{name}={value}" for name, value in self.axes)


@dataclass(frozen=True, eq=False, slots=True)
class Trend:
    """The points of a series as arrays of equal length, oldest commit first.

    Attributes:
        commit: index of each point's commit in ``Results.commits(series.machine)``, ascending.
        run: index of each point's run in ``Results.runs``. The run has the environment, toolchain, controls and date.
        value: in the benchmark's unit; NaN where the state is "na" or "failed".
        low, high: Lockstep's 95 % interval or asv's 99 % interval; NaN if unknown.
        error: standard error of log(value), from the interval; NaN if unknown. The error of a speedup comes from paired
            rounds.
        log_ratio: log(baseline / variant) from paired rounds, for the latency and the speedup of a suite; NaN in other
            projects.
        ratio_error: standard error of ``log_ratio``; NaN if unknown.
        mde: smallest relative change that the measurement can detect; NaN if unknown.
        state: state codes, see ``STATES``.
        version: code of the benchmark's version, whose text is ``Results.versions[code]``. Points of different versions
            are not comparable.
        number: calls per sample (asv's stats_number); 0 if unknown.
        repeat: samples per point (asv's stats_repeat); 0 if unknown.
        same_work_as: the commit whose numbers a point copies (``lockstep.history.hex_digits``), because both give the
            GPU the same work; 0 for a measurement. A copy adds no evidence.
        gpu: the GPU that measured the point (``lockstep.history.hex_digits``); 0 if unknown. A series moves where it
            changes.
        bridge: log(value / value on another GPU), at a commit that two GPUs measured; NaN at other commits. The point
            is that of the GPU that measured last.
    """

    series: Series
    benchmark: Benchmark
    commit: Ints
    run: Ints
    value: Floats
    low: Floats
    high: Floats
    error: Floats
    log_ratio: Floats
    ratio_error: Floats
    mde: Floats
    state: NDArray[np.uint8]
    version: Ints
    number: Ints
    repeat: Ints
    same_work_as: NDArray[np.int64]
    gpu: NDArray[np.int64]
    bridge: Floats

    def __len__(self) -> int:
        return len(self.commit)


def gpu_moves(gpu: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether a series moves to another GPU after each of its points except the last; see ``Trend.gpu``."""
    moves: NDArray[np.bool_] = (gpu[1:] != gpu[:-1]) & (gpu[1:] != 0) & (gpu[:-1] != 0)
    return moves


@dataclass(frozen=True, slots=True)
class Point:
    """A series at one commit, with all stored facts. An attribute of ``Trend`` has the same meaning here, with ``None``
    for NaN.

    Attributes:
        commit: index into ``Results.commits(series.machine)``.
        reason: why the state is "na" or "failed".
        note: a caution that readers of the number should see.
        samples: at most 100 samples, in the benchmark's unit.
        q25, q75: quartiles, if asv stored them.
        flops, bytes: the cost of the task; 0 if unknown.
        floor_s: seconds that the task would take at the rates of the machine's controls.
        bound: the rate that decides the floor, "bandwidth" or "compute"; "" if unknown.
        baseline: the variant whose time is divided by this variant's time in the ratio.
        epochs: sets of fresh buffers behind the ratio; 0 if unknown.
        sm_mhz, sm_mhz_low, temperature_c, power_w, clock_reasons: the state of the GPU during the measurement.
        check_error, worst_row: error against the reference, relative to its norm, in total and in the worst row.
        deterministic: 1 if two calls on the same inputs gave the same bits, 0 if not.
        code: machine-code facts as JSON text; "" if the record has none.
        measured_at: ms since 1970; 0 if unknown.
        same_work_as: the commit whose numbers the point copies, without a measurement; "" for a measurement. Its full
            hash, or 16 digits if that commit has no results.
        gpu: the first digits of the UUID of the GPU that measured the point; "" if unknown.
        work: digest of what a call gives the GPU to do, equal in all processes with one toolchain; "" if unknown.
    """

    series: Series
    commit: int
    run: Run
    state: State
    version: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    error: float | None = None
    log_ratio: float | None = None
    ratio_error: float | None = None
    mde: float | None = None
    number: int = 0
    repeat: int = 0
    epochs: int = 0
    q25: float | None = None
    q75: float | None = None
    samples: tuple[float, ...] = ()
    reason: str = ""
    note: str = ""
    baseline: str = ""
    flops: float = 0.0
    bytes: float = 0.0
    floor_s: float | None = None
    floor_source: str = ""
    bound: str = ""
    sm_mhz: float | None = None
    sm_mhz_low: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    check_error: float | None = None
    worst_row: float | None = None
    deterministic: float | None = None
    clock_reasons: tuple[str, ...] = ()
    code: str = ""
    measured_at: int = 0
    same_work_as: str = ""
    gpu: str = ""
    work: str = ""
