"""The times behind a ratio: whether it changed because the kernel did, or because its baseline did."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lockstep.alerts.attribution import explains
from lockstep.alerts.text import change
from lockstep.compare.verdict import Change, Verdict


@dataclass(frozen=True, slots=True)
class Times:
    """How both times of a ratio changed from one measurement of the ratio to the next.

    Attributes:
        own, baseline: natural log of the factor by which the kernel's time and its baseline's grew.
        error: standard error of ``baseline``; NaN unknown.
    """

    own: float
    baseline: float
    error: float

    def baseline_moved(self, worse: float, confidence: float) -> bool:
        """Whether the ratio became worse by ``worse`` (a log) because of the baseline, while the kernel stayed.

        The rule of the alerts (``lockstep.alerts.attribution``); besides, the baseline has to move beyond its noise at
        this confidence, and a kernel that moved either way by enough to explain a change did not stay.
        """
        sure = Change(self.baseline, self.error).sure(confidence)
        stayed = not explains(math.copysign(self.own, worse), worse)
        return sure and stayed and explains(-self.baseline, worse)

    @property
    def text(self) -> str:
        """``baseline's time −1.6 %, own −0.1 %``."""
        return f"baseline's time {change(self.baseline)}, own {change(self.own)}"


def behind(own: Change, baseline: Change) -> Times | None:
    """Return the times behind a ratio from the changes of both times; ``None`` unless both changes are known."""
    if math.isnan(own.worse) or math.isnan(baseline.worse):
        return None
    return Times(own.worse, baseline.worse, baseline.error)


def called(verdict: Verdict, worse: float, times: Times, confidence: float) -> Verdict:
    """Return the verdict of a ratio that became worse by ``worse`` (a log), given the ratio's known ``times``."""
    return "baseline moved" if times.baseline_moved(worse, confidence) else verdict
