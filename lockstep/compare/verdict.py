"""By how much the second of two measurements is worse, how sure that is, and what to call it: one rule for all pages.

``lockstep.compare.status`` (the overview), ``lockstep.compare.at_commit`` and ``lockstep.compare.sides`` (Compare and
the API) choose what is compared with what; ``lockstep.compare.difference`` compares it by this rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np

from lockstep.history.model import Floats

#: "baseline moved" is a ratio that changed while the kernel's own time did not; "not measured" is a series without a
#: point since the compared commit.
Verdict = Literal["failed", "slower", "faster", "baseline moved", "unsure", "same", "new", "not measured"]

#: What one look tells a reader, what is looked at first before the rest; orange and blue go with ▼ and ▲.
SIGNS: dict[Verdict, str] = {
    "failed": "✕",
    "slower": "▼",
    "faster": "▲",
    "baseline moved": "◇",
    "unsure": "○",
    "same": "●",
    "new": "+",
    "not measured": "◌",
}

#: The order in which verdicts are looked at.
LOUDEST: tuple[Verdict, ...] = tuple(SIGNS)


def word(verdict: Verdict, unit: str) -> str:
    """Return what to call a verdict on a number of this unit: only a time is slower or faster."""
    if unit in ("seconds", "µs", "×", ""):
        return verdict
    return {"slower": "worse", "faster": "better"}.get(verdict, verdict)


@dataclass(frozen=True, slots=True)
class Change:
    """From one measurement to a later one, or from base to head.

    Attributes:
        worse: natural log of the factor by which it became worse; NaN unknown.
        error: its standard error; NaN unknown.
    """

    worse: float
    error: float

    def half(self, confidence: float) -> float:
        """Half the width of its interval, a normal one, at this confidence."""
        return _quantile(confidence) * self.error

    def interval(self, confidence: float) -> tuple[float, float]:
        """Both ends of the interval."""
        half = self.half(confidence)
        return self.worse - half, self.worse + half

    def sure(self, confidence: float) -> bool:
        """Whether the interval leaves out zero."""
        return abs(self.worse) > self.half(confidence)


def quantiles(confidence: Floats) -> Floats:
    """Return half the width of a normal interval in standard errors."""
    found = np.empty(len(confidence))
    for each in np.unique(confidence).tolist():
        found[confidence == each] = _quantile(each)
    return found


@lru_cache(maxsize=64)
def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf(0.5 + confidence / 2)


UNKNOWN = Change(math.nan, math.nan)


def errors_of(before: Floats, after: Floats, noise: Floats | None = None) -> Floats:
    """Return ``error_of`` of many changes, from the standard errors of both ends of each; NaN unknown."""
    within = np.hypot(before, after)
    within = np.where((within > 0) & np.isfinite(within), within, np.nan)
    if noise is None:
        return within
    between = np.where((noise > 0) & np.isfinite(noise), math.sqrt(2) * noise, np.nan)
    found: Floats = np.fmax(within, between)
    return found


def error_of(within: float, noise: float) -> float:
    """Return the standard error of a change; NaN unknown.

    Args:
        within: of the two runs' own errors. An interval of no width or of no end tells no noise, and does not count.
        noise: standard deviation of a point's logarithm from run to run, of which an interval within one run knows
            nothing; NaN unknown. The larger of the two counts.
    """
    known = (each for each in (within, math.sqrt(2) * noise) if 0 < each < math.inf)
    return max(known, default=math.nan)


def sign(worse: float) -> str:
    """▼ of what became slower, ▲ of what became faster, from the log of the factor by which it became worse."""
    return SIGNS["slower" if worse > 0 else "faster"]
