"""Write the cells of the page's tables."""

from __future__ import annotations

import math

from lockstep.record.model import Estimate, Record

#: The variant that the page shows beside the baseline and the rivals, and the cache state of its records.
SHOWN, L2 = "best", "cold"


def line(*cells: str) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def over(numerator: Estimate | None, denominator: Estimate | None) -> Estimate | None:
    """Return the ratio of two ratios to the same baseline, with its interval; ``None`` if either is ``None``."""
    if numerator is None or denominator is None:
        return None
    value = numerator.value / denominator.value
    half = math.hypot(*(math.log(ratio.high / ratio.low) / 2 for ratio in (numerator, denominator)))
    return Estimate(value, value * math.exp(-half), value * math.exp(half))


def ratio_text(ratio: Estimate | None) -> str:
    """Return a ratio with its interval."""
    return f"{ratio.value:.3f}× ({ratio.low:.3f}–{ratio.high:.3f})" if ratio else "n/a"


def micro(record: Record | None) -> str:
    """Return a record's time in microseconds."""
    return number(record.latency.value) if record is not None and record.latency is not None else "n/a"


def number(seconds: float | None) -> str:
    """Return seconds as microseconds; "" for ``None``."""
    if seconds is None:
        return ""
    micros = seconds * 1e6
    return f"{micros:.2f}" if micros < 100 else f"{micros:.0f}"
