"""Decide which candidates of a search loop are faster than the incumbent, with an error rate for the whole loop.

A loop that adopts the best of many noisy measurements selects noise. So a candidate passes three stages, each with its
own buffers and its own order. *screen* and *repeat* only discard candidates. *final* decides, in a new process. The
null hypothesis of a final is that the candidate is not faster by more than ``min_effect``.

The k-th final of a loop is tested at level ``error_rate · k^-1.6 / ζ(1.6)``. The data of a final are independent of all
earlier data, so this level bounds the probability of a false "faster" in this final. The levels add up to
``error_rate``. This sum bounds the probability of any false "faster" in the whole loop, for any number of candidates
and any way of choosing the next candidate. Candidates that *screen* or *repeat* discards use none of the error rate.

Sources: alpha-spending, D. P. Foster and R. A. Stine 2008, "α-investing: a procedure for sequential control of expected
false discoveries"; for family-wise error rates J. Tian and A. Ramdas 2021, "Online control of the familywise error
rate". ``tests/referee/test_error_rate.py`` simulates loops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from lockstep.record.model import Estimate
from lockstep.timing.intervals import t_quantile

#: Standard deviation, between pairs of processes, of the log ratio of two with the same code. All epochs of a pair
#: share the same deviation, because memory lies elsewhere in each process.
PROCESS_SD = 0.003

#: Level, on each side, of the bound in ``repeat``, and of the intervals for candidates that are not faster.
REPEAT_LEVEL = 0.025

#: Σ k^-1.6 over k = 1, 2, …, Riemann's ζ(1.6), rounded up.
_ZETA = 2.2858

Stage = Literal["screen", "repeat", "final"]

#: The stages in their order, each with its number of epochs: fixed, as its fixed-sample test requires.
EPOCHS: dict[Stage, int] = {"screen": 3, "repeat": 6, "final": 14}
STAGES = tuple(EPOCHS)


@dataclass(frozen=True)
class Evidence:
    """What the measurements of one stage say about a candidate's speed.

    Attributes:
        log_ratio: mean over the epochs of log(incumbent's time / candidate's time); positive if the candidate is
            faster.
        error: standard error of ``log_ratio``, from the spread between epochs.
        epochs: number of epochs, each with fresh buffers.
    """

    log_ratio: float
    error: float
    epochs: int


def pooled(cases: Sequence[Evidence]) -> Evidence:
    """Return the evidence on the geometric mean over cases. ``epochs`` is the smallest number of any case.

    The true degrees of freedom are at least as many (Welch–Satterthwaite), so intervals may be too wide, but not
    too narrow.
    """
    count = len(cases)
    return Evidence(
        sum(case.log_ratio for case in cases) / count,
        math.sqrt(sum(case.error**2 for case in cases)) / count,
        min(case.epochs for case in cases),
    )


@dataclass
class Search:
    """The error rate that one loop has spent, and the tests of its stages.

    Attributes:
        min_effect: smallest speedup that counts; 0.005 is 0.5 %.
        error_rate: bound on the probability that the loop falsely calls any candidate faster by ``min_effect``.
        process_sd: standard deviation, between processes, of the log ratio of two arms with the same code.
        finals: number of finals so far.
    """

    min_effect: float = 0.005
    error_rate: float = 0.01
    process_sd: float = PROCESS_SD
    finals: int = 0

    def level(self, stage: Stage) -> float:
        """Return the level of each bound of a stage's interval. A call for a final spends part of ``error_rate``."""
        if stage != "final":
            return REPEAT_LEVEL
        self.finals += 1
        return float(self.error_rate * self.finals**-1.6 / _ZETA)

    def passes(self, stage: Stage, evidence: Evidence, level: float) -> bool:
        """Return whether a candidate passes a stage. A candidate that passes ``final`` is "faster"."""
        bound = math.log1p(self.min_effect)
        if stage == "screen":
            return evidence.log_ratio > bound
        return self.interval(evidence, level).low > bound

    def interval(self, evidence: Evidence, level: float) -> Estimate:
        """Return the log ratio with two bounds. Each bound fails with probability ``level`` at most.

        Half of the level covers the spread of the epochs (Student's t). The other half covers the deviation of the
        process, which no number of epochs reveals. With fewer than two epochs the bounds are infinite.
        """
        if evidence.epochs < 2:
            return Estimate(evidence.log_ratio, -math.inf, math.inf)
        reach = -t_quantile(level / 2, evidence.epochs - 1) * evidence.error
        reach -= NormalDist().inv_cdf(level / 2) * self.process_sd
        return Estimate(evidence.log_ratio, evidence.log_ratio - reach, evidence.log_ratio + reach)
