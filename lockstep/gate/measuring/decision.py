"""Decide a case from the epochs of one or two rounds."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from statistics import fmean, geometric_mean, stdev

from lockstep.gate.case_verdict import MOVED, OUT_OF_TIME, UNREACHED, SeriesKey, Verdict
from lockstep.gate.measuring.buffers import BASE, HEAD, Contender, SideFailed
from lockstep.gate.measuring.pairing import Epoch
from lockstep.gate.sequential import LOOKS, Decision, Test, found_twice, interval, relative
from lockstep.timing.clock_correction import at_common_clock, midmean


@dataclass
class CaseRound:
    """One round of measuring a case: its epochs so far, and the decision that they give."""

    contender: Contender
    test: Test
    epochs: list[Epoch] = field(default_factory=list)
    per_call: dict[str, float] = field(default_factory=dict)
    moved: int = 0
    voided: int = 0
    decision: Decision | None = None
    failure: SideFailed | None = None
    wall_s: float = 0.0
    #: Index of the epoch that is verified: a random epoch before the first test, which a variant cannot foresee.
    verified: int = field(default_factory=lambda: random.SystemRandom().randrange(LOOKS[0]))

    @property
    def ratios(self) -> list[float]:
        """Return the log ratio head / base of each epoch, normalised to a common clock by a fit to all epochs."""
        return [midmean(epoch) for epoch in at_common_clock([epoch.pair for epoch in self.epochs])]

    @property
    def over(self) -> bool:
        """Return whether the round is over: the case is decided, has failed, or cannot be decided by more epochs."""
        undecidable = len(self.epochs) >= LOOKS[-1] or self.test.hopeless(self.ratios)
        return self.decision is not None or self.failure is not None or undecidable


def verdict_of(key: SeriesKey, first: CaseRound, second: CaseRound | None) -> Verdict:
    """Return the verdict on a case after one or two rounds.

    The numbers come from the last round. A case gets a second round only if its first round showed a difference, so
    the first round overstates the difference.
    """
    shown = second if second is not None and second.epochs else first
    epochs = first.epochs + (second.epochs if second else [])
    verdict = Verdict(
        key,
        "unsure",
        min_effect=first.test.min_effect,
        epochs=len(epochs),
        moved=first.moved + (second.moved if second else 0),
        voided=first.voided + (second.voided if second else 0),
        shared=all(epoch.shared for epoch in epochs),
        wall_s=first.wall_s + (second.wall_s if second else 0.0),
    )
    failure = (second.failure if second else None) or first.failure
    if failure is not None:
        if failure.side == BASE:
            return replace(verdict, reason=f"base cannot be timed: {failure}")
        return replace(verdict, outcome="failed", reason=f"cannot be timed: {failure}")
    if not shown.epochs:
        return replace(verdict, reason=_undecided(shown))
    log = interval(shown.ratios, first.test.alpha)
    verdict = replace(
        verdict,
        change=relative(log),
        # The geometric mean, as for the change. An arithmetic mean follows the slowest epoch and contradicts the
        # change.
        base_s=geometric_mean(epoch.seconds[BASE] for epoch in shown.epochs),
        head_s=geometric_mean(epoch.seconds[HEAD] for epoch in shown.epochs),
    )
    if second is None:
        if first.decision == "same":
            return replace(verdict, outcome="same", min_effect=first.test.same_bound)
        if first.decision is not None:  # an A/A comparison has only one round
            return replace(verdict, outcome=first.decision, reason="one round")
        return replace(verdict, reason=_undecided(first))
    if second.decision == first.decision and first.decision is not None:
        twice = relative(found_twice(first.ratios, second.ratios, first.test))
        return replace(verdict, outcome=first.decision, confirmed=True, change=twice)
    first_change = f"{math.expm1(fmean(first.ratios)):+.2%} in a first round"
    if second.decision == "same":
        return replace(
            verdict, outcome="same", min_effect=second.test.same_bound, reason=f"{first_change}, not in the second"
        )
    if second.decision is not None:
        return replace(verdict, reason=f"{first_change}, {math.expm1(fmean(second.ratios)):+.2%} in the second")
    return replace(verdict, reason=f"{first_change}, not confirmed by a second: {_undecided(second)}")


def _undecided(trial: CaseRound) -> str:
    count = len(trial.epochs)
    if not count:
        return MOVED if trial.moved else UNREACHED
    if trial.test.hopeless(trial.ratios):
        return f"too noisy: {stdev(trial.ratios):.1%} from epoch to epoch, {count} epochs"
    if count >= LOOKS[-1]:
        return f"too close to call after {count} epochs"
    return f"{OUT_OF_TIME} after {count} epochs"
