"""The data classes of the store: the content of a results folder as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lockstep.record.quantity import COST_TYPE, EXACT_TYPE

#: "ok"; "na" (not supported here); "failed"; "bare" (asv's number without a provenance record).
State = Literal["ok", "na", "failed", "bare"]

#: States in the order of their codes in arrays: ``STATES[trend.state[i]]``.
STATES: tuple[State, ...] = ("ok", "na", "failed", "bare")

#: Which number of a row a series gives: the latency, the speedup, or the value of another project's benchmark.
Part = Literal["latency", "speedup", "value"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: one folder, one set of hardware strings, one line of environments.

    A folder with results of two operating systems or processors is two machines. The older machine keeps the folder's
    name, the newer machine is called ``folder (what differs)``. Two environments measured side by side are two machines
    as well. An environment that starts after another has ended continues the same machine.

    Attributes:
        name: unique among the store's machines.
        folder: asv's name of the machine, which is the name of the machine's folder in the results.
        environments: asv's environment names, the oldest first. Each commit has one environment.
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
    """A commit that has results. ``date`` is in ms since 1970; ``subject`` is "" if no repository is available."""

    hash: str
    date: int
    subject: str = ""

    @property
    def short(self) -> str:
        """The first eight digits of the hash, as in the names of asv's files."""
        return self.hash[:8]


@dataclass(frozen=True, slots=True)
class Control:
    """A control of a run.

    Attributes:
        seconds: median time of a call.
        spread: robust spread, relative to the median.
        rate: B/s or FLOP/s.
    """

    seconds: float | None
    spread: float | None
    rate: float | None


@dataclass(frozen=True)
class Run:
    """One result file: a machine at a commit in an environment, with the conditions of the measurement.

    Attributes:
        machine: a ``Machine.name``.
        commit: full hash.
        date: the date of the commit, ms since 1970.
        environment: asv's name of the environment.
        path: the path of the file, relative to the results folder.
        repeats: paths of older files of the same machine, commit and environment, the oldest first. If there are
            repeats, points are means over all files, and ``path`` is the newest file.
        named: the machine that the file names; may differ from the folder's name, which the results use.
        python: Python's version, as asv writes it.
        requirements: version of each package, as asv writes it.
        strings: asv's machine strings.
        measured_at: the time of the file's newest number, ms since 1970; 0 if unknown.
        host: facts from the provenance: gpu, driver, cuda, torch, triton, python, os, cpu …; {} without provenance.
        controls: the controls copy, matmul and empty; {} without provenance.
        clock_state: from the provenance; "" without provenance.
        harness: from the provenance; "" without provenance.
        protocol: from the provenance; 0 without provenance.
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
    clock_state: str = ""
    harness: str = ""
    protocol: int = 0
    repeats: tuple[str, ...] = ()
    named: str = ""

    @cached_property
    def toolchain(self) -> Mapping[str, str]:
        """Versions of the software that a number depends on, apart from the commit: python, torch, triton, cuda, driver
        …
        """
        parts = {
            name: self.host[name] for name in ("python", "torch", "triton", "cuda", "driver") if self.host.get(name)
        }
        return {"python": self.python, **self.requirements, **parts}


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark as asv names it. All numbers of a benchmark have one unit.

    Attributes:
        name: asv's name of the benchmark.
        unit: "seconds", "bytes", "x" (a ratio), or the unit that a ``track_*`` states; "" if unknown.
        kind: asv's type: "time", "track", "memory", "peakmemory", "timeraw", "lockstep", "cost", "exact"; "" if
            unknown.
        parameters: names of the parameters, in order.
        suite: our suite, or the module and class of another project's benchmark.
        quantity: the quantity of our suite, see ``lockstep.record.quantity``; otherwise the last part of the name.
    """

    name: str
    unit: str = ""
    kind: str = ""
    parameters: tuple[str, ...] = ()
    suite: str = ""
    quantity: str = ""

    @property
    def ours(self) -> bool:
        """Whether the benchmark is the latency or the speedup of a lockstep suite."""
        return self.kind == "lockstep"

    @property
    def exact(self) -> bool:
        """Whether the benchmark is an exact quantity of a lockstep suite. Any difference of exact quantities is a
        change.
        """
        return self.kind == EXACT_TYPE

    @property
    def cost(self) -> bool:
        """Whether the benchmark is a measured quantity of a lockstep suite besides latency and speedup."""
        return self.kind == COST_TYPE

    @property
    def measured(self) -> bool:
        """Whether a measurement of a lockstep suite gives its numbers: a latency, a speedup or a cost."""
        return self.ours or self.cost

    @property
    def of_suite(self) -> bool:
        """Whether the benchmark is of a lockstep suite, in any quantity."""
        return self.measured or self.exact

    @property
    def is_ratio(self) -> bool:
        """Whether the benchmark is the speedup of a lockstep suite. Points of the suite's latency carry the same
        ratio.
        """
        return self.ours and self.quantity == "speedup"

    @property
    def part(self) -> Part:
        """Which number of a row the benchmark gives. A row of a lockstep suite has two benchmarks: latency and
        speedup.
        """
        if self.ours:
            return "speedup" if self.is_ratio else "latency"
        return "latency" if self.unit == "seconds" and not self.cost else "value"

    @property
    def key_suite(self) -> str:
        """The suite for series keys: our suite for latency and speedup, otherwise the full name of the benchmark."""
        return self.suite if self.ours else self.name

    @property
    def family(self) -> str:
        """The family of our suite (``grouped`` of ``grouped.mlp``); the suite itself in other projects."""
        return self.suite.partition(".")[0] if self.of_suite else self.suite

    @property
    def higher_is_better(self) -> bool:
        """True for speedups and rates (``GB/s``). asv itself always treats lower as better."""
        return self.quantity == "speedup" or self.unit == "x" or self.unit.lower().endswith(("/s", "per second"))


class SeriesKey(NamedTuple):
    """Identity of a series on one machine, used by pages, comparisons and addresses.

    A suite of ours stores a latency and a speedup for each series; both have the same key.

    Attributes:
        machine: a ``Machine.name``.
        suite: our suite, or the full name of another project's benchmark.
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
        """Return the key of another variant of the same case."""
        return self._replace(variant=variant)


@dataclass(frozen=True, slots=True)
class Series:
    """A benchmark with one value for each parameter, on one machine. A series is followed over the commits.

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
        """Return the value of a parameter; "" if no parameter has that name."""
        return next((value for key, value in self.axes if key == name), "")

    @property
    def text(self) -> str:
        """The parameters in words: ``size=100, dtype=float32``."""
        return ", ".join(f"{name}={value}" for name, value in self.axes)


@dataclass(frozen=True, eq=False, slots=True)
class Trend:
    """One series over the commits that measured it: arrays of equal length, oldest commit first.

    Attributes:
        series: the series.
        benchmark: the series' benchmark.
        commit: index of each point's commit in ``Results.commits(series.machine)``, ascending.
        run: index of each point's run in ``Results.runs``. The run has the environment, toolchain, controls and date.
        value: in the benchmark's unit; NaN where the state is "na" or "failed".
        low, high: our 95 % interval or asv's 99 % interval; NaN if unknown.
        error: standard error of log(value), from the interval; NaN if unknown. The error of a speedup is paired.
        log_ratio: log(baseline / variant) from pairs; NaN in other projects. A suite's latency and speedup both have
            it.
        ratio_error: standard error of ``log_ratio``; NaN if unknown.
        mde: smallest relative change that the measurement can detect; NaN if unknown.
        state: state codes, see ``STATES``.
        version: code of the benchmark's version. Points of different codes are not comparable.
            ``Results.versions[code]`` is the version's text.
        number: calls per sample (asv's stats_number); 0 if unknown.
        repeat: samples per point (asv's stats_repeat); 0 if unknown.
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

    def __len__(self) -> int:
        return len(self.commit)


@dataclass(frozen=True, slots=True)
class Point:
    """One series at one commit, with all stored facts. Numbers are as in ``Trend``, with ``None`` for NaN.

    Attributes:
        series: the series of the point.
        commit: index into ``Results.commits(series.machine)``.
        run: the run of the point.
        reason: why the state is "na" or "failed".
        note: a caution for readers of the number.
        samples: at most 100 samples, in the benchmark's unit.
        q25, q75: quartiles, if asv stored them.
        flops, bytes: the cost of the task; 0 if unknown.
        floor_s: seconds that the task takes at the rates of the machine's controls.
        bound: the rate that decides the floor, "bandwidth" or "compute"; "" if unknown.
        baseline: variant that the ratio refers to.
        epochs: sets of fresh buffers behind the ratio; 0 if unknown.
        sm_mhz, sm_mhz_low, temperature_c, power_w, clock_reasons: the state of the GPU during the measurement.
        check_error, worst_row: error of the check relative to the reference's norm, in total and in the worst row.
        deterministic: 1 if two calls on the same inputs gave the same bits, 0 if not.
        code: machine-code facts as JSON text; "" if the record has none.
        measured_at: ms since 1970; 0 if unknown.
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
