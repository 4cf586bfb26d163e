"""Derive the verdict on a candidate from its records, and write it as text."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from lockstep.record.model import Estimate, Record
from lockstep.referee.error_rate import Evidence
from lockstep.timing.intervals import standard_error
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
class Verdict:
    """The verdict on one candidate.

    Attributes:
        candidate, incumbent: names of the candidate and of the incumbent.
        outcome: see ``Outcome``.
        rule: name of the broken rule (``lockstep.timing.rules.rule``), or "".
        reason: the observation, with numbers, or "".
        speedup: incumbent's time over candidate's time, the geometric mean over the cases, with its interval; None
            unless the candidate is correct.
        stage: the last stage that the candidate reached.
        seconds: time spent on the verdict.
        cases: for each case its label, cache state, seconds per call of candidate and incumbent, and the check's error.
    """

    candidate: str
    incumbent: str
    outcome: Outcome
    rule: str = ""
    reason: str = ""
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
        return f"{self.candidate}: {text}"


def percent(speedup: Estimate) -> str:
    """Return a speedup and its interval as text, ``5.2 % ± 0.3 %``."""
    half = (math.log(speedup.high) - math.log(speedup.low)) / 2 if 0 < speedup.low <= speedup.high else math.inf
    spread = f"{speedup.value * math.expm1(half):.2%}" if half < 1 else "more than 100%"
    return f"{speedup.value - 1:.2%} ± {spread}".replace("%", " %")


def fault(records: Sequence[Record]) -> tuple[str, str] | None:
    """Return the rule and reason of a candidate's worst record; None if all records have measurements."""
    worst = (Outcome.CHEATS, Outcome.WRONG, Outcome.BROKEN)
    failed = [record for record in records if record.state != "ok"]
    if not failed:
        return None
    worst_record = min(failed, key=lambda record: worst.index(_outcome(record.rule)))
    return worst_record.rule, _evidence_of(worst_record)


def _outcome(rule: str) -> Outcome:
    return _BY_RULE.get(rule, Outcome.CHEATS)


def _evidence_of(record: Record) -> str:
    """Return a record's reason. If the record has a rule, the rule's name at the start of the reason is left out."""
    return re.sub(r"^[\w-]+: ", "", record.reason) if record.rule else record.reason


def evidence(record: Record) -> Evidence | None:
    """Return the evidence on a candidate's speed from its record at one case; None if the record has no speedup."""
    ratio = record.speedup
    if ratio is None:
        return None
    [error] = standard_error(np.array([ratio.low]), np.array([ratio.high]), np.array([record.epochs], dtype=np.int32))
    return Evidence(math.log(ratio.value), float(error), record.epochs)


def case_rows(candidate: Sequence[Record], incumbent: Sequence[Record]) -> tuple[dict[str, Any], ...]:
    """Return for each case the numbers of candidate and incumbent, as ``Verdict.cases`` describes them."""
    before = {(record.case, record.l2): record.latency for record in incumbent}
    return tuple(
        {
            "case": record.case,
            "l2": record.l2,
            "latency_s": record.latency.value if record.latency else None,
            "incumbent_s": known.value if (known := before.get((record.case, record.l2))) else None,
            "check_error": record.check_error,
        }
        for record in candidate
    )
