"""Define the verdicts on a change, and compute how certain a change between two measurements is.

All pages use these rules. ``lockstep.compare.series_status`` (the overview), ``lockstep.compare.at_commit`` and
``lockstep.compare.two_sides`` (Compare and the API) choose the measurements. ``lockstep.compare.difference``
applies the rules to them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from lockstep.alerts.cause.attribution import explains
from lockstep.alerts.cause.found_change import Sense
from lockstep.alerts.text import change
from lockstep.history.model import Floats

#: What is said about a series that is compared with an earlier measurement. "changed": the number changed, and nobody
#: has stated which direction is better. "baseline moved": the ratio changed, but the kernel's own time did not. "not
#: measured": the series has no point after the compared commit.
Verdict = Literal["failed", "slower", "changed", "faster", "baseline moved", "unsure", "same", "new", "not measured"]

#: Verdicts on a change that is certain and matters.
CHANGED: tuple[Verdict, ...] = ("slower", "changed", "faster")

#: The sign of each verdict, the most urgent verdict first. Pages show ▼ in orange and ▲ in blue.
SIGNS: dict[Verdict, str] = {
    "failed": "✕",
    "slower": "▼",
    "changed": "◆",
    "faster": "▲",
    "baseline moved": "◇",
    "unsure": "○",
    "same": "●",
    "new": "+",
    "not measured": "◌",
}

#: The verdicts from the most urgent to the least urgent.
LOUDEST: tuple[Verdict, ...] = tuple(SIGNS)


def word(verdict: Verdict, unit: str) -> str:
    """Return the word that pages show for a verdict on a number of this unit.

    A time is "slower" or "faster", and any other number "worse" or "better".
    """
    if unit in ("seconds", "s", "µs", "x", "×", ""):
        return verdict
    return {"slower": "worse", "faster": "better"}.get(verdict, verdict)


def quantiles(confidence: Floats) -> Floats:
    """Return half the width of a normal distribution's interval, in standard errors, for each confidence."""
    half_widths = np.empty(len(confidence))
    for level in np.unique(confidence).tolist():
        half_widths[confidence == level] = quantile(level)
    return half_widths


@lru_cache(maxsize=64)
def quantile(confidence: float) -> float:
    """Return half the width of a normal distribution's interval, in standard errors."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def errors_of(before: ArrayLike, after: ArrayLike, noise: ArrayLike = math.nan) -> Floats:
    """Return the standard errors of changes; NaN if unknown.

    Args:
        before, after: standard errors of both measurements, from the intervals of their runs. If both are zero, or one
            is infinite, they are ignored, because they then say nothing about the noise.
        noise: run-to-run standard deviation of a point's logarithm, which an interval within a run does not contain;
            NaN if unknown. The larger of the two errors is used.
    """
    within, between = np.hypot(before, after), math.sqrt(2) * np.asarray(noise)
    errors: Floats = np.fmax(
        *(np.where((error > 0) & np.isfinite(error), error, np.nan) for error in (within, between))
    )
    return errors


#: The verdict for the sense of a change that the detector found.
OF_SENSE: Mapping[Sense, Verdict] = {"worse": "slower", "changed": "changed", "better": "faster"}


def sign(sense: Sense) -> str:
    """Return ▼ for worse, ▲ for better, and ◆ for a change without a better direction."""
    return SIGNS[OF_SENSE[sense]]


@dataclass(frozen=True, slots=True)
class Times:
    """The changes of the two times in a ratio, from one measurement to another.

    Attributes:
        own: natural log of the factor by which the kernel's time grew.
        baseline: natural log of the factor by which the baseline's time grew.
        error: standard error of ``baseline``; NaN if unknown.
    """

    own: float
    baseline: float
    error: float

    def baseline_moved(self, worse: float, confidence: float) -> bool:
        """Return whether the baseline's time explains that the ratio became worse by ``worse`` (a log).

        The rule of the alerts (``lockstep.alerts.cause.attribution``) applies, with two more conditions. The baseline's
        time must have changed beyond its noise at this confidence. The kernel's own time must not have changed, in
        either direction, by enough to explain the ratio.
        """
        baseline_changed = abs(self.baseline) > quantile(confidence) * self.error
        stayed = not explains(math.copysign(self.own, worse), worse)
        return baseline_changed and stayed and explains(-self.baseline, worse)

    @property
    def text(self) -> str:
        """The changes of both times of a ratio, for people: ``baseline's time −1.6 %, own −0.1 %``."""
        return f"baseline's time {change(self.baseline)}, own {change(self.own)}"
