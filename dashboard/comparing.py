"""Two measurements of one series: by how much the second is worse, how sure that is, and what to call it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

from dashboard.rows import VALUE, Row
from dashboard.times import Times

#: "baseline moved" is a ratio that changed while the kernel's own time did not.
Verdict = Literal["failed", "slower", "faster", "baseline moved", "unsure", "same", "new"]

#: What one look tells a reader, what is looked at first before the rest; orange and blue go with ▼ and ▲.
SIGNS: dict[Verdict, str] = {
    "failed": "✕",
    "slower": "▼",
    "faster": "▲",
    "baseline moved": "◇",
    "unsure": "○",
    "same": "●",
    "new": "+",
}

#: The order in which verdicts are looked at.
LOUDEST: tuple[Verdict, ...] = tuple(SIGNS)


@dataclass(frozen=True, slots=True)
class Difference:
    """From one row of a series to a later one.

    Attributes:
        quantity: that was compared: "speedup" (paired, hence surest), "latency" or "value".
        worse: log of the factor by which it became worse, in every quantity; ``None`` if there are not two numbers.
        low, high: its interval; ``None`` unknown.
        verdict: "unsure" if the interval holds both a change that matters and none.
        times: of a ratio that became slower or faster, what the two times behind it did; ``None`` unknown.
    """

    quantity: str
    worse: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    times: Times | None = None

    @property
    def percent(self) -> float | None:
        """By how many percent it became worse (more time); negative is better."""
        return None if self.worse is None else 100 * math.expm1(self.worse)


def sign(worse: float) -> str:
    """▼ of what became slower, ▲ of what became faster, from the log of the factor by which it became worse."""
    return SIGNS["slower" if worse > 0 else "faster"]


def difference(
    before: Row | None, after: Row, noise: float = math.nan, matters: float = 0.01, confidence: float = 0.99
) -> Difference:
    """Compare two rows of one series.

    Args:
        before: ``None``: it had not been measured.
        after: the later one.
        noise: standard deviation of a point's logarithm from run to run, NaN unknown. An interval within one run
            knows nothing of it.
        matters: smallest relative change worth a word, 0.01 is 1 %.
        confidence: of the interval.
    """
    quantity = _quantity(before, after)
    new = after.measured(quantity)
    if new is None:
        return Difference(quantity, None, None, None, "failed" if after.state == "failed" else "unsure")
    old = before.measured(quantity) if before else None
    if before is None or old is None or before.version != after.version:
        return Difference(quantity, None, None, None, "new")
    if old.value <= 0 or new.value <= 0:
        # A count that was or is zero has no ratio.
        return Difference(quantity, None, None, None, "same" if old.value == new.value else "unsure")
    good = quantity == "speedup" or (quantity == VALUE and after.higher_is_better)
    worse = math.log(new.value / old.value) * (-1 if good else 1)
    error = _error(old.error, new.error, noise)
    if error is None:
        return Difference(quantity, worse, None, None, "same" if worse == 0 else "unsure")
    wide = NormalDist().inv_cdf(0.5 + confidence / 2) * error
    low, high = worse - wide, worse + wide
    return Difference(quantity, worse, low, high, _verdict(worse, low, high, math.log1p(matters)))


def beside_baseline(
    told: Difference,
    own: tuple[Row | None, Row],
    baseline: tuple[Row | None, Row | None],
    noise: float = math.nan,
    confidence: float = 0.99,
) -> Difference:
    """The difference of a ratio with the times behind it, and called "baseline moved" where they say so.

    Args:
        told: of the two rows of ``own``.
        own, baseline: rows of the series and of its baseline, each before and after.
        noise: of the baseline's time, as ``difference`` has it.
        confidence: with which the baseline has to have moved.
    """
    if told.quantity != "speedup" or told.worse is None or told.verdict not in ("slower", "faster"):
        return told
    moved, reference = _time(*own), _time(*baseline)
    if moved is None or reference is None:
        return told
    before, after = (row.latency for row in baseline if row and row.latency)
    times = Times(moved, reference, _error(before.error, after.error, noise) or math.nan)
    return replace(
        told, times=times, verdict="baseline moved" if times.baseline_moved(told.worse, confidence) else told.verdict
    )


def _time(before: Row | None, after: Row | None) -> float | None:
    """Log of the factor by which the time grew; ``None`` if there are not two of the same ruler."""
    if before is None or after is None or before.version != after.version:
        return None
    if before.latency is None or after.latency is None:
        return None
    return math.log(after.latency.value / before.latency.value)


def geomean(differences: Iterable[Difference]) -> tuple[float, int]:
    """Geometric mean of how many times faster it became, over those with two numbers, and how many those are."""
    logs = [-one.worse for one in differences if one.worse is not None]
    return (math.exp(math.fsum(logs) / len(logs)), len(logs)) if logs else (1.0, 0)


def _quantity(before: Row | None, after: Row) -> str:
    rows = [row for row in (before, after) if row is not None]
    if any(row.value for row in rows):
        return VALUE
    # The baseline's ratio to itself tells nothing.
    paired = all(row.speedup and row.variant != row.baseline and row.speedup.error for row in rows)
    return "speedup" if paired else "latency"


def _error(old: float | None, new: float | None, noise: float) -> float | None:
    known = [error for error in (old, new) if error is not None and math.isfinite(error)]
    within = math.hypot(*known) if len(known) == 2 else 0.0
    between = math.sqrt(2) * noise if math.isfinite(noise) else 0.0
    return max(within, between) or None


def _verdict(worse: float, low: float, high: float, matters: float) -> Verdict:
    if low > 0 and worse >= matters:
        return "slower"
    if high < 0 and -worse >= matters:
        return "faster"
    if -matters < low and high < matters:
        return "same"
    # Sure, and too small to matter.
    return "same" if (low > 0 or high < 0) and abs(worse) < matters else "unsure"
