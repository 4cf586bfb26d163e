"""Define a series as the detector takes it, and what it finds. All indices are positions in the series, from 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

#: How the size of a change is measured. "ratio": the natural log of a ratio; 0.01 is about 1 % up.
#: "difference": a difference in the unit of the series, because one of its numbers is zero or negative.
Measure = Literal["ratio", "difference"]


@dataclass(frozen=True, eq=False)
class Trend:
    """The measured numbers of one series, oldest commit first.

    Attributes:
        values: finite float64 [points], in any unit.
        errors: float64 [points], NaN where unknown; ``None`` if no point has an error. Where ``ratio`` is True, the
            standard error of each value's *logarithm* (0.001 is 0.1 %), otherwise of the value. A 95 % interval is
            about four standard errors wide.
    """

    values: NDArray[np.float64]
    errors: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", np.asarray(self.values, dtype=np.float64))
        if self.errors is not None:
            errors = np.asarray(self.errors, dtype=np.float64)
            # No measurement is perfectly certain, so an error of zero counts as unknown.
            object.__setattr__(self, "errors", np.where(np.isfinite(errors) & (errors > 0), errors, np.nan))

    def __len__(self) -> int:
        return int(self.values.size)

    @property
    def ratio(self) -> bool:
        """Whether all numbers are positive, so that changes are ratios. Otherwise they are differences in the unit."""
        return not bool(np.any(self.values <= 0))


@dataclass(frozen=True, slots=True)
class Change:
    """A step found in a series.

    At most one change of a series is reported at a commit, so ``reported_at`` identifies a change permanently.
    ``index`` may move when more commits are measured.

    Attributes:
        index: first point at the new level.
        earliest, latest: the points between which ``index`` lies with 95 % probability.
        size: log(new level / old level), or the new level minus the old one; see ``measure``.
        low, high: 95 % interval of ``size``.
        confidence: probability that this is a step and not noise, 0 to 1.
        reported_at: index at which the analysis first reported the change.
        left: the newest level against the old level, measured like ``size``; equal to ``size`` if no other change
            followed.
        measure: how ``size``, ``low``, ``high`` and ``left`` are measured.
        confirmed: whether enough points lie at the new level. If not, the change may go with the next point.
    """

    index: int
    earliest: int
    latest: int
    size: float
    low: float
    high: float
    confidence: float
    reported_at: int
    left: float
    measure: Measure = "ratio"
    confirmed: bool = True


@dataclass(frozen=True, slots=True)
class Noise:
    """How the points of a series scatter about its level.

    Attributes:
        scale: standard deviation of one point, without outliers; NaN if the series has too few points to estimate it,
            so that nothing is reported. If ``measure`` is "ratio", of the point's logarithm (0.01 is 1 %).
        measure: how ``scale`` is measured.
    """

    scale: float
    measure: Measure = "ratio"


@dataclass(frozen=True, slots=True)
class Level:
    """The level of a series between two changes.

    Attributes:
        start, stop: the points at the level are those with ``start <= index < stop``.
        value: the level in the trend's unit.
    """

    start: int
    stop: int
    value: float


@dataclass(frozen=True, slots=True)
class Analysis:
    """What was found in one series: its changes, its levels and its noise.

    Attributes:
        changes: the reported changes whose interval does not contain zero, oldest first.
        levels: the levels between changes, oldest first. They cover the whole series.
        noise: the noise of the series.
        unconfirmed: a step of the newest two points that a third point may confirm; ``None`` if there is none.
        mde: smallest relative change from the current level that would be reported within ``PROMPT`` commits
            with 80 % probability; a difference in the unit if ``noise.measure`` is "difference". Infinite if the noise
            is unknown.
    """

    changes: tuple[Change, ...]
    levels: tuple[Level, ...]
    noise: Noise
    mde: float
    unconfirmed: Change | None = None
