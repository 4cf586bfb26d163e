"""Score a method of change detection: decide which of its changes count as found or false."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan
from statistics import median

from tools.evaluate.samples import Sample

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
    """The outcome of one method on one series, or, as sums, on several.

    Attributes:
        series, length: number of series, and of their commits.
        steps, found: number of planted steps, and of those that a final change matches within ``MATCH``.
        claimed: number of final changes.
        near, signed, sized: number of found steps named within one commit, with the right sign, and with a size within
            ``RIGHT_SIZE``.
        judged, held: number of found steps whose change has an interval, and of those whose interval holds the true
            size.
        replayed: number of commits that were replayed online.
        delays: for each step of a replayed series, commits between its first commit and an alarm about it; infinite
            without an alarm.
        false: number of alarms that no step explains, or that report a step a second time.
    """

    series: int
    length: int
    steps: int
    found: int
    claimed: int
    near: int
    signed: int
    sized: int
    judged: int
    held: int
    replayed: int
    delays: tuple[float, ...]
    false: int


def judge(sample: Sample, changes: Sequence[Told], alarms: Sequence[Alarm] | None) -> Outcome:
    """Compare a method's final changes and its online alarms, if it was replayed, with the true steps."""
    left, pairs = list(changes), []
    for step, size, slack in zip(sample.steps, sample.sizes, sample.slacks or [0.0] * len(sample.steps), strict=True):
        closest = min(left, key=lambda change: abs(change.index - step), default=None)
        if closest is not None and abs(closest.index - step) <= MATCH:
            left.remove(closest)
            pairs.append((step, size, slack, closest))
    delays, false = _replayed(sample.steps, alarms or ())
    intervals = all(change.low <= change.high for change in changes)
    return Outcome(
        series=1,
        length=len(sample.trend),
        steps=len(sample.steps),
        found=len(pairs),
        claimed=len(changes),
        near=sum(abs(change.index - step) <= 1 for step, *_, change in pairs),
        signed=sum(change.size * size > 0 for _, size, _, change in pairs),
        sized=sum(abs(change.size - size) - slack <= RIGHT_SIZE * abs(size) for _, size, slack, change in pairs),
        judged=len(pairs) if intervals else 0,
        held=sum(change.low - slack <= size <= change.high + slack for _, size, slack, change in pairs),
        replayed=0 if alarms is None else len(sample.trend),
        delays=() if alarms is None else delays,
        false=false,
    )


def _replayed(steps: Sequence[int], alarms: Sequence[Alarm]) -> tuple[tuple[float, ...], int]:
    delays, false = dict.fromkeys(steps, inf), 0
    for alarm in sorted(alarms, key=lambda alarm: alarm.at):
        candidates = [step for step in steps if step <= alarm.at and abs(alarm.index - step) <= ABOUT]
        step = min(candidates, key=lambda step: abs(alarm.index - step), default=None)
        if step is None or isfinite(delays[step]):
            false += 1
        else:
            delays[step] = alarm.at - step
    return tuple(delays.values()), false


def total(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the sums of outcomes, and their delays together."""
    names = [name for name in Outcome.__slots__ if name != "delays"]
    sums = {name: sum(getattr(outcome, name) for outcome in outcomes) for name in names}
    return Outcome(**sums, delays=tuple(delay for outcome in outcomes for delay in outcome.delays))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


#: The scores of outcomes, by their name in the tables. A score is ``None`` if its denominator is zero. "false /1000"
#: and "delay" are of the replayed series: alarms per 1000 commits, and the median of ``delays``.
SCORES: Mapping[str, Callable[[Outcome], float | None]] = {
    "± 2": lambda sums: _share(sums.found, sums.steps),
    "± 1": lambda sums: _share(sums.near, sums.steps),
    "sign": lambda sums: _share(sums.signed, sums.steps),
    "size": lambda sums: _share(sums.sized, sums.steps),
    "interval": lambda sums: _share(sums.held, sums.judged),
    "precision": lambda sums: _share(sums.found, sums.claimed) if sums.steps else None,
    "F1": lambda sums: _share(2 * sums.found, sums.steps + sums.claimed) if sums.steps else None,
    "changes /1000": lambda sums: _share(1000 * sums.claimed, sums.length),
    "false /1000": lambda sums: _share(1000 * sums.false, sums.replayed),
    "delay": lambda sums: median(sums.delays) if sums.delays else None,
}
