"""Decide when a case has enough epochs, with a bounded probability of wrong decisions.

The test asks whether a change matters, not whether there is a change. "Slower" means that the log ratio of head to base
lies above ``min_effect`` (Murphy & Myors 1999, "Testing the hypothesis that treatments have negligible effects").
"Same" means that the log ratio lies within ± ``min_effect`` (Schuirmann 1987, the two one-sided tests of equivalence).
Each is a t test on the epochs' ratios: an epoch, one draw of buffers, is the independent unit.

Error rates, for any number of cases:

- *Looks.* A case is tested after 4, 6, 9, 13, 19 and 28 epochs, and its measurement stops as soon as it is decided.
  Each look has a sixth of the pass's level, so that repeated looks do not raise the error rate (Bonferroni's
  inequality).
- *Two passes.* A difference counts only if a second pass finds it again, with buffers and an order from another seed.
  The passes are independent, so their levels multiply. Each pass has level ``√(α / m)``. So a case that is not slower
  by ``min_effect`` is called slower with probability ≤ α / m, and any of m cases with probability ≤ α. This family-wise
  error rate holds under any dependence between cases, with far more power than one test at α / m.
- *Same.* A case that is slower by ``min_effect`` or more is called the same with probability ≤ α, for each case.

``tests/gate/test_gate_sequential.py`` simulates all of these rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from lockstep.record.model import Estimate
from lockstep.timing.intervals import t_quantile

#: Numbers of epochs after which a case is tested. The first is the minimum for a verdict.
LOOKS = (4, 6, 9, 13, 19, 28)

#: Maximum width of an interval that is called the same, as a share, unless the user requests more: the factor of 1.1
#: from which ``asv continuous`` reports a change. On a machine with a lower resolution, the case is unsure.
MOST_SAME = 0.1

#: Degrees of freedom at which Student's t is the normal distribution.
_MANY = 10**6

Decision = Literal["slower", "faster", "same"]


@dataclass(frozen=True)
class Test:
    """The sequential test that decides whether one case is slower, faster or the same.

    Attributes:
        min_effect: smallest relative slowdown that counts; 0.01 is 1 %. A speedup counts from the same ratio.
        alpha: family-wise error rate, and probability of a wrong "same": 1 − confidence.
        cases: number of cases that share the family-wise rate.
        same_within: share within which the interval of a "same" must also lie; smaller than ``min_effect`` if noise has
            widened ``min_effect``.
    """

    __test__ = False  # pytest would collect any class named Test…

    min_effect: float
    alpha: float
    cases: int
    same_within: float = math.inf

    @property
    def same_bound(self) -> float:
        """Return the share around 0 within which the interval of a case must lie for the decision "same"."""
        return min(self.min_effect, self.same_within)

    @property
    def pass_level(self) -> float:
        """Return the error rate of each of the two passes: ``√(alpha / cases)``."""
        return math.sqrt(self.alpha / max(1, self.cases))

    def decide(self, epochs: Sequence[float]) -> Decision | None:
        """Return the decision on the epochs' log ratios (head over base: positive is slower); ``None`` if undecided.

        Call this after every epoch. A decision is made only if the number of epochs is one of ``LOOKS``.
        """
        if len(epochs) not in LOOKS:
            return None
        centre, bound = fmean(epochs), math.log1p(self.min_effect)
        differs, equal = _reach(epochs, self.pass_level), _reach(epochs, self.alpha)
        if centre - differs > bound:
            return "slower"
        if centre + differs < -bound:
            return "faster"
        if abs(centre) + equal < math.log1p(self.same_bound):
            return "same"
        return None

    def hopeless(self, epochs: Sequence[float]) -> bool:
        """Return whether further epochs would hardly decide the case, judging by the spread so far.

        The time is then better spent on other cases. Stopping gives no verdict, and so no wrong verdict.
        """
        if len(epochs) not in LOOKS[2:]:
            return False
        last, bound = LOOKS[-1], math.log1p(self.min_effect)
        error = stdev(epochs) / math.sqrt(last)
        equal = _quantile(self.alpha / len(LOOKS), last - 1) * error
        differs = _quantile(self.pass_level / len(LOOKS), last - 1) * error
        return equal > 1.5 * math.log1p(self.same_bound) and differs > 1.5 * (abs(fmean(epochs)) - bound)


def interval(epochs: Sequence[float], alpha: float) -> Estimate:
    """Return the mean of the epochs' log ratios with a two-sided ``1 − alpha`` interval.

    The interval holds at all numbers of epochs in ``LOOKS`` together. With fewer than two epochs its bounds are
    infinite.
    """
    centre = fmean(epochs)
    half = _reach(epochs, alpha / 2)
    return Estimate(centre, centre - half, centre + half)


def found_twice(first: Sequence[float], second: Sequence[float], test: Test) -> Estimate:
    """Return the mean of the second pass's log ratios, with an interval that combines both passes.

    A difference counts if both passes find it, each at ``Test.pass_level``. So the interval includes every value that
    at least one pass does not exclude. Its low end lies above ``min_effect`` exactly if the verdict is slower. Each
    end holds with probability 1 − alpha / cases at all ``LOOKS`` together. An interval from the second pass alone, at
    that level, would need far more epochs: a case would be called slower although that interval includes zero change.
    """
    centre = fmean(second)
    ends = [(fmean(epochs), _reach(epochs, test.pass_level)) for epochs in (first, second)]
    return Estimate(centre, min(mid - half for mid, half in ends), max(mid + half for mid, half in ends))


def excluded(epochs: Sequence[float], alpha: float, scatter: float = math.inf) -> float:
    """Return a log ratio that the true one exceeds with probability ≤ ``alpha`` at all ``LOOKS`` together.

    Args:
        epochs: log ratios of at least one epoch.
        scatter: standard deviation of the log ratios of other cases. Before the first of ``LOOKS`` the epochs' own
            standard deviation counts for little, so this one is taken for known.
    """
    own = fmean(epochs) + _reach(epochs, alpha)
    if len(epochs) >= LOOKS[0]:
        return own
    return min(own, fmean(epochs) + _quantile(alpha, _MANY) * scatter / math.sqrt(len(epochs)))


def relative(log: Estimate) -> Estimate:
    """Convert log ratios to relative changes: 0.01 is 1 % slower."""
    return Estimate(*(math.expm1(value) if value < 700 else math.inf for value in (log.value, log.low, log.high)))


def furthest(change: Estimate) -> tuple[float, bool]:
    """Return how far from zero the true change may lie, as a share, and whether the interval shows it.

    The interval of a few scattered epochs has an absurd end, and that of a single epoch is infinite. An end beyond
    100 % and beyond the change itself tells nothing of the machine: return the larger of these two, and ``False``.
    """
    bound, most = max(abs(change.low), abs(change.high)), max(1.0, abs(change.value))
    return (bound, True) if bound <= most else (most, False)


def _reach(epochs: Sequence[float], tail: float) -> float:
    """Return a distance by which the true value exceeds the mean at any of ``LOOKS`` with probability ≤ ``tail``."""
    if len(epochs) < 2:
        return math.inf
    return _quantile(tail / len(LOOKS), len(epochs) - 1) * stdev(epochs) / math.sqrt(len(epochs))


def _quantile(tail: float, freedom: int) -> float:
    """Return the value that Student's t exceeds with probability ``tail``."""
    return -t_quantile(tail, freedom)
