"""When a case is decided, and how often such decisions are wrong.

Tested is whether a change matters, not whether there is one: slower means that the log ratio of head to base
lies above ``min_effect`` (Murphy & Myors 1999, "Testing the hypothesis that treatments have negligible
effects"), same that it lies within ± ``min_effect`` (Schuirmann 1987, the two one-sided tests of equivalence).
Each is a t test on the epochs' ratios: an epoch, one draw of buffers, is the independent unit.

Error rates, for whatever number of cases:

- *Looks.* A case is looked at after 4, 6, 9, 13, 19 and 28 epochs and left as soon as it is decided. Each look
  has a sixth of the round's level, so that looking often costs nothing in error (Bonferroni's inequality).
- *Two rounds.* A difference counts when a second round, on buffers and an order drawn from another seed, finds it
  again. The rounds are independent, so their levels multiply: with ``√(α / m)`` each, a case that is not slower
  by ``min_effect`` is called slower with probability ≤ α / m, and any of m cases with probability ≤ α. This is
  a family-wise error rate, under any dependence between cases, of far more power than one test at α / m.
- *Same.* A case that is slower by ``min_effect`` or more is called the same with probability ≤ α, each case.

``tests/gate/test_gate_sequential.py`` simulates all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from lockstep.record.model import Estimate

#: Numbers of epochs after which a case is looked at. The first is the least a verdict may rest on.
LOOKS = (4, 6, 9, 13, 19, 28)

#: Widest interval that is called the same, as a share, unless more was asked for: the factor of 1.1 from which
#: ``asv continuous`` reports a change. A machine that resolves less is unsure.
MOST_SAME = 0.1

Decision = Literal["slower", "faster", "same"]


@dataclass(frozen=True)
class Test:
    """The test of one case.

    Attributes:
        min_effect: smallest relative slowdown that counts; 0.01 is 1 %. A speedup counts from the same ratio on.
        alpha: share of the family-wise error rate and of wrongly called sames, 1 − confidence.
        cases: how many cases share the family-wise rate.
        same_within: the interval of a "same" lies within this share as well; less than ``min_effect`` where noise
            widened that.
    """

    __test__ = False  # pytest, which collects whatever is called Test…

    min_effect: float
    alpha: float
    cases: int
    same_within: float = math.inf

    @property
    def same_bound(self) -> float:
        """Share within which the interval of a "same" lies."""
        return min(self.min_effect, self.same_within)

    @property
    def round_level(self) -> float:
        """Error rate of one round of two: ``√(α / m)``."""
        return math.sqrt(self.alpha / max(1, self.cases))

    def decide(self, epochs: Sequence[float]) -> Decision | None:
        """What the epochs' log ratios (head over base, so that above 0 is slower) say; ``None``: go on.

        Call it after every epoch: it answers at ``LOOKS`` only.
        """
        if len(epochs) not in LOOKS:
            return None
        centre, bound = fmean(epochs), math.log1p(self.min_effect)
        differs, equal = _reach(epochs, self.round_level), _reach(epochs, self.alpha)
        if centre - differs > bound:
            return "slower"
        if centre + differs < -bound:
            return "faster"
        if abs(centre) + equal < math.log1p(self.same_bound):
            return "same"
        return None

    def hopeless(self, epochs: Sequence[float]) -> bool:
        """Whether all further looks would hardly decide it, judging by the spread so far: the time is better spent
        elsewhere. It leads to no verdict, and so to no wrong one.
        """
        if len(epochs) not in LOOKS[2:]:
            return False
        last, bound = LOOKS[-1], math.log1p(self.min_effect)
        error = stdev(epochs) / math.sqrt(last)
        equal = _quantile(self.alpha / len(LOOKS), last - 1) * error
        differs = _quantile(self.round_level / len(LOOKS), last - 1) * error
        return equal > 1.5 * math.log1p(self.same_bound) and differs > 1.5 * (abs(fmean(epochs)) - bound)


def interval(epochs: Sequence[float], alpha: float) -> Estimate:
    """Mean of the epochs' log ratios with its two-sided ``1 − alpha`` interval at every look at once.

    Infinite bounds from fewer than two epochs.
    """
    centre = fmean(epochs)
    half = _reach(epochs, alpha / 2)
    return Estimate(centre, centre - half, centre + half)


def found_twice(first: Sequence[float], second: Sequence[float], test: Test) -> Estimate:
    """Mean of the second round's log ratios, with ends that neither round puts beyond doubt.

    A difference counts where both rounds find it, each at ``Test.round_level``; what is not ruled out by both is left
    in. So low lies above ``min_effect`` exactly where the verdict is slower, and either end holds with probability
    1 − α/m at every look at once. The second round by itself, at the full level, would need far more epochs: a
    difference that is sure would be told with an interval that has none in it.
    """
    centre = fmean(second)
    ends = [(fmean(epochs), _reach(epochs, test.round_level)) for epochs in (first, second)]
    return Estimate(centre, min(mid - half for mid, half in ends), max(mid + half for mid, half in ends))


def relative(log: Estimate) -> Estimate:
    """From log ratios to relative changes: 0.01 is 1 % slower."""
    return Estimate(*(math.expm1(value) if value < 700 else math.inf for value in (log.value, log.low, log.high)))


def furthest(change: Estimate) -> tuple[float, bool]:
    """Return how far from no change the truth may lie, as a share, and whether the interval ends there.

    An interval without an end, that of one epoch, gives the epoch's own change, 100 % at least: the truth may lie
    further away.
    """
    bound = max(abs(change.low), abs(change.high))
    return (bound, True) if math.isfinite(bound) else (max(1.0, abs(change.value)), False)


def _reach(epochs: Sequence[float], tail: float) -> float:
    """How far above their mean the truth lies with probability ``tail`` at most, at every look at once."""
    if len(epochs) < 2:
        return math.inf
    return _quantile(tail / len(LOOKS), len(epochs) - 1) * stdev(epochs) / math.sqrt(len(epochs))


def _quantile(tail: float, freedom: int) -> float:
    """Student's t above which so much of the distribution lies."""
    from lockstep.timing.intervals import t_quantile  # here, because verbs are loaded at every start and need no numpy

    return -t_quantile(tail, freedom)
