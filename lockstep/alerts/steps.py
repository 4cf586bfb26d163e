"""A change of one series together with everything that was known on both sides of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.alerts.commit_ranges import Unknown


@dataclass(frozen=True, order=True)
class SeriesName:
    """Identity of a series. ``quantity`` is "speedup" (paired), "latency", or the name of another unit."""

    machine: str
    family: str
    suite: str
    variant: str
    case: str
    l2: str
    quantity: str

    @property
    def ours(self) -> bool:
        """Whether one of Lockstep's suites measures it. Series of other asv benchmarks have no cache state."""
        return bool(self.l2)

    @property
    def label(self) -> str:
        """The series for a reader who knows machine and family: ``linear.triton M=1,K=64 cold``."""
        head = f"{self.suite}.{self.variant}" if self.variant else self.suite
        return " ".join(part for part in (head, self.case, self.l2) if part)


@dataclass(frozen=True)
class Facts:
    """What is stored with a point besides its number.

    Attributes:
        commit: full hash.
        version: the ruler's digest, asv's benchmark version.
        protocol: way of measuring: protocol version, clock state, math flags.
        sampling: how asv took the samples, where it says so: "number" of calls a sample, "repeat" of samples.
        toolchain: torch, triton, cuda, driver, python, requirements, environment.
        machine: GPU, its UUID, CPU, operating system.
        code: machine code as ``lockstep.record.model.Record.code`` has it; ``None`` unknown.
        measured_at: ms since 1970; 0 unknown.
    """

    commit: str
    version: str = ""
    protocol: Mapping[str, str] = field(default_factory=dict)
    sampling: Mapping[str, int] = field(default_factory=dict)
    toolchain: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, Any] | None = None
    measured_at: int = 0


@dataclass(frozen=True)
class Move:
    """How far something else moved over the same points: natural log of time after over time before.

    ``noise`` is the standard deviation to judge it by, in the same unit; 0 unknown.
    """

    log: float
    noise: float = 0.0


@dataclass(frozen=True)
class Step:
    """One change of one series.

    Attributes:
        series: which.
        before, after: the last point before the change and the first after it.
        size, low, high: natural log of the factor by which it became *worse*, with its interval: 0.05 is 5 % slower,
            −0.05 faster, in every quantity.
        confidence: of the detector, 0 … 1.
        first, last: positions, in the machine's commits, between which the first changed point lies (95 %).
        good: newest measured commit that lies surely before the change.
        between: commits that may be the culprit, oldest first; more than one if some were not measured or the
            place of the step is not sure. If that is ``unknown``, the measured ones alone.
        touched: those of ``between`` that touch the packages under test; ``None`` where no repository tells.
        unknown: why the commits from ``good`` to the last of ``between`` are not known; "" they are.
        rang_at: commit at which the change was first told.
        own, baseline: moves of the variant's own time and of its baseline's; ``None`` unknown.
        controls: moves of the run's controls ("copy", "matmul", "empty").
        left: log of the factor by which the newest level is worse than the one before the step; 0 is as good as before.
        unsettled: the points after the change agree on no level. ``low`` and ``high`` hold all of them, and ``size`` is
            of the point in their middle.
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
    left: float = math.nan
    unsettled: bool = False

    @property
    def end(self) -> str:
        """The newest commit that may be the culprit, which was measured; "" if there is none."""
        return self.between[-1] if self.between else ""

    @property
    def exact(self) -> bool:
        """Whether the culprit is known to be ``end`` and no other commit."""
        return len(self.between) == 1 and not self.unknown

    @property
    def range(self) -> str:
        """The culprit range as git takes it: ``good..end``, or the one commit if it can be no other; "" if none."""
        return self.end[:8] if self.exact or not self.end else f"{self.good[:8]}..{self.end[:8]}"
