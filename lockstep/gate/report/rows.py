"""The report's rows as text, for the table, the Markdown and the plain lines."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lockstep.gate.model import LATENCY, MOVED, OUT_OF_TIME, UNREACHED, SeriesKey, Verdict, is_release
from lockstep.gate.report.report import Report, counts_from, percent, worst_first
from lockstep.gate.sequential_decision import LOOKS
from lockstep.record.commands_to_repeat import gate
from lockstep.record.figure_meanings import meaning
from lockstep.record.model import Estimate
from lockstep.record.series_name import SeriesName

#: Order of the outcomes in a report, blocking outcomes first.
ORDER = ("failed", "slower", "unsure", "faster", "removed", "new", "na")

#: Beginning of the remark that ends with the command for the worst case.
AGAIN = "to repeat the worst case: "

#: Variant of the verdict on a script that ends before its calls.
WHOLE_SCRIPT = "(script)"

#: An interval whose ends differ by more than this factor is not shown: it carries no information, with many digits.
MOST_APART = 10.0

#: A figure of a kernel in a sentence on its code, such as "registers 168 → 255"; the most that are explained.
_FIGURE, _MOST_MEANINGS = re.compile(r"\b([A-Za-z]+) (\d{1,12})(?: B)? → (\d{1,12})\b"), 8

COLUMNS = ("verdict", "suite", "variant", "case", "L2", "base µs", "head µs", "change", "interval", "why")


@dataclass(frozen=True)
class Row:
    """A row of the report: its cells by column, and the outcome of its cases."""

    cells: tuple[str, ...]
    outcome: str


def rows(report: Report) -> list[Row]:
    """Return a row for each case with another verdict than "same".

    Cases without numbers share a row if they have the same suite, variant and reason.
    """
    return [Row(tuple(_cells(alike)), outcome) for outcome in ORDER for alike in _alike(report.of(outcome))]


def same(report: Report) -> Iterator[tuple[str, int, int]]:
    """Yield for each suite and each cost: its name, and the number of "same" cases and of unchanged ones among them."""
    cases = report.of("same")
    counted = Counter(_suite(verdict) for verdict in cases)
    unchanged = Counter(_suite(verdict) for verdict in cases if verdict.unchanged)
    for suite in sorted(counted):
        yield suite, counted[suite], unchanged[suite]


def _suite(verdict: Verdict) -> str:
    key = verdict.key
    return key.suite if key.quantity == LATENCY else f"{key.suite} {key.quantity}"


def remarks(report: Report) -> list[str]:
    """Return the remarks for readers of the numbers: versions, machine, notes, and the A/A control."""
    machine = report.machine
    name = machine.get("gpu") or machine.get("cpu") or "unknown machine"
    toolchain = ", ".join(f"{tool} {machine[tool]}" for tool in ("driver", "torch", "triton") if machine.get(tool))
    shown_rows = [
        f"base {report.base}, head {report.head}; {name}, clocks {machine.get('clock_state', 'unknown')}, {toolchain}",
        f"{report.wall_s:.0f} s in all, budget for measuring {report.budget_s:.0f} s"
        f"{f', comparing the code {report.compared_s:.0f} s' if report.compared_s >= 1 else ''}; "
        f"seed {report.seed}; "
        f"changes count from {counts_from(report)} on; intervals at {percent(report.confidence)}",
    ]
    if not machine.get("gpu") and any(verdict.change for verdict in report.cases):
        shown_rows.append("timed on a CPU, where other work moves times by tens of percent: a trial")
    if report.meter:
        worst = max(report.meter, key=lambda verdict: abs(verdict.change.value) if verdict.change else 0.0)
        assert worst.change is not None
        shown_rows.append(
            f"A/A control: {len(report.meter)} unchanged cases measured, the furthest off by {worst.change.value:+.2%} "
            f"({worst.key})"
        )
    next_steps = filter(None, (advice(report), without_gpu(report), *of_a_slowdown(report), again(report)))
    return [*shown_rows, *report.notes, *next_steps]


def usual_meanings(report: Report) -> list[str]:
    """Return what the differences of the slower kernels' figures usually mean, in the words of alerts, each once."""
    told: dict[str, None] = {}
    for verdict in report.of("slower"):
        for sentence in verdict.code:
            for figure, before, after in _FIGURE.findall(sentence):
                if means := meaning(figure, before, after):
                    told[f"{figure} {before} → {after}: {means}"] = None
    return list(told)[:_MOST_MEANINGS]


def again(report: Report) -> str:
    """Return the command that measures the worst case that blocks a merge again; "" if no case blocks a merge.

    As in ``Report.state``, a failed case comes before a slower case.
    """
    blocking = [verdict for verdict in (*report.of("failed"), *report.regressions) if verdict.blocks]
    return f"{AGAIN}{_alone(report, blocking[0].key)}" if blocking else ""


def _alone(report: Report, key: SeriesKey) -> str:
    """Return the command that measures one case alone."""
    if report.script:
        versions = f"--base {_ref(report.base)} --head {_ref(report.head)}"
        words = f"--script {shlex.quote(report.script)} {versions}"
        call = f" --case {shlex.quote(key.case)} --variant {shlex.quote(key.variant)}"
        return f"lockstep gate {words}{'' if key.variant == WHOLE_SCRIPT else call}"
    worst = SeriesName("", "", key.suite, key.variant, key.case, key.l2, key.quantity)
    return gate(worst, _ref(report.base), _ref(report.head), report.machine.get("clock_state", ""))


def without_gpu(report: Report) -> str:
    """Return the command that can judge changed cases which this machine cannot run; "" if there are none."""
    if not report.unrun or report.regressions:
        return ""
    return f"to see what the compiler makes of them, without a GPU: lockstep code diff {_versions(report)} --worse"


def of_a_slowdown(report: Report) -> list[str]:
    """Return what a slowdown calls for once it was found again: the reason in the machine code, or an acceptance."""
    if not report.regressions:
        return []
    family = report.regressions[0].key.suite.partition(".")[0]
    why = f"to see what changed in the machine code: lockstep code diff {_versions(report)}"
    why += f" --family {shlex.quote(family)}"
    accept = "if a slowdown is meant: an [[accept]] with the reason in thresholds.toml"
    return [accept] if report.script else [why, accept]


def _versions(report: Report) -> str:
    """Return base and head as arguments of ``lockstep code diff``."""
    of_releases = "--toolchain " if is_release(report.head) else ""
    return of_releases + " ".join(shlex.quote(_ref(label)) for label in (report.base, report.head))


def _ref(label: str) -> str:
    """Return the hash in a version's label, because a branch moves; "." for the working tree."""
    name, _, commit = label.removesuffix(")").partition(" (")
    return name if name == "." or not commit else commit


def line(verdict: Verdict) -> str:
    """Return a verdict as one line of text: outcome, change, case and reason."""
    shown = _shown(verdict)
    change = f"{shown.value:+.2%}" if shown else ""
    reason = _why(verdict)
    return f"{verdict.label:>8} {change:>8}  {verdict.key}{'  ' if reason else ''}{reason}"


def _alike(verdicts: Sequence[Verdict]) -> Iterator[list[Verdict]]:
    """Group the cases that share a row: cases without numbers by suite, variant and reason; others stand alone."""
    gathered: dict[tuple[str, ...], list[Verdict]] = {}
    for verdict in worst_first(verdicts):
        unique = (str(verdict.key),) if verdict.change is not None else ()
        gathered.setdefault((_suite(verdict), verdict.key.variant, verdict.reason, *unique), []).append(verdict)
    yield from gathered.values()


def _cells(verdicts: Sequence[Verdict]) -> Iterator[str]:
    first = verdicts[0]
    yield "slower, accepted" if first.accepted else first.label
    yield first.key.suite
    yield first.key.variant if first.key.quantity == LATENCY else f"{first.key.variant} ({first.key.quantity})"
    yield first.key.case if len(verdicts) == 1 else f"{len(verdicts)} cases"
    yield first.key.l2 if len(verdicts) == 1 else ""
    for seconds in (first.base_s, first.head_s):
        yield f"{seconds * 1e6:.2f}" if seconds is not None and first.in_us else ""
    change = _shown(first)
    yield f"{change.value:+.2%}" if change else ""
    yield f"{change.low:+.2%} … {change.high:+.2%}" if change and math.isfinite(change.high) else ""
    yield _why(first)


def _shown(verdict: Verdict) -> Estimate | None:
    """Return the change of a verdict; ``None`` for an unsure verdict whose interval is infinite or too wide."""
    change = verdict.change
    if change is None or verdict.outcome != "unsure":
        return change
    says = math.isfinite(change.high) and 1 + change.high < MOST_APART * (1 + change.low)
    return change if says else None


def _why(verdict: Verdict) -> str:
    parts = [
        verdict.of_cost,
        verdict.reason,
        _excluded(verdict),
        "fails in base as well" if verdict.outcome == "failed" and verdict.in_base else "",
        f"accepted: {verdict.accepted}" if verdict.accepted else "",
        "" if verdict.shared else "not all buffers are shared",
        "; ".join(verdict.code),
    ]
    return "; ".join(part for part in parts if part)


def _excluded(verdict: Verdict) -> str:
    """Return which slowdowns of an undecided case are excluded; "" if none are, or the case is decided."""
    if verdict.outcome != "unsure" or verdict.excluded is None:
        return ""
    return f"not slower by more than {percent(max(verdict.excluded, 0.0))}"


#: Number of epochs of a case whose difference is found at the first test of both passes.
LEAST_EPOCHS = 2 * LOOKS[0]

#: A proposed budget is a multiple of this many seconds.
STEP_S = 10


def advice(report: Report) -> str:
    """Return a sentence that names a larger ``--budget``, or "" if no case ran out of time.

    The estimate uses this run's seconds per epoch: budget divided by epochs, including the A/A control's epochs. Each
    case that ran out of time gets twice its epochs, but at least ``LEAST_EPOCHS``. Without any epoch the budget is
    doubled.
    """
    short = [verdict for verdict in report.cases if _ran_out(verdict)]
    if not short or report.interrupted:
        return ""
    epochs = sum(verdict.epochs + verdict.voided for verdict in (*report.cases, *report.meter))
    missing = sum(max(verdict.epochs, LEAST_EPOCHS - verdict.epochs) for verdict in short)
    factor = 1 + missing / epochs if epochs > 0 else 2.0
    seconds = math.ceil(factor * report.budget_s / STEP_S) * STEP_S
    cases = f"{len(short)} case{'s' if len(short) > 1 else ''}"
    moved = next((verdict.key for verdict in short if MOVED in verdict.reason), None)
    return (
        f"{cases} ran out of time: raise the budget to --budget {seconds}s or more (estimated from this run's epochs)"
        + (
            f"; the machine is busy: let nothing else run there, or try one case: {_alone(report, moved)}"
            if moved
            else ""
        )
    )


def _ran_out(verdict: Verdict) -> bool:
    return verdict.outcome == "unsure" and any(reason in verdict.reason for reason in (UNREACHED, OUT_OF_TIME, MOVED))
