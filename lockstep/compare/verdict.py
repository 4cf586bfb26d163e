"""By how much the second of two measurements is worse, how sure that is, and what to call it: one rule for all pages.

The pages of a machine's own commits (``lockstep.compare.since_commit``) and the sides of Compare and the API
(``lockstep.compare.sides``) choose what is measured against what, and call it by this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Literal, Protocol

from lockstep.history.display_names import natural

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


class Number(Protocol):
    """A measured number and the standard error of its logarithm, ``None`` unknown."""

    @property
    def value(self) -> float | None:
        """In a unit that both numbers of a change have."""

    @property
    def error(self) -> float | None:
        """In log units."""


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

    def verdict(self, matters: float, confidence: float) -> Verdict:
        """ "slower" or "faster" if it is sure and matters, "same" if all that it can be does not, otherwise "unsure".

        Args:
            matters: smallest relative change worth a word, 0.01 is 1 %.
            confidence: of the interval.
        """
        least = math.log1p(matters)
        if self.sure(confidence) and abs(self.worse) >= least:
            return "slower" if self.worse > 0 else "faster"
        return "same" if abs(self.worse) + self.half(confidence) < least else "unsure"


@lru_cache(maxsize=64)
def _quantile(confidence: float) -> float:
    """Half the width of a normal interval in standard errors."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


UNKNOWN = Change(math.nan, math.nan)


def changed(before: Number, after: Number, higher_is_better: bool = False, noise: float = math.nan) -> Change:
    """From one number to another; unknown unless both are positive.

    Args:
        before, after: of one ruler.
        higher_is_better: of both.
        noise: see ``error_of``.
    """
    if before.value is None or after.value is None or min(before.value, after.value) <= 0:
        return UNKNOWN
    grown = math.log(after.value / before.value)
    return Change(-grown if higher_is_better else grown, error_of(before.error, after.error, noise))


def error_of(before: float | None, after: float | None, noise: float = math.nan) -> float:
    """Standard error of a change from those of its two ends; NaN unknown.

    Args:
        before, after: standard errors within one run, ``None`` unknown.
        noise: standard deviation of a point's logarithm from run to run, of which an interval within one run knows
            nothing; NaN unknown. The larger of the two counts.
    """
    within = math.nan if before is None or after is None else math.hypot(before, after)
    between = math.sqrt(2) * noise
    return max((error for error in (within, between) if math.isfinite(error)), default=within)


def sign(worse: float) -> str:
    """▼ of what became slower, ▲ of what became faster, from the log of the factor by which it became worse."""
    return SIGNS["slower" if worse > 0 else "faster"]


def loudness(verdict: Verdict, worse: float, suite: str, case: str, l2: str, variant: str) -> tuple[Any, ...]:
    """Key to sort by: the loudest verdict first, of it the largest change, last what has no number (NaN)."""
    size = math.inf if math.isnan(worse) else -abs(worse)
    return LOUDEST.index(verdict), size, suite, natural(case), l2, variant
