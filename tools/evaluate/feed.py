"""Feed recorded series commit by commit, and count what a method reports and takes back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from lockstep.detect import Trend, continue_many
from lockstep.detect.series_state import SeriesState
from lockstep.processes.end_with_parent import pool
from tools.evaluate.board import LONG, OURS
from tools.evaluate.clear_steps import SIDE
from tools.evaluate.rivals import Rival
from tools.evaluate.samples import Floats, Sample
from tools.evaluate.scoring import MATCH

#: A change within this many commits of an earlier one is the same change, reported for another commit.
_SAME = 5
#: Another method is fed as many series of each tree as it analyses in this many milliseconds.
_BUDGET = 300.0


@dataclass(slots=True)
class Report:
    """A change that was reported: where first, where last, whether it stands, and whether it was ever taken back."""

    first: int
    index: int
    stands: bool = True
    taken_back: bool = False


@dataclass(frozen=True, slots=True)
class Fed:
    """What a method reported of the series of one tree, commit by commit.

    Attributes:
        told: number of changes that were ever reported.
        vanished: number of those that do not stand after the last commit.
        returned: number of those that vanished and stand again.
        moved: number of those that stand more than ``MATCH`` points from where they were first reported.
        clear: number of those that vanished, for a while or for good, though a clear step lies within ``MATCH`` points.
    """

    tree: str
    method: str
    series: int
    told: int
    vanished: int
    returned: int
    moved: int
    clear: int


def track(told: Iterable[Sequence[int]]) -> list[Report]:
    """Return a report for each change that was reported. ``told`` holds the indices that stand after each commit."""
    reports: list[Report] = []
    for places in told:
        new, free = set(places), dict(enumerate(reports))
        distances = ((abs(report.index - place), row, place) for row, report in free.items() for place in places)
        for _, row, place in sorted(pair for pair in distances if pair[0] <= _SAME):
            if place in new and row in free:
                report = free.pop(row)
                report.index, report.stands = place, True
                new.remove(place)
        for report in free.values():
            report.stands, report.taken_back = False, True
        reports += [Report(place, place) for place in sorted(new)]
    return reports


def feed(samples: Sequence[Sample], most: int, rivals: Sequence[Rival], processes: int) -> list[Fed]:
    """Feed at most ``most`` series of each tree, evenly chosen among those long enough for a clear step.

    Series with numbers that are zero or negative are left out. A slow method is fed fewer series, and none of more than
    ``LONG`` points: it runs again after every commit.
    """
    rows = []
    for tree in dict.fromkeys(sample.kind for sample in samples):
        long = [one for one in samples if one.kind == tree and one.trend.ratio and len(one.trend) >= 2 * SIDE]
        chosen = long[:: -(-len(long) // most)] if long else []
        rows.append(_count(tree, OURS, chosen, _ours([sample.trend for sample in chosen])))
        for rival in rivals:
            fed = chosen if rival.milliseconds < 1 else [one for one in chosen if len(one.trend) <= LONG]
            fed = fed[: int(_BUDGET / rival.milliseconds)] if rival.milliseconds else fed
            values = [sample.trend.values for sample in fed]
            work = partial(_theirs, rival)
            with pool(processes) as workers:
                told = list(workers.map(work, values) if processes > 1 else map(work, values))
            rows.append(_count(tree, rival.name, fed, told))
    return rows


def _ours(trends: Sequence[Trend]) -> list[list[list[int]]]:
    """Return the indices of the changes after each commit, for each series."""
    told: list[list[list[int]]] = [[] for _ in trends]
    states: list[SeriesState | None] = [None] * len(trends)
    for stop in range(1, max(map(len, trends), default=0) + 1):
        rows = [row for row, trend in enumerate(trends) if len(trend) >= stop]
        fed = [
            Trend(trend.values[:stop], None if trend.errors is None else trend.errors[:stop])
            for trend in (trends[row] for row in rows)
        ]
        for row, (analysis, state) in zip(rows, continue_many(fed, [states[row] for row in rows]), strict=True):
            told[row].append([change.index for change in analysis.changes])
            states[row] = state
    return told


def _theirs(rival: Rival, values: Floats) -> list[list[int]]:
    return [rival.detect(values[:stop]) for stop in range(2, values.size + 1)]


def _count(tree: str, method: str, samples: Sequence[Sample], told: Sequence[Sequence[Sequence[int]]]) -> Fed:
    pairs = [(sample, one) for sample, lists in zip(samples, told, strict=True) for one in track(lists)]
    return Fed(
        tree,
        method,
        series=len(samples),
        told=len(pairs),
        vanished=sum(not one.stands for _, one in pairs),
        returned=sum(one.stands and one.taken_back for _, one in pairs),
        moved=sum(one.stands and abs(one.index - one.first) > MATCH for _, one in pairs),
        clear=sum(
            one.taken_back and any(abs(one.index - step) <= MATCH for step in sample.steps) for sample, one in pairs
        ),
    )
