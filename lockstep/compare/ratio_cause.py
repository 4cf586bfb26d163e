"""Decide whether a speedup changed because of the kernel's own time or because of its baseline's time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lockstep.alerts.cause.attribution import explains
from lockstep.alerts.text import change
from lockstep.compare.verdict import quantile


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
