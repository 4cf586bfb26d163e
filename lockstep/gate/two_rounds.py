"""Decide a case from one or two rounds of epochs, or of pairs of measurements (``unit`` names what is counted)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, geometric_mean, stdev

from lockstep.gate.case_verdict import OUT_OF_TIME, UNREACHED, Verdict
from lockstep.gate.sequential import LOOKS, Decision, Test, found_twice, interval, relative


@dataclass(frozen=True)
class Round:
    """What one round measured.

    Attributes:
        ratios: log ratio head / base of each epoch.
        seconds: seconds of base and of head, for each epoch.
        decision: the decision of ``Test.decide``; ``None`` if the round ended without one.
        empty: why a round without an epoch has none.
    """

    ratios: Sequence[float]
    seconds: Sequence[tuple[float, float]]
    decision: Decision | None
    empty: str = UNREACHED


def decided(verdict: Verdict, test: Test, unit: str, first: Round, second: Round | None) -> Verdict:
    """Return ``verdict`` with the outcome, reason and numbers of one or two rounds.

    The numbers come from the last round. A case gets a second round only if its first round showed a difference, so
    the first round overstates the difference.
    """
    shown = second if second is not None and second.ratios else first
    if not shown.ratios:
        return replace(verdict, reason=shown.empty)
    verdict = replace(
        verdict,
        change=relative(interval(shown.ratios, test.alpha)),
        # The geometric mean, as for the change. An arithmetic mean follows the slowest epoch and contradicts the
        # change.
        base_s=geometric_mean(base for base, _ in shown.seconds),
        head_s=geometric_mean(head for _, head in shown.seconds),
    )
    if second is None:
        if first.decision == "same":
            return replace(verdict, outcome="same", min_effect=test.same_bound)
        if first.decision is not None:  # an A/A comparison has only one round
            return replace(verdict, outcome=first.decision, reason="one round")
        return replace(verdict, reason=_undecided(first, test, unit))
    if second.decision == first.decision and first.decision is not None:
        twice = relative(found_twice(first.ratios, second.ratios, test))
        return replace(verdict, outcome=first.decision, confirmed=True, change=twice)
    first_change = f"{math.expm1(fmean(first.ratios)):+.2%} in a first round"
    if second.decision == "same":
        reason = f"{first_change}, not in the second"
        return replace(verdict, outcome="same", min_effect=test.same_bound, reason=reason)
    if second.decision is not None:
        return replace(verdict, reason=f"{first_change}, {math.expm1(fmean(second.ratios)):+.2%} in the second")
    return replace(verdict, reason=f"{first_change}, not confirmed by a second: {_undecided(second, test, unit)}")


def _undecided(trial: Round, test: Test, unit: str) -> str:
    count = len(trial.ratios)
    if not count:
        return trial.empty
    if test.hopeless(trial.ratios):
        return f"too noisy: {stdev(trial.ratios):.1%} between {count} {unit}"
    if count >= LOOKS[-1]:
        return f"too close to call after {count} {unit}"
    return f"{OUT_OF_TIME} after {count} {unit}"
