"""Score a method of change detection: decide which of its changes count as found, misplaced or false."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan
from statistics import median

import numpy as np

#: A change is at the right place within this many commits of the step.
MATCH = 2
#: A change belongs to the step within this many commits. An online alarm further away is false.
ABOUT = 20
#: A size is right if it differs from the true size by at most this share of the true size.
RIGHT_SIZE = 0.1


@dataclass(frozen=True, slots=True)
class Told:
    """A final change that a method names at commit ``index``: its log size with its 95 % interval, NaN if unknown."""

    index: int
    size: float = nan
    low: float = nan
    high: float = nan


@dataclass(frozen=True, slots=True)
class Alarm:
    """An online report of a change at commit ``index``, made when commit ``at`` was the newest."""

    index: int
    at: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one method on one series.

    Attributes:
        kind: the kind of the series, which is a row of the tables.
        length: number of commits of the series.
        found: number of planted steps that a final change matches within ``MATCH``.
        claimed: number of final changes.
        near, signed, sized: number of found steps named within one commit, with the right sign, and with a size within
            ``RIGHT_SIZE``.
        held: number of found steps whose interval holds the true size. ``None`` if the method has no intervals.
        errors: for each found step, the error of its size, relative to the true size.
        delays: for each step, commits between its first commit and an alarm about it; infinite without an alarm.
            ``None`` if the method was not replayed.
        false: number of alarms that no step explains, or that report a step a second time.
        misplaced: number of alarms about a step that name a commit more than ``MATCH`` away.
    """

    kind: str
    length: int
    steps: int
    found: int
    claimed: int
    near: int
    signed: int
    sized: int
    held: int | None
    errors: tuple[float, ...]
    delays: tuple[float, ...] | None = None
    false: int = 0
    misplaced: int = 0


def judge(
    kind: str,
    length: int,
    steps: Sequence[int],
    changes: Sequence[Told],
    alarms: Sequence[Alarm] | None,
    sizes: Sequence[float] = (),
    slacks: Sequence[float] = (),
) -> Outcome:
    """Compare a method's final ``changes`` and its online ``alarms`` with the true steps.

    ``sizes`` are the sizes of the steps, if known, and ``slacks`` how far the true ones may lie from them.
    """
    left = list(changes)
    pairs = []
    none = [0.0] * len(steps)
    for step, size, slack in zip(steps, sizes or none, slacks or none, strict=True):
        matches = [change for change in left if abs(change.index - step) <= MATCH]
        if matches:
            closest = min(matches, key=lambda change: abs(change.index - step))
            left.remove(closest)
            pairs.append((step, size, slack, closest))
    errors = tuple(max(abs(change.size - size) - slack, 0.0) / abs(size) for _, size, slack, change in pairs if size)
    outcome = Outcome(
        kind,
        length,
        len(steps),
        found=len(pairs),
        claimed=len(changes),
        near=sum(abs(change.index - step) <= 1 for step, *_, change in pairs),
        signed=sum(change.size * size > 0 for _, size, _, change in pairs),
        sized=sum(error <= RIGHT_SIZE for error in errors),
        held=sum(change.low - slack <= size <= change.high + slack for _, size, slack, change in pairs)
        if all(change.low <= change.high for change in changes)
        else None,
        errors=errors,
    )
    if alarms is None:
        return outcome
    delays = dict.fromkeys(steps, np.inf)
    false = misplaced = 0
    for alarm in sorted(alarms, key=lambda alarm: alarm.at):
        candidates = [step for step in steps if step <= alarm.at and abs(alarm.index - step) <= ABOUT]
        nearest = sorted(candidates, key=lambda step: abs(alarm.index - step))[:1]
        if not nearest or np.isfinite(delays[nearest[0]]):
            false += 1
            continue
        delays[nearest[0]] = alarm.at - nearest[0]
        misplaced += abs(alarm.index - nearest[0]) > MATCH
    return replace(outcome, delays=tuple(delays.values()), false=false, misplaced=misplaced)


@dataclass(frozen=True, slots=True)
class Score:
    """Scores of many outcomes. A score is ``None`` if its denominator is zero.

    Attributes:
        replayed: number of series that were replayed online.
        recall, precision, f1: scores of the final changes, within ``MATCH``.
        near, signed, sized: shares of the steps, see ``Outcome``.
        held: share of the found steps whose interval holds the true size.
        error: median relative error of the sizes of found steps.
        claims: final changes per 1000 commits.
        wrong: final changes per 1000 commits that no step explains.
        false, misplaced: online alarms per 1000 commits.
        delay: median commits from a step to its alarm, infinite if more than half of the steps had no alarm.
        within: share of the steps reported within ``ABOUT`` commits.
    """

    series: int
    steps: int
    replayed: int
    recall: float | None
    precision: float | None
    f1: float | None
    near: float | None
    signed: float | None
    sized: float | None
    held: float | None
    error: float | None
    claims: float
    wrong: float
    false: float | None
    misplaced: float | None
    delay: float | None
    within: float | None


def total(outcomes: Sequence[Outcome]) -> Score:
    """Return the score of all ``outcomes`` together."""
    steps = sum(outcome.steps for outcome in outcomes)
    found = sum(outcome.found for outcome in outcomes)
    claimed = sum(outcome.claimed for outcome in outcomes)
    commits = sum(outcome.length for outcome in outcomes)
    online = [outcome for outcome in outcomes if outcome.delays is not None]
    replayed = sum(outcome.length for outcome in online)
    delays = [delay for outcome in online for delay in outcome.delays or ()]
    errors = [error for outcome in outcomes for error in outcome.errors]
    stating = [outcome for outcome in outcomes if outcome.held is not None]
    return Score(
        series=len(outcomes),
        steps=steps,
        replayed=len(online),
        recall=_share(found, steps),
        precision=_share(found, claimed) if steps else None,
        f1=_share(2 * found, steps + claimed) if steps else None,
        near=_share(sum(outcome.near for outcome in outcomes), steps),
        signed=_share(sum(outcome.signed for outcome in outcomes), steps),
        sized=_share(sum(outcome.sized for outcome in outcomes), steps),
        held=_share(sum(outcome.held or 0 for outcome in stating), sum(outcome.found for outcome in stating)),
        error=median(errors) if errors else None,
        claims=1000 * claimed / commits if commits else 0.0,
        wrong=1000 * (claimed - found) / commits if commits else 0.0,
        false=_share(1000 * sum(outcome.false for outcome in online), replayed),
        misplaced=_share(1000 * sum(outcome.misplaced for outcome in online), replayed),
        delay=median(delays) if delays else None,
        within=_share(sum(delay <= ABOUT for delay in delays), len(delays)),
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
