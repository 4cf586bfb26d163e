"""Decide a case from the epochs of one or two rounds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from lockstep.gate.case_verdict import MOVED, UNREACHED, SeriesKey, Verdict
from lockstep.gate.measuring.buffers import BASE, HEAD, Contender, SideFailed
from lockstep.gate.measuring.pairing import Epoch
from lockstep.gate.sequential import LOOKS, Decision, Test
from lockstep.gate.two_rounds import Round, decided
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
    def measured(self) -> Round:
        """Return the ratios, the seconds and the decision of the round."""
        seconds = [(epoch.seconds[BASE], epoch.seconds[HEAD]) for epoch in self.epochs]
        return Round(self.ratios, seconds, self.decision, MOVED if self.moved else UNREACHED)

    @property
    def over(self) -> bool:
        """Return whether the round is over: the case is decided, has failed, or cannot be decided by more epochs."""
        undecidable = len(self.epochs) >= LOOKS[-1] or self.test.hopeless(self.ratios)
        return self.decision is not None or self.failure is not None or undecidable


def verdict_of(key: SeriesKey, first: CaseRound, second: CaseRound | None) -> Verdict:
    """Return the verdict on a case after one or two rounds."""
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
    return decided(verdict, first.test, "epochs", first.measured, second.measured if second else None)
