"""Which budget would have reached the cases that ran out of time."""

from __future__ import annotations

import math

from lockstep.gate.report.model import Report
from lockstep.gate.sequential import LOOKS
from lockstep.gate.verdict import MOVED, OUT_OF_TIME, UNREACHED, Verdict

#: Epochs of a difference that is found at the first look of both rounds.
LEAST_EPOCHS = 2 * LOOKS[0]

#: Seconds that a proposed budget is a multiple of.
STEP_S = 10


def advice(report: Report) -> str:
    """Return a sentence that names a larger ``--budget``, or "" if no case ran out of time.

    The estimate takes the pace of this run: budget over epochs, those of the A/A control included. Each case that ran
    out of time gets twice its epochs, ``LEAST_EPOCHS`` at least. Without an epoch the budget is doubled.
    """
    short = [verdict for verdict in report.cases if _ran_out(verdict)]
    if not short or report.interrupted:
        return ""
    taken = sum(verdict.epochs + verdict.voided for verdict in (*report.cases, *report.meter))
    missing = sum(max(verdict.epochs, LEAST_EPOCHS - verdict.epochs) for verdict in short)
    factor = 1 + missing / taken if taken > 0 else 2.0
    seconds = math.ceil(factor * report.budget_s / STEP_S) * STEP_S
    cases = f"{len(short)} case{'s' if len(short) > 1 else ''}"
    return (
        f"{cases} ran out of time: raise the budget to --budget {seconds}s or more (estimated from this run's epochs)"
    )


def _ran_out(verdict: Verdict) -> bool:
    return verdict.outcome == "unsure" and any(why in verdict.reason for why in (UNREACHED, OUT_OF_TIME, MOVED))
