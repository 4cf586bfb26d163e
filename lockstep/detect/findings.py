"""What the analysis of a series says. All indices are positions in the trend, counted from 0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Sense = Literal["worse", "better"]

#: "short": too few points to tell how noisy the series is, and nothing is reported.
#: "steady": independent noise around a level. "drifting": the level wanders or slopes.
#: "multimodal": the series switches between two to four levels; no step between them is reported.
Kind = Literal["short", "steady", "drifting", "multimodal"]


@dataclass(frozen=True, slots=True)
class Change:
    """A step found in a series.

    A series reports at most one change a commit: ``reported_at`` names a change for good, while ``index`` may
    still move as more commits are measured (each move leaves a ``Revision``).

    Attributes:
        index: first point at the new level.
        last_before: last measured point at the old level; the step lies in the commits after it up to ``index``.
        earliest, latest: the points between which ``index`` lies with 95 % probability.
        size: log(new level / old level); 0.01 is about 1 % up.
        low, high: 95 % interval of ``size``.
        confidence: probability that this is a step and not noise, 0 to 1.
        reported_at: index at which the analysis first reported the change.
        sense: "better" or "worse", by the good direction of the series' trend.
        left: log(newest level / old level); ``size`` where no other change followed.
        unsettled: the points after it agree on no level up to the next change. ``size`` is then of the point in their
            middle, and ``low`` and ``high`` hold all of them.
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
        """Commits from the first one at the new level to the one at which it was reported; 0 is at once."""
        return self.reported_at - self.index


@dataclass(frozen=True, slots=True)
class Revision:
    """What was reported and is no longer believed as it stood.

    Attributes:
        reported_at: names the change.
        revised_at: index at which the analysis changed its mind.
        index: the index at which the change was reported before.
        moved_to: the change's index now; ``None`` if the detector withdrew the change.
        size: log size as it was believed before.
        why: one sentence for the person reading.
    """

    reported_at: int
    revised_at: int
    index: int
    moved_to: int | None
    size: float
    why: str

    @property
    def withdrawn(self) -> bool:
        """Whether the change is no longer believed at all."""
        return self.moved_to is None


@dataclass(frozen=True, slots=True)
class Noise:
    """How a series scatters about its level.

    Attributes:
        scale: standard deviation of one point's logarithm, outliers apart; 0.01 is 1 %. NaN when "short".
        kind: the kind of scatter.
        modes: the two to four log values of a multimodal series, lowest first; else empty.
        slope: log units a commit over the present level of a drifting series; else 0.
    """

    scale: float
    kind: Kind
    modes: tuple[float, ...] = ()
    slope: float = 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """A segment of the series between changes.

    Attributes:
        start, stop: its points are ``start <= index < stop``.
        value: level in the trend's unit. low, high: its 95 % interval.
        unsettled: the points agree on no level: ``value`` is the point in their middle, ``low`` and ``high`` the lowest
            and the highest.
    """

    start: int
    stop: int
    value: float
    low: float
    high: float
    unsettled: bool = False


@dataclass(frozen=True, slots=True)
class Analysis:
    """Everything that one series says.

    Attributes:
        changes: what is believed now, oldest first.
        revisions: what was believed and is not, in the order of ``revised_at``. A withdrawn change is
            in no other place.
        levels: the segments between changes, oldest first; they cover the whole series.
        noise: the noise of the series.
        outliers: points that lie far off their level and stand alone.
        mde: smallest relative change that would be reported within ``Settings.prompt`` commits with 80 %
            probability, from the present level; infinite when "short".
        repeats_for_1_percent: how many measurements after a change of 1 % are needed for the same; ``None`` if no
            number is enough (the present level is itself not known well enough) or the noise is unknown.
    """

    changes: tuple[Change, ...]
    revisions: tuple[Revision, ...]
    levels: tuple[Level, ...]
    noise: Noise
    outliers: tuple[int, ...]
    mde: float
    repeats_for_1_percent: int | None

    @property
    def withdrawn(self) -> tuple[int, ...]:
        """``reported_at`` of every change that was reported and is believed no longer."""
        return tuple(one.reported_at for one in self.revisions if one.withdrawn)
