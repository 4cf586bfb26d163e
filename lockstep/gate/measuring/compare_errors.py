"""Judge whether the results of a variant are further from the reference than before.

Base and head compute the same draws of the inputs. Head is worse if its error exceeds base's by more than
``min_effect`` in each of ``DRAWS`` draws, and better if base's error exceeds head's in each. The first draw in which
neither holds ends the comparison with "same", so unchanged code usually needs one draw.

The errors of a variant whose calls differ are random. If the errors of base and head have the same distribution, head's
error is the larger one in a draw with a probability of at most 1/2. So each wrong verdict has a probability of at most
2 ** −``DRAWS``, which is 0.4 %. This is the sign test (Conover, Practical Nonparametric Statistics, 3rd edition, 3.4).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from lockstep.gate.model import OUT_OF_TIME, Outcome, SeriesKey, Verdict
from lockstep.record.model import Estimate

#: Draws in which one side must have the larger error.
DRAWS = 8

#: Relative rounding error of float64, in which errors are computed. Smaller errors count as this one.
SMALLEST = 2.0**-53


def compare_errors(
    key: SeriesKey, errors: Iterator[tuple[float, float]], min_effect: float, deadline: float
) -> Verdict:
    """Return the verdict on a variant's error: "slower" if head's is larger than base's, "faster" if it is smaller.

    ``errors``: yields the errors of base and head on new random inputs, as shares of the reference's norm.
    """
    pairs: list[tuple[float, float]] = []
    outcomes: set[Outcome] = set()
    while len(pairs) < DRAWS:
        if time.monotonic() >= deadline:
            return Verdict(key, "unsure", f"{OUT_OF_TIME} after {len(pairs)} draws", min_effect=min_effect)
        base, head = (max(error, SMALLEST) for error in next(errors))
        pairs.append((base, head))
        least = 1 + min_effect
        outcomes.add("slower" if head > base * least else "faster" if base > head * least else "same")
        if outcomes not in ({"slower"}, {"faster"}):
            return _verdict(key, "same", pairs, min_effect)
    return _verdict(key, "slower" if "slower" in outcomes else "faster", pairs, min_effect)


def _verdict(key: SeriesKey, outcome: Outcome, pairs: list[tuple[float, float]], min_effect: float) -> Verdict:
    """Return a verdict with the medians of the errors; the change's interval spans the changes in all draws."""
    base, head = (statistics.median(side) for side in zip(*pairs, strict=True))
    changes = [after / before - 1 for before, after in pairs]
    change = Estimate(statistics.median(changes), min(changes), max(changes))
    return Verdict(key, outcome, "", change, min_effect, base_s=base, head_s=head, epochs=len(pairs))
