"""Find the series that lack a number to compare: those that are no longer measured, and those that skip a commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lockstep.compare.rows import Key, key_of, suite_of
from lockstep.compare.since_commit import Difference
from lockstep.history.model import Series
from lockstep.history.snapshot import Results

#: Commits before that one that are searched for an earlier point.
_BEFORE = 24


def not_measured(difference: Difference, place: int, first: int, newest: int) -> Difference:
    """Return the difference; one without numbers and called "not measured" if the series has no point since then.

    A point of the compared commit alone would be compared with itself, and called the same.

    Args:
        difference: of the series' newest row; a failure stays a failure.
        place: of that row's commit among the machine's.
        first: of the compared commit.
        newest: of the machine's newest commit.
    """
    if difference.verdict == "failed" or not (place < first or place == first < newest):
        return difference
    return Difference(difference.quantity, None, None, None, "not measured")


def not_new(difference: Difference, known: bool) -> Difference:
    """Return the difference, "unsure" in place of "new" if the series is known from before."""
    return replace(difference, verdict="unsure") if known and difference.verdict == "new" else difference


def known_before(results: Results, machine: str, first: int, wanted: Mapping[Key, str]) -> frozenset[Key]:
    """Return the series that have a number of the wanted version before a commit.

    Args:
        results: of all machines.
        machine: of the series.
        first: place of the commit among the machine's.
        wanted: version of each series.
    """
    if not wanted or first == 0:
        return frozenset()
    series: dict[Series, Key] = {}
    for one in results.series(machine=machine):
        key = key_of(one, suite_of(results.benchmarks[one.benchmark]))
        if key in wanted:
            series[one] = key
    last = len(results.commits(machine)) - first + _BEFORE
    found = set()
    for trend in results.trends(series, last=last):
        key = series[trend.series]
        earlier = (trend.commit < first) & (trend.value > 0)
        if any(results.versions[code] == wanted[key] for code in set(trend.version[earlier].tolist())):
            found.add(key)
    return frozenset(found)
