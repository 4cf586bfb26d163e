"""Find the first bad commit of a range. One GPU halves n commits about log₂(n) times; k GPUs divide them into k + 1
sections about log₂(n) / log₂(k + 1) times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import TypeVar

from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.model import Alert, FoundChange
from lockstep.alerts.text import remedy
from lockstep.timing.intervals import t_quantile

_T = TypeVar("_T")

#: A search is pointless if the two ends, measured on this machine, differ by less than this share of the recorded
#: change.
_REACH = 0.5

#: Maximum number of measurements of a commit.
_TRIES = 3


class Inconclusive(ValueError):
    """The search cannot start: an end cannot be measured, or scatter hides the difference. The message says which.

    ``measured``: the measurements taken so far.
    """

    def __init__(self, message: str, measured: Sequence[Measurement]) -> None:
        super().__init__(message)
        self.measured = tuple(measured)


class NotReproduced(Inconclusive):
    """The search is pointless, because the two ends measured on this machine do not show the recorded change."""


class UnknownRange(ValueError):
    """The repository does not know the commits of a range. The message says why and what to do."""


@dataclass(frozen=True)
class Measurement:
    """A measurement of a commit on this machine.

    Attributes:
        commit: full hash.
        log: natural log of the latency, or of the inverse of the speedup, so that more is worse. ``None`` if the commit
            cannot be measured.
        low, high: the 95 % interval of ``log``.
        reason: why the commit cannot be measured.
    """

    commit: str
    log: float | None
    low: float = math.nan
    high: float = math.nan
    reason: str = ""


@dataclass(frozen=True)
class SearchRange:
    """A range of commits, one of which is the first bad commit.

    Attributes:
        good: a commit before the change.
        bad: a commit that has the change.
        suspects: the possible commits, parents before children.
        parents: the parents of every commit between ``good`` and ``bad``; ``None`` if each suspect is the parent of the
            next suspect.
    """

    good: str
    bad: str
    suspects: tuple[str, ...]
    parents: Mapping[str, Sequence[str]] | None = None


def search_range(ranges: Ranges, alert: Alert, member: FoundChange) -> SearchRange:
    """Return the commits among which a bisection of an alert's series searches.

    The range is that of the series. That of the alert is the intersection with the ranges of other series, each of
    which holds the culprit with 95 % probability, so it may miss the culprit.

    Raise ``UnknownRange`` if the repository does not know the commits of the range.
    """
    good, bad = member.before or alert.before, member.after or alert.after
    known = ranges.between(good, bad)
    if known.unknown:
        raise UnknownRange(
            f"the commits between {good[:12]} and {bad[:12]} are unknown, so none can be measured: "
            f"{remedy(known.unknown, good, bad)}"
        )
    return SearchRange(good, bad, known.touched or known.commits, known.parents)


@dataclass(frozen=True)
class Bisection:
    """The result of a search.

    Attributes:
        suspects: the first bad commit; several commits if some of them cannot be measured.
        good, bad: measurements of the two ends.
        measured: all measurements in order.
    """

    suspects: tuple[str, ...]
    good: Measurement
    bad: Measurement
    measured: tuple[Measurement, ...]


@dataclass(frozen=True)
class Expected:
    """The change that the recorded history shows, which the measurements of the two ends must reproduce.

    Attributes:
        size: natural log of the factor by which the level after the change is worse; negative for an improvement.
        good, bad: level before and level after the change, as ``Measurement.log``; NaN if unknown.
        text: function that formats a level (log) for people, as a number with its unit.
    """

    size: float
    good: float = math.nan
    bad: float = math.nan
    text: Callable[[float], str] = lambda log: f"{math.exp(log):.4g}"


def bisect(
    span: SearchRange,
    measure: Callable[[str], Measurement],
    expected: Expected,
    others: Sequence[Callable[[str], Measurement]] = (),
) -> Bisection:
    """Find the first bad commit of a range, after both ends have reproduced the recorded change.

    Each GPU measures both ends and judges commits by its own, because GPUs of one model differ by up to 3 %.

    Args:
        measure: function that measures a commit; called up to three times if the result is undecided.
        others: functions like ``measure`` of further GPUs, which measure at the same time.

    Raises:
        NotReproduced: the two ends differ by less than half of the recorded change.
        Inconclusive: an end cannot be measured, or the scatter hides the difference.
    """
    benches = [_Bench(one) for one in (measure, *others)]
    _at_once([partial(bench.check, span, expected) for bench in benches])
    levels = [(bench.level(span.good), bench.level(span.bad)) for bench in benches]

    def are_bad(commits: Sequence[str]) -> list[bool | None]:
        asked = zip(benches, commits, levels, strict=False)
        return _at_once([partial(bench.is_bad, commit, *ends) for bench, commit, ends in asked])

    suspects = _search(span, are_bad, len(benches))
    ends = benches[0].typical(span.good), benches[0].typical(span.bad)
    return Bisection(suspects, *ends, tuple(taken for bench in benches for taken in bench.measured))


def _at_once(calls: Sequence[Callable[[], _T]]) -> list[_T]:
    """Return what the calls return, or raise what the first of them raises after all have ended."""
    if len(calls) == 1:
        return [calls[0]()]
    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(call) for call in calls]
    return [future.result() for future in running]


class _Bench:
    """Takes the measurements of one search, and judges commits by them."""

    def __init__(self, measure: Callable[[str], Measurement]) -> None:
        self._measure = measure
        self.measured: list[Measurement] = []

    def take(self, commit: str) -> Measurement:
        """Measure a commit once, and add the measurement to those of the search."""
        self.measured.append(self._measure(commit))
        return self.measured[-1]

    def of(self, commit: str) -> list[tuple[Measurement, float]]:
        """Return all measurements of a commit that gave a number, each with its ``log``."""
        return [(one, one.log) for one in self.measured if one.commit == commit and one.log is not None]

    def level(self, commit: str) -> float:
        """Return the median of a commit's measurements; NaN without measurements."""
        return median([log for _, log in self.of(commit)] or [math.nan])

    def typical(self, commit: str) -> Measurement:
        """Return the measurement that stands for a commit in the result: the one nearest to the commit's median."""
        level = self.level(commit)
        return min(self.of(commit), key=lambda one: abs(one[1] - level))[0]

    def check(self, span: SearchRange, expected: Expected) -> None:
        """Measure the two ends alternately until it is certain whether they differ as recorded.

        Raises:
            NotReproduced: the ends do not differ as recorded.
            Inconclusive: this is uncertain after ``_TRIES`` measurements of each end, or an end cannot be measured.
        """
        for _ in range(_TRIES):
            for commit in (span.good, span.bad):
                if (measurement := self.take(commit)).log is None:
                    message = f"{commit[:8]} cannot be measured on this machine: {measurement.reason}"
                    raise Inconclusive(message, self.measured)
            difference = (self.level(span.bad) - self.level(span.good)) * math.copysign(1, expected.size)
            error = self._error(span.good, span.bad)
            needed = _REACH * abs(expected.size)
            if difference >= needed and difference > error:
                return
            if difference + error < needed:
                raise self._not_reproduced(span, expected)
        between, give = math.expm1(self.level(span.bad) - self.level(span.good)), math.expm1(error)
        raise Inconclusive(
            f"{self._ends(span, expected)}, so they differ by {between:+.1%} ± {give:.1%}, but the recorded change is "
            f"{math.expm1(expected.size):+.1%}: the measurements scatter too much to tell good from bad; "
            "repeat the bisection on a quieter machine",
            self.measured,
        )

    def is_bad(self, commit: str, good: float, bad: float) -> bool | None:
        """Return whether a commit has the change; ``None`` if the commit cannot be measured.

        A commit has the change if its level is nearer to the level ``bad`` than to the level ``good``.
        """
        middle, difference = (good + bad) / 2, bad - good
        tries = [self.take(commit)]
        while len(tries) < _TRIES and _undecided(tries[-1], middle, difference):
            tries.append(self.take(commit))
        if not self.of(commit):
            return None
        return (self.level(commit) > middle) == (difference > 0)

    def _error(self, good: str, bad: str) -> float:
        """Return half the width of the 95 % interval of the difference (log) between the measurements of two commits.

        The estimate uses the intervals if there is one measurement of each commit, and the scatter if there are more.
        """
        measured = self.of(good), self.of(bad)
        if min(map(len, measured)) < 2:
            widths = ([(one.high - one.low) / 2 for one, _ in of if one.high >= one.low] for of in measured)
            return math.hypot(*(median(some or [0.0]) for some in widths))
        freedom = sum(map(len, measured)) - 2
        logs = [[log for _, log in of] for of in measured]
        pooled = sum((log - fmean(of)) ** 2 for of in logs for log in of) / freedom
        return t_quantile(0.975, freedom) * math.sqrt(pooled * sum(1 / len(of) for of in logs))

    def _ends(self, span: SearchRange, expected: Expected) -> str:
        good, bad = (expected.text(self.level(commit)) for commit in (span.good, span.bad))
        return f"{span.good[:8]} measures {good} on this machine and {span.bad[:8]} {bad}"

    def _not_reproduced(self, span: SearchRange, expected: Expected) -> NotReproduced:
        good, bad = self.level(span.good), self.level(span.bad)
        message = f"{self._ends(span, expected)}, so they differ by {math.expm1(bad - good):+.1%}, but the recorded "
        message += f"change is {math.expm1(expected.size):+.1%}"
        if not math.isnan(expected.good + expected.bad):
            message += f", from {expected.text(expected.good)} to {expected.text(expected.bad)}"
            # Compare each end with its recorded level.
            off = abs(good - expected.good), abs(bad - expected.bad)
            if max(off) >= _REACH * abs(expected.size):
                is_now = f"{span.bad[:8]}, the bad end, is still good"
                if off[0] > off[1]:
                    is_now = f"{span.good[:8]}, the good end, is already bad"
                return NotReproduced(f"{message}: {is_now}. {_OUTSIDE_RANGE}", self.measured)
        return NotReproduced(f"{message}: {_NOT_THE_COMMITS}", self.measured)


_NOT_THE_COMMITS = (
    "the commits do not explain the change. The toolchain, the machine and the protocol are those of today"
)
_OUTSIDE_RANGE = (
    "The change came outside the range, or with the toolchain, the machine or the protocol, which are those of today"
)


def _search(
    span: SearchRange, are_bad: Callable[[Sequence[str]], Sequence[bool | None]], count: int
) -> tuple[str, ...]:
    """Return the first bad commit by dividing the suspects into ``count`` + 1 sections, as ``git bisect`` halves them.

    If a measured commit is bad, only the commit and its ancestors stay suspects. If it is good, they are cleared.
    Several commits are returned if those that would decide cannot be measured.
    """
    place = {commit: at for at, commit in enumerate(span.suspects)}
    # A bit mask for each commit: bit i is set if suspect i is the commit or one of its ancestors.
    ancestors: dict[str, int] = {}
    if span.parents is None:
        ancestors = {commit: (2 << at) - 1 for commit, at in place.items()}
    else:
        for commit, parents in span.parents.items():
            mask = 1 << place[commit] if commit in place else 0
            for parent in parents:
                mask |= ancestors.get(parent, 0)
            ancestors[commit] = mask
    left, skipped = (1 << len(place)) - 1, set[str]()
    while True:
        open_suspects = [commit for commit in span.suspects if left >> place[commit] & 1 and commit not in skipped]
        size = {commit: (left & ancestors[commit]).bit_count() for commit in open_suspects}
        dividing = [commit for commit in open_suspects if size[commit] < left.bit_count()]
        if not dividing:
            return tuple(commit for commit in span.suspects if left >> place[commit] & 1)
        ends = [left.bit_count() * section / (count + 1) for section in range(1, count + 1)]
        nearest = {min(dividing, key=lambda commit: abs(size[commit] - end)) for end in ends}
        chosen = sorted(nearest, key=lambda commit: size[commit])
        for commit, has_change in zip(chosen, are_bad(chosen), strict=True):
            if has_change is None:
                skipped.add(commit)
            # A good commit after a bad one, by chance, must not clear all suspects.
            elif rest := left & (ancestors[commit] if has_change else ~ancestors[commit]):
                left = rest


def _undecided(measurement: Measurement, middle: float, difference: float) -> bool:
    """Return whether a measurement is too close to the middle between good and bad to decide."""
    return (
        measurement.log is not None
        and abs(measurement.log - middle) < abs(difference) / 4
        and measurement.low <= middle <= measurement.high
    )
