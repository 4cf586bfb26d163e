"""Describe a change of one series with all data that are recorded before and after it, from which its cause follows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.alerts.cause.found_change import FoundChange


@dataclass(frozen=True)
class Facts:
    """The data that are stored with a point besides its number, and may explain a change.

    Attributes:
        commit: full hash.
        version: digest of the benchmark definition, asv's benchmark version.
        protocol: protocol version, clock state, math flags.
        toolchain: torch, triton, cuda, driver, python, requirements, environment.
        machine: GPU, its UUID, CPU, operating system.
        code: description of the machine code, see ``lockstep.record.model.Record.code``; ``None`` if unknown.
        work: digest of what the variant gives the GPU to do, for a ratio with that of its baseline; "" if unknown.
        sm_mhz: clock of the SMs while the point was measured; ``None`` if unknown.
    """

    commit: str
    version: str = ""
    protocol: Mapping[str, str] = field(default_factory=dict)
    toolchain: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, Any] | None = None
    work: str = ""
    sm_mhz: float | None = None


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
class Step:
    """A change of one series, still without its cause, with the data that may explain it.

    Attributes:
        before, after: the data of the last point before the change and of the first point after the change.
        touched: the commits of ``change.between`` that touch the packages under test; ``None`` without a repository.
        own, baseline: moves of the variant's own time and of the baseline's time; ``None`` if unknown.
        controls: moves of the run's controls ("copy", "matmul", "empty").
        gpu_move: the series' move to another GPU, if the step may lie there.
    """

    change: FoundChange
    before: Facts
    after: Facts
    touched: tuple[str, ...] | None = None
    own: Move | None = None
    baseline: Move | None = None
    controls: Mapping[str, Move] = field(default_factory=dict)
    gpu_move: GpuMove | None = None
