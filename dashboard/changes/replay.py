"""The detector: series replayed commit by commit, and what was reported on the way.

A replay holds, for each series, the hypotheses about its present level, what has been reported and every change
of mind. It never looks ahead: after ``n`` commits it says what it would have said had it been asked then. It is
a plain object of arrays and lists: keep it, and a new commit costs a millisecond for a hundred series.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dashboard.changes.doubts import median, slopes
from dashboard.changes.findings import Revision
from dashboard.changes.hypotheses import Floats, Hypotheses, Ints, log_odds, sooner
from dashboard.changes.modes import explained
from dashboard.changes.scatter import Scatter
from dashboard.changes.settings import Settings

#: A sum over hypotheses may exceed its largest term by this much: what is further off need not be summed.
ODDS_OF_MANY = 2 * np.log(15.0)
#: Harmonic size of two stretches from which on the bar falls no further.
LARGEST = 20.0
#: Points that the search for two modes looks back over.
LOOK_BACK = 60


Silence = Literal["", "modes", "slope"]


@dataclass(frozen=True, slots=True)
class Shift:
    """A level that gave way to another. Silent ones are followed and not reported, for the reason that they name."""

    index: int
    earliest: int
    latest: int
    reported_at: int
    silent: Silence = ""


class Replay:
    """The state of many series after the commits that they have seen.

    Args:
        series: how many.
        settings: the same for all.
    """

    def __init__(self, series: int, settings: Settings) -> None:
        self.settings = settings
        self.length: Ints = np.zeros(series, dtype=np.int64)
        self.values: Floats = np.full((series, 64), np.nan)
        self.weights: Floats = np.ones((series, 64))
        self.shifts: list[list[Shift]] = [[] for _ in range(series)]
        self.revisions: list[list[Revision]] = [[] for _ in range(series)]
        self.scatter = Scatter(series, settings)
        self._seen: Ints = np.zeros(series, dtype=np.int64)
        self._last: Ints = np.zeros(series, dtype=np.int64)
        self._depth: Ints = np.zeros(series, dtype=np.int64)
        self._best: Ints = np.zeros(series, dtype=np.int64)
        self._retry: Ints = np.zeros(series, dtype=np.int64)
        #: How far the last point was from its forecast, and where the odd points on its side of the level began.
        self._off: Floats = np.zeros(series)
        self._odd: Ints = np.full(series, -1, dtype=np.int64)
        self._look: Ints = np.full(series, np.iinfo(np.int64).max)
        self.hypotheses = Hypotheses.empty(series, settings.width)

    def extend(self, values: Floats, errors: Floats | None = None, rows: Ints | None = None) -> None:
        """Take in one more commit.

        Args:
            values: log values [rows], NaN where the commit has none.
            errors: their standard errors [rows], NaN where unknown.
            rows: the series that the commit belongs to (each once); all of them if not given.
        """
        if rows is None:
            rows = np.arange(self.length.size)
        else:
            order = np.argsort(rows)
            rows, values = rows[order], values[order]
            errors = None if errors is None else errors[order]
        index = self.length[rows]
        self._make_room(int(index.max(initial=0)))
        self.length[rows] += 1
        measured = np.isfinite(values)
        if not measured.all():
            rows, values, index = rows[measured], values[measured], index[measured]
            errors = None if errors is None else errors[measured]
        if not rows.size:
            return
        self.values[rows, index] = values
        if errors is not None:
            self.weights[rows, index] = self.scatter.weigh(rows, errors)
        self._seen[rows] += 1
        seen = self._seen[rows]
        going = self.scatter.points[rows] > 0
        if going.all():
            self._advance(rows, values, index, reporting=True)
        else:
            if going.any():
                self._advance(rows[going], values[going], index[going], reporting=True)
            # Intervals tell roughly how noisy a series is: it need not be watched for as long.
            enough = np.where(self.scatter.told(rows, seen), self.settings.burn_in_known, self.settings.burn_in)
            ready = ~going & (seen >= enough)
            for count in np.unique(seen[ready]):
                self._start(rows[ready & (seen == count)], int(count))
        self._last[rows] = index

    def _make_room(self, index: int) -> None:
        while self.values.shape[1] <= index:
            self.values = np.hstack([self.values, np.full_like(self.values, np.nan)])
            self.weights = np.hstack([self.weights, np.ones_like(self.weights)])

    def _start(self, rows: Ints, burn_in: int) -> None:
        """Guess the noise from the first ``burn_in`` measured points and run them through the filter."""
        index = np.nonzero(np.isfinite(self.values[rows]))[1].reshape(rows.size, burn_in)
        points = self.values[rows[:, None], index]
        weights = self.weights[rows[:, None], index]
        self.scatter.start(rows, points)
        nothing = np.zeros(rows.size, dtype=np.int64)
        self.hypotheses.begin(
            rows,
            points[:, 0],
            weights[:, 0],
            index[:, 0],
            cost=np.zeros(rows.size),
            before=nothing - 1,
            depth=nothing,
            former=nothing - 1,
            sooner=np.full(rows.size, -np.inf),
            origin=nothing - 1,
            keep=nothing + 1,
            settings=self.settings,
        )
        self._last[rows] = index[:, 0]
        for column in range(1, burn_in):
            self._advance(rows, points[:, column], index[:, column], reporting=False, skipped=column)
            self._last[rows] = index[:, column]

    def _advance(self, rows: Ints, y: Floats, index: Ints, *, reporting: bool, skipped: int = 0) -> None:
        """Filter one point of each of ``rows``; then judge, unless in the burn-in (``skipped`` points into it)."""
        found, settings = self.hypotheses, self.settings
        weights = self.weights[rows, index]
        best = self._best[rows]
        cost, start = found.cost[rows, best], found.start[rows, best]
        scale = self.scatter.cautious(rows)
        where = slice(None) if rows.size == self.length.size else rows
        off = found.advance(where, y, weights, index - self._last[rows], scale, settings)
        missed = off[np.arange(rows.size), best]
        self.scatter.note(rows, index, missed * np.sqrt(scale))
        birth = cost + 2 * settings.novelty
        found.begin(
            rows,
            y,
            weights,
            index,
            # In the burn-in nothing is reported: where the first points are odd ones, the level begins after them.
            cost=birth if reporting else np.minimum(birth, skipped * settings.gate**2),
            before=start if reporting else start * 0 - 1,
            depth=self._depth[rows] + reporting,
            former=self._last[rows],
            sooner=sooner(self._off[rows], missed),
            origin=np.where(self._odd[rows] < self._last[rows], self._odd[rows], -1),
            keep=best,
            settings=settings,
        )
        goes_on = (self._odd[rows] >= 0) & (missed * self._off[rows] > 0)
        self._odd[rows] = np.where(np.abs(missed) < settings.gate, -1, np.where(goes_on, self._odd[rows], index))
        self._off[rows] = missed
        self._settle(rows)
        if reporting:
            self._judge(rows, index)
            self.scatter.refresh(rows, index + 1, self._seen[rows])

    def _settle(self, rows: Ints) -> None:
        """Find the best hypothesis that holds just what has been reported."""
        found = self.hypotheses
        held = np.where(found.depth[rows] == self._depth[rows][:, None], found.cost[rows], np.inf)
        self._best[rows] = held.argmin(axis=1)

    def _judge(self, rows: Ints, index: Ints) -> None:
        """Report what has become likely, withdraw what has become unlikely, and look again where changes lie."""
        found, settings = self.hypotheses, self.settings
        cost, relative = found.cost[rows], found.depth[rows] - self._depth[rows][:, None]
        held = cost[np.arange(rows.size), self._best[rows]]
        # Most series have nothing new to tell: what costs more is computed for those that may.
        gain = held - np.where(relative == 1, cost, np.inf).min(axis=1)
        lowest = 2 * settings.evidence - ODDS_OF_MANY - 2 * settings.patience * np.log(LARGEST / settings.run)
        if (near := np.flatnonzero((gain > lowest) & (index >= self._retry[rows]))).size:
            self._report(rows[near], index[near])
        if self._depth[rows].any():
            gain = held - np.where(relative == -1, cost, np.inf).min(axis=1)
            if (near := np.flatnonzero(gain > 2 * settings.withdraw - ODDS_OF_MANY)).size:
                self._reconsider(rows[near], index[near])
        if (due := np.flatnonzero(index >= self._look[rows])).size:
            self._look_again(rows[due], index[due])

    def _report(self, rows: Ints, index: Ints) -> None:
        """Report the changes that are likely enough."""
        found, settings = self.hypotheses, self.settings
        cost, relative = found.cost[rows], found.depth[rows] - self._depth[rows][:, None]
        more = np.where((relative == 1) & (found.count[rows] >= settings.run), cost - 2 * self._bonus(rows), np.inf)
        held = np.where(relative == 0, cost, np.inf)
        strength = held.min(axis=1) - more.min(axis=1)
        for place in np.flatnonzero(log_odds(more, held) > settings.evidence).tolist():
            self._consider(int(rows[place]), int(index[place]), strength[place])

    def _reconsider(self, rows: Ints, index: Ints) -> None:
        """Withdraw the last changes that have become unlikely."""
        found = self.hypotheses
        cost, relative = found.cost[rows], found.depth[rows] - self._depth[rows][:, None]
        less, held = np.where(relative == -1, cost, np.inf), np.where(relative == 0, cost, np.inf)
        for place in np.flatnonzero(log_odds(less, held) > self.settings.withdraw).tolist():
            if self.shifts[rows[place]][-1].reported_at < index[place]:
                self._withdraw(int(rows[place]), int(index[place]))

    def _bonus(self, rows: Ints) -> Floats:
        """How far the bar is lowered for each hypothesis, by the points that stand for it."""
        found = self.hypotheses
        left = np.maximum(found.start[rows] - np.maximum(found.before[rows], 0), 1)
        right = np.maximum(found.count[rows], 1)
        size = np.clip(left * right / (left + right), 1.0, LARGEST)
        bonus: Floats = self.settings.patience * np.log(size / self.settings.run)
        return bonus

    def _consider(self, row: int, now: int, strength: float) -> None:
        """Report a change, unless there is another explanation for it."""
        found = self.hypotheses
        challengers = (found.depth[row] == self._depth[row] + 1) & (found.count[row] >= self.settings.run)
        index, earliest, latest = (int(each[0]) for each in found.locate(np.array([row]), challengers[None]))
        silent: Silence = ""
        switched = self._switched(row, index, now)
        if switched is not None:
            silent = "modes"
        elif self._slopes(row, index, now):
            silent = "slope"
        elif strength < (2 * self.settings.evidence - ODDS_OF_MANY) * self.scatter.linked(row, index):
            self._retry[row] = now + 1 + (now - index) // 4
            return
        self._depth[row] += 1
        found.drop(row, found.depth[row] < self._depth[row] - 1)
        self._settle(np.array([row]))
        self.shifts[row].append(Shift(index, earliest, latest, now, silent))
        self._look[row] = now + 1
        self.scatter.forget(row, index, now + 1, int(self._seen[row]))
        if switched:
            self._take_back(row, now, switched)

    def _switched(self, row: int, index: int, now: int) -> int | None:
        """How many reported changes are switches between modes like that at ``index``; ``None`` if that is none."""
        series = self.values[row, : now + 1]
        measured = np.isfinite(series)
        places = np.cumsum(measured) - measured
        edges = [int(places[shift.index]) for shift in self.reported(row) if shift.index < index]
        return explained(series[measured], edges, int(places[index]))

    def _slopes(self, row: int, index: int, now: int) -> bool:
        """Whether a slope explains the points since the last reported change better than a step at ``index``."""
        begin = max([shift.index for shift in self.reported(row) if shift.index < index] + [now - 2 * LOOK_BACK, 0])
        before, after = self.values[row, begin:index], self.values[row, index : now + 1]
        before, after = before[np.isfinite(before)], after[np.isfinite(after)]
        noise = float(np.sqrt(self.scatter.variance[row]))
        return slopes(np.concatenate([before, after]), before.size, noise, self.settings.gate)

    def _take_back(self, row: int, now: int, count: int) -> None:
        """Withdraw the newest reported changes, which were switches between modes."""
        told = [place for place, shift in enumerate(self.shifts[row]) if not shift.silent]
        for place in told[-count:]:
            shift = self.shifts[row][place]
            self._revise(row, shift, now, None, "the series switches between a few levels")
            self.shifts[row][place] = replace(shift, silent="modes")

    def _withdraw(self, row: int, now: int) -> None:
        shift = self.shifts[row].pop()
        if not shift.silent:
            self._revise(row, shift, now, None, "later points are at the level of before")
        found = self.hypotheses
        self._depth[row] -= 1
        found.drop(row, found.depth[row] > self._depth[row] + 1)
        self._settle(np.array([row]))
        self._look[row] = np.iinfo(np.int64).max

    def _look_again(self, rows: Ints, index: Ints) -> None:
        """Where the last changes lie, as far as is known by now."""
        found = self.hypotheses
        places = found.locate(rows, found.depth[rows] == self._depth[rows, None])
        for row, now, index_now, *ends in zip(*(each.tolist() for each in (rows, index, *places)), strict=True):
            shift = self.shifts[row][-1]
            self._look[row] = now + 1 + (now - shift.reported_at) // 2
            if index_now != shift.index and not shift.silent:
                self._revise(row, shift, now, index_now, "later points place it better")
            shift = replace(shift, index=index_now, earliest=ends[0], latest=ends[1])
            if shift.silent == "slope" and not self._slopes(row, index_now, now):
                shift = replace(shift, reported_at=now, silent="")
            self.shifts[row][-1] = shift

    def _revise(self, row: int, shift: Shift, now: int, moved_to: int | None, why: str) -> None:
        before = self.values[row, max(0, shift.index - 20) : shift.index]
        after = self.values[row, shift.index : now]
        size = median(after) - median(before)
        self.revisions[row].append(Revision(shift.reported_at, now, shift.index, moved_to, size, why))

    def news(self, row: int) -> tuple[int, int]:
        """A pair that changes whenever there is something new to tell of a series."""
        last = self.shifts[row][-1].reported_at if self.shifts[row] else -1
        return len(self.revisions[row]), last

    def reported(self, row: int) -> Iterator[Shift]:
        """The changes of one series that are believed now, oldest first."""
        return (shift for shift in self.shifts[row] if not shift.silent)
