"""Describe a change of one series with all data that are recorded before and after it, from which its cause follows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.alerts.cause.change_size import ChangeSize
from lockstep.alerts.cause.commit_ranges import Unknown
from lockstep.detect.findings import Measure
from lockstep.record.quantity import Better
from lockstep.record.series_name import SeriesName


@dataclass(frozen=True)
class Facts:
    """The data that are stored with a point besides its number, and may explain a change.

    Attributes:
        commit: full hash.
        version: digest of the benchmark definition, asv's benchmark version.
        protocol: protocol version, clock state, math flags.
        sampling: asv's sampling, if stored: "number" of calls per sample, "repeat" of samples.
        toolchain: torch, triton, cuda, driver, python, requirements, environment.
        machine: GPU, its UUID, CPU, operating system.
        code: description of the machine code, see ``lockstep.record.model.Record.code``; ``None`` if unknown.
    """

    commit: str
    version: str = ""
    protocol: Mapping[str, str] = field(default_factory=dict)
    sampling: Mapping[str, int] = field(default_factory=dict)
    toolchain: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Move:
    """How far another time, such as the baseline's, moved at a step.

    Attributes:
        log: natural log of the time after the step divided by the time before.
        noise: standard deviation of ``log``; 0 if unknown.
    """

    log: float
    noise: float = 0.0


@dataclass(frozen=True)
class GpuMove:
    """A series' move from one GPU to another.

    Attributes:
        before, after: the first digits of the UUIDs of both GPUs.
        log: natural log by which the number is worse on the second GPU, at a commit that both measured; NaN if there is
            no such commit.
    """

    before: str
    after: str
    log: float = math.nan


@dataclass(frozen=True)
class Step(ChangeSize):
    """A change of one series, with the commits and the data that may explain it.

    Attributes:
        series, better, measure, old, new: see ``ChangeSize``.
        before, after: the data of the last point before the change and of the first point after the change.
        size: by how much the series became *worse*, see ``ChangeSize``. In every quantity, 0.05 is 5 % slower and −0.05
            is 5 % faster.
        low, high: interval of ``size``.
        confidence: the detector's confidence in the change, 0 … 1.
        first, last: positions, among the machine's commits, between which the first changed point lies (95 %).
        good: newest measured commit that certainly lies before the change.
        between: commits that may be the culprit, oldest first. There are several if some were not measured, or if the
            place of the step is uncertain. If ``unknown`` is set, only the measured commits are listed.
        touched: the commits of ``between`` that touch the packages under test; ``None`` without a repository.
        unknown: why the commits from ``good`` to the last of ``between`` are unknown; "" if they are known.
        reported_at: commit at which the change was first reported.
        own, baseline: moves of the variant's own time and of the baseline's time; ``None`` if unknown.
        controls: moves of the run's controls ("copy", "matmul", "empty").
        gpu_move: the series' move to another GPU, if the step may lie there.
        left: by how much the newest level is worse than the level before the step, measured like ``size``; 0 if fully
            recovered.
        recent: by how much the median of the last points after the step is worse than that level; ``None`` if unknown.
    """

    series: SeriesName
    before: Facts
    after: Facts
    size: float
    low: float
    high: float
    confidence: float
    first: int
    last: int
    good: str
    between: tuple[str, ...]
    touched: tuple[str, ...] | None = None
    unknown: Unknown = ""
    reported_at: str = ""
    own: Move | None = None
    baseline: Move | None = None
    controls: Mapping[str, Move] = field(default_factory=dict)
    gpu_move: GpuMove | None = None
    left: float = math.nan
    recent: float | None = None
    old: float | None = None
    new: float | None = None
    better: Better = "lower"
    measure: Measure = "ratio"

    @property
    def end(self) -> str:
        """The newest measured commit that may be the culprit of the change; "" if there is none."""
        return self.between[-1] if self.between else ""


@dataclass(frozen=True)
class Evidence:
    """A fact that supports a cause: its name, and its values before and after the step.

    ``before`` is "" if the fact has only one value, for example a commit. ``kernel`` is the kernel that the fact is of.
    """

    what: str
    before: str
    after: str
    kernel: str = ""

    @property
    def changed(self) -> bool:
        """Whether the values before and after the step differ."""
        return self.before != self.after

    @property
    def text(self) -> str:
        """The name and the values of the fact for people, such as ``torch 2.11.0 → 2.13.0``."""
        name = f"{self.kernel} {self.what}".lstrip()
        return f"{name} {self.before} → {self.after}" if self.before else f"{name} {self.after}"
