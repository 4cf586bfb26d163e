"""The first bad one of many commits, by measuring about log₂ of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

#: The two ends must differ here by at least this part of what the history has, or there is nothing to search.
_REACH = 0.5

#: How often a commit is measured at most.
_TRIES = 3


class NotReproduced(ValueError):
    """The change does not show between the two ends as they measure here."""


@dataclass(frozen=True)
class Measurement:
    """One commit as it was measured here.

    Attributes:
        commit: full hash.
        log: natural log of how bad it is (of its latency, or of the inverse of its speedup); ``None`` if it cannot be
            measured. low, high: its 95 % interval.
        reason: why it cannot be measured.
    """

    commit: str
    log: float | None
    low: float = math.nan
    high: float = math.nan
    reason: str = ""


@dataclass(frozen=True)
class Bisection:
    """What was found.

    Attributes:
        suspects: the first bad commit; several where those in between cannot be measured.
        good, bad: the two ends. measured: all that was measured, in that order.
    """

    suspects: tuple[str, ...]
    good: Measurement
    bad: Measurement
    measured: tuple[Measurement, ...]


def bisect(good: str, commits: Sequence[str], measure: Callable[[str], Measurement], expected: float) -> Bisection:
    """The first of ``commits`` that is bad.

    Args:
        good: a commit before all of them that is good.
        commits: oldest first; the last is bad.
        measure: measures a commit; asked again, twice at most, where it does not tell good from bad.
        expected: log of the factor by which bad is worse than good, as the history has it; negative if it is better.

    Raises:
        NotReproduced: the two ends do not differ by at least half of that here, or cannot be measured.
    """
    taken: list[Measurement] = []

    def take(commit: str) -> Measurement:
        taken.append(measure(commit))
        return taken[-1]

    first, last = take(good), take(commits[-1])
    if first.log is None or last.log is None:
        one = first if first.log is None else last
        raise NotReproduced(f"{one.commit[:8]} cannot be measured here: {one.reason}")
    apart = last.log - first.log
    if apart * math.copysign(1, expected) < _REACH * abs(expected):
        raise NotReproduced(
            f"{last.commit[:8]} is {math.expm1(apart):+.1%} against {first.commit[:8]} here, and "
            f"{math.expm1(expected):+.1%} in the history: what changed it is not in the commits. "
            "The toolchain, the machine and the way of measuring are today's here"
        )
    middle = (first.log + last.log) / 2
    left, right = -1, len(commits) - 1  # the newest good one, the oldest bad one; -1 is ``good``
    skipped: set[int] = set()
    while candidates := [at for at in range(left + 1, right) if at not in skipped]:
        at = min(candidates, key=lambda one: abs(one - (left + right) / 2))
        tries = [take(commits[at])]
        while len(tries) < _TRIES and _undecided(tries[-1], middle, apart):
            tries.append(take(commits[at]))
        logs = [one.log for one in tries if one.log is not None]
        if not logs:
            skipped.add(at)
        elif (median(logs) > middle) == (apart > 0):
            right = at
        else:
            left = at
    return Bisection(tuple(commits[left + 1 : right + 1]), first, last, tuple(taken))


def _undecided(one: Measurement, middle: float, apart: float) -> bool:
    """Whether a measurement lies between good and bad, and its interval allows for both."""
    return one.log is not None and abs(one.log - middle) < abs(apart) / 4 and one.low <= middle <= one.high
