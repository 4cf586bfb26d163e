"""Judge a case from pairs of measurements of base and head that share no buffers.

Each pair gives one ratio, and the tests of ``lockstep.gate.sequential`` count pairs as they count epochs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import zip_longest

from lockstep.gate.case_verdict import SeriesKey, Verdict
from lockstep.gate.sequential import LOOKS, Decision, Test
from lockstep.gate.two_rounds import Round, decided


@dataclass
class PairTrial:
    """The pairs of measurements that have compared a case so far, in one or two rounds.

    Attributes:
        test: the test of the case.
        unit: what the reasons of unsure verdicts call the pairs, such as "pairs of processes".
        rounds: log ratios head / base, one per pair; the second round begins when the first finds a difference.
        seconds: seconds of base and of head, for each pair.
        decisions: the decision of each finished round.
        refusal: the verdict on a case that cannot be compared.
    """

    test: Test
    unit: str
    rounds: list[list[float]] = field(default_factory=lambda: [[]])
    seconds: list[tuple[float, float]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    refusal: Verdict | None = None

    @property
    def over(self) -> bool:
        """Return whether the case is decided, refused or undecidable, so that further pairs are of no use."""
        ratios = self.rounds[-1]
        undecidable = len(ratios) >= LOOKS[-1] or self.test.hopeless(ratios)
        return self.refusal is not None or undecidable or len(self.decisions) == len(self.rounds)

    def add(self, base_s: float, head_s: float) -> None:
        """Add the times of one pair of measurements. If the first round finds a difference, begin the second round."""
        self.rounds[-1].append(math.log(head_s / base_s))
        self.seconds.append((base_s, head_s))
        decision = self.test.decide(self.rounds[-1])
        if decision is not None:
            self.decisions.append(decision)
            if decision != "same" and len(self.rounds) == 1:
                self.rounds.append([])

    def verdict(self, key: SeriesKey) -> Verdict:
        """Return the verdict on the case that the pairs compare."""
        if self.refusal is not None:
            return self.refusal
        place, rounds = 0, []
        for ratios, decision in zip_longest(self.rounds, self.decisions):
            rounds.append(Round(ratios, self.seconds[place : place + len(ratios)], decision))
            place += len(ratios)
        first, *more = rounds
        undecided = Verdict(key, "unsure", min_effect=self.test.min_effect, epochs=len(self.seconds))
        return decided(undecided, self.test, self.unit, first, more[0] if more else None)
