"""What the gate found, as a whole: what passes, what the headline says, what machines read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from lockstep.gate.verdict import OUTCOMES, Verdict
from lockstep.record.lines import finite

#: Layout of the JSON file; ``docs/gate.md`` describes it. Raised when a reader must change.
SCHEMA = 1

#: Outcomes that say something of head; ``unsure``, ``na`` and ``removed`` do not.
JUDGED = ("same", "faster", "slower", "new")

State = Literal["pass", "slower", "failed", "infrastructure", "interrupted"]

#: Exit status of the verb. Interrupted is the shell's 128 + SIGINT.
EXIT: Mapping[State, int] = {"pass": 0, "slower": 1, "failed": 2, "infrastructure": 3, "interrupted": 130}


@dataclass(frozen=True)
class Report:
    """One run of the gate.

    Attributes:
        base, head: as asked for, with the commit.
        min_effect: asked for by default; a case has its own in its verdict.
        confidence: 1 − the family-wise error rate.
        budget_s: seconds for judging.
        seed: of buffers, order and the meter's picks.
        machine: GPU or CPU, clock state, toolchain.
        cases: a verdict a case.
        meter: unchanged code that was measured all the same: what the machine makes of no change.
        wall_s: seconds in all.
        notes: what a reader must know: thresholds widened, two processes, a control that moved.
        trouble: why the machine cannot judge; "" if it can.
        interrupted: it was stopped; what it had not reached is unsure.
        controls: as ``Controls.summary``.
        absent: suites that were asked for and whose family neither version has.
        compared_s: seconds of ``wall_s`` that comparing the code took; not part of the budget.
    """

    base: str
    head: str
    min_effect: float
    confidence: float
    budget_s: float
    seed: int
    machine: Mapping[str, str] = field(default_factory=dict)
    cases: tuple[Verdict, ...] = ()
    meter: tuple[Verdict, ...] = ()
    wall_s: float = 0.0
    notes: tuple[str, ...] = ()
    trouble: str = ""
    interrupted: bool = False
    controls: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    compared_s: float = 0.0

    @property
    def state(self) -> State:
        """The verdict on the change; a wrong kernel weighs more than a slow one, a machine that cannot judge most.

        A pass needs a verdict: see ``unjudged``.
        """
        if self.interrupted:
            return "interrupted"
        if self.trouble:
            return "infrastructure"
        if any(verdict.outcome == "failed" and verdict.blocks for verdict in self.cases):
            return "failed"
        if self.regressions:
            return "slower"
        return "infrastructure" if self.unjudged else "pass"

    @property
    def unjudged(self) -> str:
        """Why a run without bad news is not a pass, or "".

        A pass needs every family in one version at least, and a judged case: head was compared with base, or checked
        where base has no such case. Cases that are proved or new do not count where all that had to be compared are
        unsure: those are the cases that the change can touch. Each case that the change can touch must run here.
        """
        if self.absent:
            return f"{', '.join(self.absent)}: neither version has this family"
        if unrun := self.unrun:
            return f"{_cases(unrun)} that the change can touch cannot run here: {_names(unrun)} ({unrun[0].reason})"
        judged = [
            verdict
            for verdict in self.cases
            if verdict.outcome in JUDGED or (verdict.outcome == "failed" and verdict.blocks)
        ]
        unsure = self.of("unsure")
        if judged and not (unsure and all(verdict.proved or verdict.outcome == "new" for verdict in judged)):
            return ""
        reasons = Counter(_why_not(verdict) for verdict in unsure or self.cases)
        return "; ".join(reason for reason, _ in reasons.most_common(3)) or "no case was selected"

    @property
    def unrun(self) -> tuple[Verdict, ...]:
        """Cases without a proof that a machine without a GPU cannot run; on a GPU a refusal is the kernel's own."""
        on_cpu = self.machine.get("device") == "cpu"
        return tuple(verdict for verdict in self.of("na") if on_cpu and not verdict.proved)

    @property
    def regressions(self) -> tuple[Verdict, ...]:
        """Slower and not accepted, worst first."""
        return worst_first(verdict for verdict in self.cases if verdict.outcome == "slower" and verdict.blocks)

    def of(self, *outcomes: str) -> tuple[Verdict, ...]:
        """Cases with one of these outcomes, worst first."""
        return worst_first(verdict for verdict in self.cases if verdict.outcome in outcomes)

    def counts(self) -> dict[str, int]:
        """How many cases have each outcome."""
        counted = Counter(verdict.outcome for verdict in self.cases)
        return {outcome: counted[outcome] for outcome in OUTCOMES if counted[outcome]}

    def to_json(self) -> str:
        """The report for machines."""
        content: dict[str, Any] = {
            "schema": SCHEMA,
            "state": self.state,
            "exit": EXIT[self.state],
            "headline": headline(self),
            "counts": self.counts(),
            "regressions": len(self.regressions),
            **asdict(self),
        }
        return json.dumps(finite(content), indent=1) + "\n"


def worst_first(verdicts: Any) -> tuple[Verdict, ...]:
    """By how much slower head is, the slowest first."""
    return tuple(sorted(verdicts, key=lambda verdict: -verdict.change.value if verdict.change else 0.0))


def headline(report: Report) -> str:
    """The one sentence that a reviewer reads."""
    if report.interrupted:
        return f"Interrupted: {_counted(report)}."
    if report.trouble:
        return f"Nothing can be said: {report.trouble}."
    said = []
    failed = [verdict for verdict in report.of("failed") if verdict.blocks]
    if failed:
        said.append(f"{_cases(failed)} failed: {_names(failed)}, {failed[0].reason}")
    slower = report.regressions
    if slower:
        said.append(
            f"{_cases(slower)} slower: {_names(slower)} by {_by(slower)}, found twice; "
            f"{report.confidence:.0%} sure that none is by chance"
        )
        said += [f"code of the worst: {slower[0].code[0]}"] if slower[0].code else []
    accepted = [verdict for verdict in report.of("slower") if verdict.accepted]
    if accepted:
        said.append(f"{_cases(accepted)} slower as accepted: {_names(accepted)} by {_by(accepted)}")
    if report.absent or report.unrun:
        said.append(f"not judged: {report.unjudged}")
    elif report.unjudged and report.of("same", "new"):
        said.append(f"no case that the change can touch was judged: {report.unjudged}")
        return _sentence(said, report)
    if not slower and (accepted or report.of("same") or report.of("faster")):
        said.append(f"nothing {'else ' if accepted or report.unrun else ''}slower by more than {counts_from(report)}")
    elif not slower and report.of("new") and not failed:
        said.append(f"nothing was compared; head passes its checks in {_cases(report.of('new'))} without a base")
    elif not slower and not report.absent and not report.unrun:
        said.append(f"nothing was judged: {report.unjudged}" if report.unjudged else "nothing else was judged")
    faster = report.of("faster")
    if faster:
        said.append(f"{_cases(faster)} faster: {_names(faster)} by {_by(faster)}")
    refused = [verdict for verdict in report.of("na") if verdict not in report.unrun]
    if refused:
        said.append(f"{_cases(refused)} not compared: {_names(refused)}, not available here ({refused[0].reason})")
    return _sentence(said, report)


def _sentence(said: Sequence[str], report: Report) -> str:
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]} ({_counted(report)})."


def _why_not(verdict: Verdict) -> str:
    """Why a case says nothing of head."""
    if verdict.outcome == "failed":
        return f"fails in base as well ({verdict.reason})"
    if verdict.outcome == "na":
        return f"not available here ({verdict.reason})"
    return verdict.reason or verdict.outcome


def counts_from(report: Report) -> str:
    """Return the smallest change that counts: as asked, and the most that it was for a case with a verdict."""
    decided = report.of("same", "faster", "slower")
    asked, widest = report.min_effect, max((verdict.min_effect for verdict in decided), default=0.0)
    more = f" (up to {percent(widest)} where noise or a rule asks for it)" if widest > 1.2 * asked else ""
    return percent(asked) + more


def percent(share: float) -> str:
    """``1 %``, ``0.25 %``."""
    return f"{100 * share:.3g} %"


def _cases(verdicts: Sequence[Verdict]) -> str:
    return f"{len(verdicts)} case{'s' if len(verdicts) > 1 else ''}"


def _counted(report: Report) -> str:
    counts = report.counts()
    proved = sum(verdict.proved for verdict in report.cases)
    parts = [f"{count} {'n/a' if outcome == 'na' else outcome}" for outcome, count in counts.items()]
    return ", ".join(parts) + (f", {proved} of them proved" if proved else "") if parts else "no case"


def _names(verdicts: Sequence[Verdict]) -> str:
    names = list(dict.fromkeys(f"{verdict.key.suite} {verdict.key.variant}" for verdict in verdicts))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _by(verdicts: Sequence[Verdict]) -> str:
    """ "+1.20 % (+1.10 to +1.30) at M=8", or the range, most first, and where it is most."""
    most, least = verdicts[0], verdicts[-1]
    if abs(_value(most)) < abs(_value(least)):
        most, least = least, most
    at = f"{most.key.case} {most.key.l2}"
    if len(verdicts) > 1:
        return f"{100 * _value(least):+.2f} % to {100 * _value(most):+.2f} %, most at {at}"
    assert most.change is not None
    return f"{100 * most.change.value:+.2f} % ({100 * most.change.low:+.2f} to {100 * most.change.high:+.2f}) at {at}"


def _value(verdict: Verdict) -> float:
    return verdict.change.value if verdict.change else 0.0
