"""Results of the analysis of a series. All indices are positions in the trend, counted from 0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Sense = Literal["worse", "better"]

#: "short": too few points to estimate the noise; nothing is reported.
#: "steady": independent noise around a level. "drifting": the level wanders or slopes.
#: "multimodal": the series switches between two to four levels; no step between them is reported.
Kind = Literal["short", "steady", "drifting", "multimodal"]


@dataclass(frozen=True, slots=True)
class Change:
    """A step found in a series.

    A series reports at most one change per commit, so ``reported_at`` identifies a change for good. ``index`` may still
    move as more commits are measured; each move leaves a ``Revision``.

    Attributes:
        index: first point at the new level.
        last_before: last measured point at the old level; the step lies in the commits after it up to ``index``.
        earliest, latest: the points between which ``index`` lies with 95 % probability.
        size: log(new level / old level); 0.01 is about 1 % up.
        low, high: 95 % interval of ``size``.
        confidence: probability that this is a step and not noise, 0 to 1.
        reported_at: index at which the analysis first reported the change.
        sense: "better" or "worse", by the better direction of the series' trend.
        left: log(newest level / old level); equal to ``size`` if no other change followed.
        unsettled: whether the points from ``index`` to the next change agree on no level. ``size`` then refers to the
            median of these points, and ``low`` and ``high`` enclose all of them.
    """

    index: int
    last_before: int
    earliest: int
    latest: int
    size: float
    low: float
    high: float
    confidence: float
    reported_at: int
    sense: Sense
    left: float
    unsettled: bool = False

    @property
    def factor(self) -> float:
        """New level over old level."""
        return math.exp(self.size)

    @property
    def delay(self) -> int:
        """Commits between the first point at the new level and the report; 0 for a report at once."""
        return self.reported_at - self.index


@dataclass(frozen=True, slots=True)
class Revision:
    """A correction of a reported change.

    Attributes:
        reported_at: identifies the change, see ``Change.reported_at``.
        revised_at: index at which the analysis corrected the report.
        index: the index of the change before the correction.
        moved_to: the new index of the change; ``None`` if the change was withdrawn.
        size: log size of the change before the correction.
        why: one sentence for people.
    """

    reported_at: int
    revised_at: int
    index: int
    moved_to: int | None
    size: float
    why: str

    @property
    def withdrawn(self) -> bool:
        """Whether the change was withdrawn."""
        return self.moved_to is None


@dataclass(frozen=True, slots=True)
class Noise:
    """How a series scatters about its level.

    Attributes:
        scale: standard deviation of one point's logarithm without outliers; 0.01 is 1 %. NaN when "short".
        kind: the kind of scatter.
        modes: the two to four log values of a multimodal series, lowest first; else empty.
        slope: log units per commit over the current level of a drifting series; else 0.
    """

    scale: float
    kind: Kind
    modes: tuple[float, ...] = ()
    slope: float = 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """A segment of the series between changes.

    Attributes:
        start, stop: the segment's points are ``start <= index < stop``.
        value: level in the trend's unit.
        low, high: 95 % interval of ``value``.
        unsettled: whether the points agree on no level. ``value`` is then the median of the points, and ``low`` and
            ``high`` are the lowest and the highest point.
    """

    start: int
    stop: int
    value: float
    low: float
    high: float
    unsettled: bool = False


@dataclass(frozen=True, slots=True)
class Analysis:
    """The analysis of one series.

    Attributes:
        changes: the changes that stand, oldest first.
        revisions: corrections of reported changes, in the order of ``revised_at``. A withdrawn change appears only
            here.
        levels: the segments between changes, oldest first; they cover the whole series.
        noise: the noise of the series.
        mde: smallest relative change from the current level that would be reported within ``Settings.prompt`` commits
            with 80 % probability; infinite when "short".
        repeats_for_1_percent: the number of measurements after a change of 1 % until the change is reported with 80 %
            probability; ``None`` if the noise is unknown or no number is enough, because the current level is too
            uncertain.
    """

    changes: tuple[Change, ...]
    revisions: tuple[Revision, ...]
    levels: tuple[Level, ...]
    noise: Noise
    mde: float
    repeats_for_1_percent: int | None

    @property
    def withdrawn(self) -> tuple[int, ...]:
        """``reported_at`` of every withdrawn change."""
        return tuple(one.reported_at for one in self.revisions if one.withdrawn)
