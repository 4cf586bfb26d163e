"""Find out whether a ratio changed because of the kernel's time or because of its baseline's time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lockstep.alerts.attribution import explains
from lockstep.alerts.text import change
from lockstep.compare.verdict import Change, Verdict


@dataclass(frozen=True, slots=True)
class Times:
    """Changes of both times in a ratio, from one measurement to the next.

    Attributes:
        own: natural log of the factor by which the kernel's time grew.
        baseline: natural log of the factor by which the baseline's time grew.
        error: standard error of ``baseline``; NaN if unknown.
    """

    own: float
    baseline: float
    error: float

    def baseline_moved(self, worse: float, confidence: float) -> bool:
        """Return whether the ratio became worse by ``worse`` (a log) because of the baseline, while the kernel stayed.

        The rule is that of the alerts (``lockstep.alerts.attribution``), with two more conditions. The baseline has to
        move beyond its noise at this confidence. The kernel's time must not have moved, in either direction, by enough
        to explain a change.
        """
        sure = Change(self.baseline, self.error).sure(confidence)
        stayed = not explains(math.copysign(self.own, worse), worse)
        return sure and stayed and explains(-self.baseline, worse)

    @property
    def text(self) -> str:
        """Both changes in words: ``baseline's time −1.6 %, own −0.1 %``."""
        return f"baseline's time {change(self.baseline)}, own {change(self.own)}"


def behind(own: Change, baseline: Change) -> Times | None:
    """Return the times of a ratio from the changes of both times; ``None`` unless both changes are known."""
    if math.isnan(own.worse) or math.isnan(baseline.worse):
        return None
    return Times(own.worse, baseline.worse, baseline.error)


def called(verdict: Verdict, worse: float, times: Times, confidence: float) -> Verdict:
    """Return the verdict on a ratio that became worse by ``worse`` (a log), given the changes of its two times."""
    return "baseline moved" if times.baseline_moved(worse, confidence) else verdict
