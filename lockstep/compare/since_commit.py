"""Compare a row with the same series at another commit of its machine, for the overview and the page of a commit.

The rule is that of ``lockstep.compare.verdict``. A series that is followed over the commits has more than the
two runs that Compare knows. The surest quantity of both rows is compared, the series may be new, its noise from run to
run may be known, and two more changes are called "same" (see ``_called``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from lockstep.compare.ratio_cause import Times, behind, called
from lockstep.compare.rows import VALUE, Measured, Row
from lockstep.compare.verdict import UNKNOWN, Change, Verdict, changed


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
    change = _changed(old, new, noise, quantity == "speedup" or (quantity == VALUE and after.higher_is_better))
    low, high = (None, None) if math.isnan(change.error) else change.interval(confidence)
    return Difference(quantity, change.worse, low, high, _called(change, matters, confidence))


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
    times = behind(_time_changed(*own), _time_changed(*baseline, noise))
    if times is None:
        return told
    return replace(told, times=times, verdict=called(told.verdict, told.worse, times, confidence))


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


def _time_changed(before: Row | None, after: Row | None, noise: float = math.nan) -> Change:
    """What the time did; unknown if there are not two of the same ruler."""
    if before is None or after is None or before.version != after.version:
        return UNKNOWN
    if before.latency is None or after.latency is None:
        return UNKNOWN
    return _changed(before.latency, after.latency, noise)


def _changed(before: Measured, after: Measured, noise: float, higher_is_better: bool = False) -> Change:
    """The change; an interval of no width, or of no end, tells no noise."""
    change = changed(before, after, higher_is_better, noise)
    return change if 0 < change.error < math.inf else replace(change, error=math.nan)


def _called(change: Change, matters: float, confidence: float) -> Verdict:
    """The verdict, and "same" as well of what is sure and too small to matter, or equal where no noise is known.

    Among all that a machine measured neither is anything to look at. Compare is asked whether two sides are the same,
    and says so only if the whole interval is (``docs/dashboard.md``).
    """
    if math.isnan(change.error):
        return "same" if change.worse == 0 else "unsure"
    verdict = change.verdict(matters, confidence)
    return "same" if verdict == "unsure" and change.sure(confidence) else verdict
