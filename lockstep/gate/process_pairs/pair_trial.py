"""Judge a case from pairs of measurements of base and head that share no buffers.

Each pair gives one ratio, and the tests of ``lockstep.gate.sequential`` count pairs as they count epochs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, geometric_mean, stdev

from lockstep.gate.case_verdict import OUT_OF_TIME, UNREACHED, SeriesKey, Verdict
from lockstep.gate.sequential import LOOKS, Decision, Test, found_twice, interval, relative


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
        """Return the verdict on the case that the pairs compare; the numbers are those of the last round."""
        if self.refusal is not None:
            return self.refusal
        first, *more = self.rounds
        shown = more[0] if more and more[0] else first
        pairs = len(self.seconds)
        if not pairs:
            return Verdict(key, "unsure", UNREACHED, min_effect=self.test.min_effect)
        last = self.seconds[-len(shown) :]
        undecided = Verdict(
            key,
            "unsure",
            change=relative(interval(shown, self.test.alpha)),
            min_effect=self.test.min_effect,
            base_s=geometric_mean(base for base, _ in last),
            head_s=geometric_mean(head for _, head in last),
            epochs=pairs,
        )
        match self.decisions:
            case ["same"] | [_, "same"]:
                return replace(undecided, outcome="same", min_effect=self.test.same_bound)
            case [outcome, confirming] if outcome == confirming:
                twice = relative(found_twice(first, more[0], self.test))
                return replace(undecided, outcome=outcome, confirmed=True, change=twice)
            case [_, _]:
                return replace(undecided, reason="slower in one round and faster in the other")
            case [_]:
                first_change = f"{math.expm1(fmean(first)):+.2%} in a first round"
                return replace(undecided, reason=f"{first_change}, not confirmed by a second: {self._undecided(shown)}")
        return replace(undecided, reason=self._undecided(shown))

    def _undecided(self, ratios: Sequence[float]) -> str:
        if self.test.hopeless(ratios):
            return f"too noisy: {stdev(ratios):.1%} between {len(ratios)} {self.unit}"
        if len(ratios) >= LOOKS[-1]:
            return f"too close to call after {len(ratios)} {self.unit}"
        return f"{OUT_OF_TIME} after {len(self.seconds)} {self.unit}"
