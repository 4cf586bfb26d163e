"""The nouns of the store: what a results folder holds, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lockstep.record.quantity import EXACT_TYPE

#: "ok"; "na" (not supported here); "failed"; "bare" (asv's number, that no provenance stands behind).
State = Literal["ok", "na", "failed", "bare"]

#: States by the code that arrays hold: ``STATES[trend.state[i]]``.
STATES: tuple[State, ...] = ("ok", "na", "failed", "bare")

#: A number of a row: seconds, baseline's time over the variant's, or another unit of another project.
Part = Literal["latency", "speedup", "value"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as series know it: one folder, one set of hardware strings, one line of environments.

    A folder that holds results of two operating systems or processors is two machines; the one that was
    there first keeps the folder's name, the other is called ``folder (what differs)``. Two environments
    measured side by side are two machines as well; one that took over where another ended continues it.

    Attributes:
        name: unique among the store's machines.
        folder: asv's name of the machine, which is the folder below the results.
        environments: asv's environment names, the oldest first; one at each commit.
        strings: asv's machine strings of the machine's newest run: os, cpu, arch, num_cpu, ram, gpu …
        clock_state: of its newest run: "locked@1500", "unlocked", "cpu" …; "" in other projects' results.
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
    """A commit that has results. ``subject`` is "" where no repository tells it; ``date`` in ms since 1970."""

    hash: str
    date: int
    subject: str = ""

    @property
    def short(self) -> str:
        """The first eight digits, as asv names its files."""
        return self.hash[:8]


@dataclass(frozen=True, slots=True)
class Control:
    """A control's median ``seconds`` a call, robust ``spread`` (of the median), and ``rate`` in B/s or FLOP/s."""

    seconds: float | None
    spread: float | None
    rate: float | None


@dataclass(frozen=True)
class Run:
    """One result file: a machine at a commit in an environment, and what it was measured with.

    Attributes:
        machine: a ``Machine.name``.
        commit: full hash; date in ms since 1970.
        environment: asv's name of the environment.
        path: the path of the file, relative to the results folder.
        repeats: of further files of the same machine, commit and environment, the oldest first; where there are some,
            points are means and ``path`` is the newest file.
        named: asv's name of the machine in the file; results of a folder go by the folder's name.
        python: version, as asv has it.
        requirements: asv's: package to version.
        strings: asv's machine strings.
        measured_at: when the newest number of the file was measured, ms since 1970; 0 if unknown.
        host: our provenance's facts: gpu, driver, cuda, torch, triton, python, os, cpu …; {} without provenance.
        controls: copy, matmul, empty; {} without provenance.
        clock_state, harness, protocol: our provenance's; "", "" and 0 without.
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
        """Versions of what a number rests on besides commit and machine: python, torch, triton, cuda, driver …"""
        parts = {
            name: self.host[name] for name in ("python", "torch", "triton", "cuda", "driver") if self.host.get(name)
        }
        return {"python": self.python, **self.requirements, **parts}


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark as asv names it; its numbers are of one unit.

    Attributes:
        name: asv's.
        unit: "seconds", "bytes", "x" (a ratio), or whatever a ``track_*`` says; "" unknown.
        kind: asv's type: "time", "track", "memory", "peakmemory", "timeraw", "lockstep", "exact"; "" unknown.
        parameters: names of the parameters, in order.
        suite: what its series belong to: our suite, or the benchmark's module and class.
        quantity: of one of our suites, see ``lockstep.record.quantity``; otherwise the last part of the name.
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
        """Whether the benchmark is an exact quantity of a lockstep suite: any difference of its numbers is a change."""
        return self.kind == EXACT_TYPE

    @property
    def is_ratio(self) -> bool:
        """Whether it is the speedup of one of our suites: twin of a latency, whose points carry the ratio as well."""
        return self.ours and self.quantity == "speedup"

    @property
    def part(self) -> Part:
        """Which number of a row it gives: a suite of ours has two benchmarks, and each series of it one row."""
        if self.ours:
            return "speedup" if self.is_ratio else "latency"
        return "latency" if self.unit == "seconds" else "value"

    @property
    def key_suite(self) -> str:
        """The suite in the keys of its series: ours of latency and speedup, else the full name of the benchmark."""
        return self.suite if self.ours else self.name

    @property
    def family(self) -> str:
        """Our suite's family (``grouped`` of ``grouped.mlp``); the suite itself in other projects."""
        return self.suite.partition(".")[0] if self.ours or self.exact else self.suite

    @property
    def higher_is_better(self) -> bool:
        """True of speedups and of rates (``GB/s``); asv itself takes less for better everywhere."""
        return self.quantity == "speedup" or self.unit == "x" or self.unit.lower().endswith(("/s", "per second"))


class SeriesKey(NamedTuple):
    """Identity of a series on one machine, used by pages, comparisons and addresses.

    A suite of ours stores a latency and a speedup for each series; both have the same key.

    Attributes:
        machine: a ``Machine.name``.
        suite: our suite, or the full name of another project's benchmark.
        variant, case, l2: as the suite names them; other parameters are joined into the case, "" where there are none.
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
    """What is followed over the commits: a benchmark with one value for each parameter, on one machine.

    Attributes:
        machine: a ``Machine.name``.
        benchmark: a ``Benchmark.name``.
        axes: parameter name and value, in the benchmark's order. The value is asv's text of it, a string without
            its quotes where that leaves it unlike any other value.
    """

    machine: str
    benchmark: str
    axes: tuple[tuple[str, str], ...] = ()

    def axis(self, name: str) -> str:
        """Value of a parameter; "" if there is none of that name."""
        return next((value for key, value in self.axes if key == name), "")

    @property
    def text(self) -> str:
        """The parameters in words: ``size=100, dtype=float32``."""
        return ", ".join(f"{name}={value}" for name, value in self.axes)


@dataclass(frozen=True, eq=False, slots=True)
class Trend:
    """One series over the commits that measured it, for analysis: arrays of one length, oldest commit first.

    Attributes:
        series, benchmark: whose.
        commit: index into ``Results.commits(series.machine)``, rising.
        run: index into ``Results.runs``: environment, toolchain, controls, date of each point.
        value: in the benchmark's unit; NaN where the state is "na" or "failed".
        low, high: our 95 % or asv's 99 % interval, NaN unknown.
        error: standard error of log(value), from that interval; NaN unknown. Of a speedup it is the paired one.
        log_ratio, ratio_error: our log(baseline / variant) from pairs, and its standard error; NaN elsewhere.
            Both of our benchmarks of a suite carry them.
        mde: smallest relative change that the measurement could tell; NaN unknown.
        state: codes, see ``STATES``.
        version: code of the benchmark's version (the ruler): points of different codes do not compare.
            ``Results.versions[code]`` is its text.
        number, repeat: asv's stats_number and stats_repeat (calls a sample, samples a point), 0 unknown.
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
    """One series at one commit, with everything that is known of it; numbers as in ``Trend``, ``None`` for NaN.

    Attributes:
        series, commit, run: whose; ``commit`` is an index into ``Results.commits(series.machine)``.
        reason: why "na" or "failed". note: what a reader of the number must know.
        samples: in the benchmark's unit (ours: seconds, or ratios of the speedup), at most 100.
        q25, q75: quartiles, where asv stores them.
        flops, bytes: the task's cost, 0 unknown. floor_s: seconds at the machine's own rates.
        bound: which rate makes the floor, "bandwidth" or "compute"; "" unknown.
        baseline: variant that the ratio refers to.
        epochs: sets of fresh buffers that the ratio rests on; 0 unknown.
        sm_mhz, sm_mhz_low, temperature_c, power_w, clock_reasons: while it ran.
        check_error, worst_row: errors of the check relative to the reference's norm, in all and in the worst row.
        deterministic: 1 if two calls on the same inputs gave the same bits, 0 if not.
        code: machine-code facts as JSON text, "" where the record has none.
        measured_at: ms since 1970, 0 unknown.
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
