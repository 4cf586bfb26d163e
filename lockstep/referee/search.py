"""Decide which candidates of a search loop are faster than their incumbent, however many the loop tries.

A loop that keeps the best of many noisy measurements climbs noise. So a candidate passes three stages, each on buffers
and in an order of its own: *screen* and *repeat* only sort out, *final* decides, in a new process. The null hypothesis
of a final is that the candidate is not faster by more than ``min_effect``.

The k-th final of a loop is tested at ``error_rate · k^-1.6 / ζ(1.6)``. Its data are independent of all that led to it,
so the levels bound the chance of a false "faster" whatever came before, and their sum bounds that of any false
"faster" in the whole loop: at most ``error_rate``, for any number of candidates and any way of choosing the next one.
Candidates that a stage sorts out cost nothing.

Sources: alpha-spending, D. P. Foster and R. A. Stine 2008, "α-investing: a procedure for sequential control of expected
false discoveries"; for family-wise error rates J. Tian and A. Ramdas 2021, "Online control of the familywise error
rate". ``tests/referee/test_search.py`` simulates loops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from lockstep.record.model import Estimate
from lockstep.timing.intervals import t_quantile

#: Standard deviation between processes of the log ratio of two arms with the same code on an H200: the largest of 26
#: (docs/measuring.md, "A/A, standard deviation over the runs"). All epochs of a process share this deviation.
PROCESS_SD = 0.0005

#: Level of the bound that ``repeat`` asks for, and of the intervals of candidates that are not faster (each side).
REPEAT_LEVEL = 0.025

#: Σ k^-1.6 over k = 1, 2, …, Riemann's ζ(1.6), rounded up.
_ZETA = 2.2858

Stage = Literal["screen", "repeat", "final"]

#: The stages in their order.
STAGES: tuple[Stage, ...] = ("screen", "repeat", "final")


@dataclass(frozen=True)
class Evidence:
    """What one stage measured.

    Attributes:
        log_ratio: mean over the epochs of the log of incumbent's time over candidate's; above 0 is faster.
        error: standard error of ``log_ratio`` by the spread of the epochs.
        epochs: draws of buffers behind it.
    """

    log_ratio: float
    error: float
    epochs: int


def pooled(cases: Sequence[Evidence]) -> Evidence:
    """Return the evidence on the geometric mean over cases; ``epochs`` is that of the case with the fewest.

    Its degrees of freedom are at least those (Welch–Satterthwaite), so intervals err to the wide side.
    """
    count = len(cases)
    return Evidence(
        sum(one.log_ratio for one in cases) / count,
        math.sqrt(sum(one.error**2 for one in cases)) / count,
        min(one.epochs for one in cases),
    )


@dataclass
class Search:
    """The state of one loop.

    Attributes:
        min_effect: smallest speedup that counts; 0.005 is 0.5 %.
        error_rate: bound on the probability that the loop calls any candidate faster that is not, by ``min_effect``.
        process_sd: see ``PROCESS_SD``.
        finals: finals so far.
    """

    min_effect: float = 0.005
    error_rate: float = 0.01
    process_sd: float = PROCESS_SD
    finals: int = 0

    def level(self, stage: Stage) -> float:
        """Return the level of a stage's interval, each side; a final spends its share of ``error_rate``."""
        if stage != "final":
            return REPEAT_LEVEL
        self.finals += 1
        return float(self.error_rate * self.finals**-1.6 / _ZETA)

    def passes(self, stage: Stage, evidence: Evidence, level: float) -> bool:
        """Return whether a stage's evidence leads to the next stage, or after ``final`` to the verdict "faster"."""
        bound = math.log1p(self.min_effect)
        if stage == "screen":
            return evidence.log_ratio > bound
        return self.interval(evidence, level).low > bound

    def interval(self, evidence: Evidence, level: float) -> Estimate:
        """Return the log ratio with bounds that each fail with probability ``level`` at most.

        Half of the level goes to the spread of the epochs (Student's t), half to the deviation of the process, which no
        number of epochs shows. Infinite bounds from fewer than two epochs.
        """
        if evidence.epochs < 2:
            return Estimate(evidence.log_ratio, -math.inf, math.inf)
        reach = -t_quantile(level / 2, evidence.epochs - 1) * evidence.error
        reach -= NormalDist().inv_cdf(level / 2) * self.process_sd
        return Estimate(evidence.log_ratio, evidence.log_ratio - reach, evidence.log_ratio + reach)
