"""The report of the gate: its verdict on the change, its headline, and its JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from lockstep.gate.model import COSTS, DETERMINISTIC, ERROR, LATENCY, OUTCOMES, UNCHECKED, Verdict, is_release
from lockstep.record.counted import counted
from lockstep.record.shared_fields import finite

#: Layout of the JSON file, described in ``docs/gate.md``. Raised when readers must change.
SCHEMA = 1

#: Outcomes that judge head. ``unsure``, ``na`` and ``removed`` do not.
JUDGED = ("same", "faster", "slower", "new")

State = Literal["pass", "slower", "failed", "infrastructure", "interrupted"]

#: Exit status of the verb. The status of an interruption is the shell's 128 + SIGINT.
EXIT: Mapping[State, int] = {"pass": 0, "slower": 1, "failed": 2, "infrastructure": 3, "interrupted": 130}


@dataclass(frozen=True)
class Report:
    """The result of one run of the gate.

    Attributes:
        base, head: the requested versions, with the commit.
        min_effect: the requested smallest change that counts; each verdict has the value used for its case.
        confidence: 1 − the family-wise error rate.
        budget_s: seconds for judging.
        machine: GPU or CPU, clock state, toolchain.
        meter: verdicts on unchanged code that was compared with itself; they show the machine's noise.
        notes: cautions for readers: larger thresholds, separate processes, a control whose time changed.
        trouble: why the machine cannot judge; "" if it can.
        interrupted: whether the run was stopped; cases that it had not reached are unsure.
        controls: result of ``Controls.summary``.
        absent: requested suites whose family exists in neither version.
        compared_s: seconds of ``wall_s`` for comparing the code; not part of the budget.
        script: the script whose calls are the cases, with its arguments; "" for suites.
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
    script: str = ""

    @property
    def state(self) -> State:
        """Return the verdict on the change. A pass needs a judged case, see ``unjudged``.

        A wrong kernel outweighs a slow kernel, and a machine that cannot judge outweighs both.
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
        """Return why a run without a slower or failed case is not a pass; "" if it is.

        A pass has three conditions. Every family exists in at least one version. At least one case is judged: head was
        compared with base, or checked if base lacks the case. Each case that the change can touch runs on this machine.
        Proved and new cases do not count as judged if all compared cases are unsure, because the compared cases are
        those that the change can touch. A case is unsure too if base lacks it because its import fails. Only latencies
        count: a cost never makes a run a pass.
        """
        if self.absent:
            return f"{', '.join(self.absent)}: neither version has this family"
        if unrun := self.unrun:
            return f"{_cases(unrun)} that the change can touch cannot run here: {_names(unrun)} ({unrun[0].reason})"
        latencies = [verdict for verdict in self.cases if verdict.key.quantity == LATENCY]
        unsure = [v for v in latencies if v.outcome == "unsure" or (v.outcome == "new" and v.in_base)]
        judged = [
            verdict
            for verdict in latencies
            if verdict not in unsure and (verdict.outcome in JUDGED or (verdict.outcome == "failed" and verdict.blocks))
        ]
        assumed = [v for v in judged if v.outcome == "new" or (v.unchanged and v.change is None)]
        if judged and not (unsure and len(assumed) == len(judged)):
            return ""
        reasons = Counter(_why_not(verdict) for verdict in unsure or latencies)
        return "; ".join(reason for reason, _ in reasons.most_common(3)) or "no case was selected"

    @property
    def unrun(self) -> tuple[Verdict, ...]:
        """Return the changed cases that this machine cannot run for lack of a GPU; empty on a machine with a GPU."""
        on_cpu = self.machine.get("device") == "cpu"
        return tuple(
            verdict for verdict in self.of("na") if on_cpu and not verdict.unchanged and verdict.key.quantity == LATENCY
        )

    @property
    def regressions(self) -> tuple[Verdict, ...]:
        """Return the slowdowns that are not accepted, the worst first."""
        return worst_first(verdict for verdict in self.cases if verdict.outcome == "slower" and verdict.blocks)

    def of(self, *outcomes: str) -> tuple[Verdict, ...]:
        """Return the cases with one of these outcomes, the worst first."""
        return worst_first(verdict for verdict in self.cases if verdict.outcome in outcomes)

    def counts(self) -> dict[str, int]:
        """Return the number of cases with each outcome."""
        counted = Counter(verdict.outcome for verdict in self.cases)
        return {outcome: counted[outcome] for outcome in OUTCOMES if counted[outcome]}

    def to_json(self) -> str:
        """Return the report as JSON, in the layout that ``docs/gate.md`` describes."""
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
    """Sort verdicts by head's slowdown, the slowest first."""
    return tuple(sorted(verdicts, key=lambda verdict: -verdict.change.value if verdict.change else 0.0))


def headline(report: Report) -> str:
    """Return one sentence for reviewers: the verdict, the worst cases, and the number of cases by outcome.

    Of two releases of a package it names them first: ``liger-kernel 0.6.1 → 0.6.2: 2 cases slower …``.
    """
    text = _headline(report)
    if not (is_release(report.base) and is_release(report.head)):
        return text
    (name, low), (other, high) = (label.split("==") for label in (report.base, report.head))
    return f"{name} {low} → {high if other == name else report.head}: {text[0].lower()}{text[1:]}"


def _headline(report: Report) -> str:
    if report.interrupted:
        return f"Interrupted: {_counted(report)}."
    if report.trouble:
        return f"Nothing can be said: {report.trouble}."
    parts = []
    failed = [verdict for verdict in report.of("failed") if verdict.blocks]
    if failed:
        parts.append(f"{_cases(failed)} failed: {_names(failed)}, {failed[0].reason}")
    slower = report.regressions
    if slower:
        if slowdowns := _slowdowns(slower, f"{_cases(_latencies(slower))} slower: "):
            parts.append(f"{slowdowns}, found twice; {report.confidence:.0%} sure that none is by chance")
        parts += [f"{text} in every draw" for text in _of_cost(slower, ERROR)]
        parts += _of_bits(slower, "not deterministic any more")
        parts += [f"code of the worst: {slower[0].code[0]}"] if slower[0].code else []
    if looks_slower := _slowdowns([verdict for verdict in report.of("unsure") if verdict.looks_slower]):
        parts.append(f"looks slower, not confirmed: {looks_slower}")
    accepted = [verdict for verdict in report.of("slower") if verdict.accepted]
    if accepted:
        sized = [verdict for verdict in accepted if verdict.change]
        parts += [f"{_cases(sized)} slower as accepted: {_names(sized)} by {_by(sized)}"] if sized else []
        parts += _of_bits(accepted, "not deterministic any more, as accepted")
    if report.absent or report.unrun:
        parts.append(f"not judged: {report.unjudged}")
    elif report.unjudged and report.of("same", "new"):
        parts.append(f"no case that the change can touch was judged: {report.unjudged}")
        return _sentence(parts, report)
    if not slower and (accepted or report.of("same") or report.of("faster")):
        other = "else " if accepted or looks_slower or report.unrun else ""
        parts.append(f"nothing {other}slower by more than {counts_from(report)}{_share(report)}")
    elif not slower and report.of("new") and not failed:
        parts.append(f"nothing was compared; head passes its checks in {_cases(report.of('new'))} without a base")
    elif not slower and not report.absent and not report.unrun:
        parts.append(f"nothing was judged: {report.unjudged}" if report.unjudged else "nothing else was judged")
    faster = [verdict for verdict in report.of("faster") if verdict.change]
    if faster:
        parts.append(f"{_cases(faster)} faster: {_names(faster)} by {_by(faster)}")
    parts += _of_bits(report.of("faster"), "deterministic now")
    refused = [verdict for verdict in report.of("na") if verdict not in report.unrun]
    if refused:
        parts.append(f"{_cases(refused)} not compared: {_names(refused)}, not available here ({refused[0].reason})")
    parts += _unchecked(report)
    return _sentence(parts, report)


def _unchecked(report: Report) -> list[str]:
    """Return the headline's part about results that were not compared, as a list; [] if all were."""
    told = [part for one in report.cases for part in one.reason.split("; ") if part.startswith(UNCHECKED)]
    if not told:
        return []
    [(commonest, _)] = Counter(told).most_common(1)
    return [f"{commonest} ({counted(len(told), 'case')})"]


def _share(report: Report) -> str:
    """Return how many cases have a verdict, and the commonest reason of the others; "" if all have one."""
    if not (unsure := report.of("unsure")):
        return ""
    decided = len(report.of("same", "faster", "slower"))
    [(reason, _)] = Counter(_why_not(verdict).partition(";")[0].partition(":")[0] for verdict in unsure).most_common(1)
    return f" in {decided} of {decided + len(unsure)} cases; the others have no verdict: {reason}"


def _slowdowns(verdicts: Sequence[Verdict], before: str = "") -> str:
    """Return the slowdowns of calls, with the text ``before`` them, and of each measured cost; "" if there are none."""
    latencies = _latencies(verdicts)
    texts = [f"{before}{_names(latencies)} by {_by(latencies)}"] if latencies else []
    return "; ".join([*texts, *(text for cost in COSTS if cost != ERROR for text in _of_cost(verdicts, cost))])


def _latencies(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.key.quantity == LATENCY]


def _of_cost(verdicts: Sequence[Verdict], cost: str) -> list[str]:
    """Return the headline's part about a measured cost, as a list; [] if no verdict is about its numbers."""
    worse = [verdict for verdict in verdicts if verdict.key.quantity == cost and verdict.change]
    return [f"{_cases(worse)}: {worse[0].of_cost}: {_names(worse)} by {_by(worse)}"] if worse else []


def _of_bits(verdicts: Sequence[Verdict], what: str) -> list[str]:
    """Return the headline's part about determinism, as a list; [] if no verdict is about determinism."""
    changes = [verdict for verdict in verdicts if verdict.key.quantity == DETERMINISTIC]
    return (
        [f"{_cases(changes)} {what}: {_names(changes)} at {changes[0].key.case} {changes[0].key.l2}"] if changes else []
    )


def _sentence(parts: Sequence[str], report: Report) -> str:
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]} ({_counted(report)})."


def _why_not(verdict: Verdict) -> str:
    """Return why the verdict on a case says nothing about head."""
    if verdict.outcome == "failed":
        return f"fails in base as well ({verdict.reason})"
    if verdict.outcome == "na":
        return f"not available here ({verdict.reason})"
    return verdict.reason or verdict.outcome


def counts_from(report: Report) -> str:
    """Return the smallest change that counts: the requested one, and the largest one used for a case with a verdict."""
    decided = report.of("same", "faster", "slower")
    requested, widest = report.min_effect, max((verdict.min_effect for verdict in decided), default=0.0)
    more = f" (up to {percent(widest)} where noise or a rule asks for it)" if widest > 1.2 * requested else ""
    return percent(requested) + more


def percent(share: float) -> str:
    """Format a share as ``1 %`` or ``0.25 %``."""
    return f"{100 * share:.3g} %"


def _cases(verdicts: Sequence[Verdict]) -> str:
    return counted(len(verdicts), "case")


def _counted(report: Report) -> str:
    counts = report.counts()
    unchanged = sum(verdict.unchanged for verdict in report.cases)
    parts = [f"{count} {'n/a' if outcome == 'na' else outcome}" for outcome, count in counts.items()]
    return ", ".join(parts) + (f", {unchanged} of them unchanged" if unchanged else "") if parts else "no case"


def _names(verdicts: Sequence[Verdict]) -> str:
    names = list(dict.fromkeys(f"{verdict.key.suite} {verdict.key.variant}" for verdict in verdicts))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _by(verdicts: Sequence[Verdict]) -> str:
    """Return changes as text: "+1.20 % (+1.10 to +1.30) at M=8", or for several cases their range and the worst."""
    most, least = verdicts[0], verdicts[-1]
    if abs(_value(most)) < abs(_value(least)):
        most, least = least, most
    case = f"{most.key.case} {most.key.l2}"
    if len(verdicts) > 1:
        return f"{100 * _value(least):+.2f} % to {100 * _value(most):+.2f} %, most at {case}"
    assert most.change is not None
    return f"{100 * most.change.value:+.2f} % ({100 * most.change.low:+.2f} to {100 * most.change.high:+.2f}) at {case}"


def _value(verdict: Verdict) -> float:
    return verdict.change.value if verdict.change else 0.0
