"""The verdict on a candidate, and its text."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from lockstep.record.model import Estimate
from lockstep.referee.error_rate import Evidence
from lockstep.timing.rules.rule import Rule


class Outcome(StrEnum):
    """The verdict in one word. "broken" means that a candidate does not load, raises, hangs or crashes."""

    FASTER = "faster"
    NOT_FASTER = "not-faster"
    WRONG = "wrong"
    CHEATS = "cheats"
    BROKEN = "broken"


#: Outcomes of candidates that compute the correct result and break no rule.
CORRECT = (Outcome.FASTER, Outcome.NOT_FASTER)

#: Outcome by broken rule; every other rule gives "cheats".
_BY_RULE = {"": Outcome.BROKEN, Rule.HUNG: Outcome.BROKEN, Rule.WRONG_RESULT: Outcome.WRONG}

_SENTENCES = {
    Outcome.FASTER: "correct and faster than {incumbent} by {speedup}",
    Outcome.NOT_FASTER: "correct, no faster than chance: {speedup} against {incumbent}",
    Outcome.WRONG: "wrong: {reason}",
    Outcome.CHEATS: "cheats: {rule}: {reason}",
    Outcome.BROKEN: "broken: {reason}",
}


@dataclass(frozen=True)
class Compared:
    """What a stage says about a candidate at one case.

    Attributes:
        latency_s, incumbent_s: seconds of a call in the fastest run, without the cost of a run.
        check_error: the largest relative error of the candidate's outputs.
    """

    case: str
    evidence: Evidence
    latency_s: float
    incumbent_s: float
    check_error: float


@dataclass(frozen=True)
class Verdict:
    """The verdict on one candidate.

    Attributes:
        rule: name of the broken rule (``lockstep.timing.rules.rule``), or "".
        reason: the observation, with numbers, or "". Of a faster candidate: why the verdict is not confirmed.
        confirmed: whether a faster candidate ran in a sandbox.
        speedup: incumbent's time over candidate's time, the geometric mean over the cases, with its interval; None
            unless the candidate is correct.
        stage: the last stage that the candidate reached.
        seconds: time spent on the verdict.
        cases: for each case its label, seconds per call of candidate and incumbent, and the largest error.
    """

    candidate: str
    incumbent: str
    outcome: Outcome
    rule: str = ""
    reason: str = ""
    confirmed: bool = False
    speedup: Estimate | None = None
    stage: str = ""
    seconds: float = 0.0
    cases: tuple[dict[str, Any], ...] = field(default=(), hash=False)

    def failed(self, rule: str, reason: str) -> Verdict:
        """Return this verdict with the outcome for the broken ``rule``; with rule "" the outcome is "broken"."""
        return replace(self, outcome=_outcome(rule), rule=rule, reason=reason)

    def sentence(self) -> str:
        """Return the verdict as one line of text."""
        speedup = percent(self.speedup) if self.speedup else ""
        text = _SENTENCES[self.outcome].format(**{**asdict(self), "speedup": speedup})
        if self.outcome is Outcome.NOT_FASTER and self.reason:
            text = f"correct: {self.reason}"
        if self.outcome in CORRECT and len(self.cases) == 1:
            [case] = self.cases
            text += f" ({case['latency_s'] * 1e6:.4g} µs, {self.incumbent} {case['incumbent_s'] * 1e6:.4g} µs)"
        if self.outcome is Outcome.FASTER:
            text += ", confirmed" if self.confirmed else f", not confirmed: {self.reason}"
        return f"{self.candidate}: {text}, in {self.seconds:.1f} s"


def percent(speedup: Estimate) -> str:
    """Return a speedup and its interval as text, ``5.2 % ± 0.3 %``."""
    half = (math.log(speedup.high) - math.log(speedup.low)) / 2 if 0 < speedup.low <= speedup.high else math.inf
    spread = f"{speedup.value * math.expm1(half):.2%}" if half < 1 else "more than 100%"
    return f"{speedup.value - 1:.2%} ± {spread}".replace("%", " %")


def _outcome(rule: str) -> Outcome:
    return _BY_RULE.get(rule, Outcome.CHEATS)


def case_row(compared: Compared) -> dict[str, Any]:
    """Return the numbers of candidate and incumbent at a case, as ``Verdict.cases`` describes them."""
    return {key: value for key, value in asdict(compared).items() if key != "evidence"}
