"""The detector: series replayed commit by commit, and what was reported on the way.

A replay holds, for each series, the hypotheses about its present level, what has been reported and every change
of mind. It never looks ahead: after ``n`` commits it says what it would have said had it been asked then. It is
a plain object of arrays and lists: keep it (pickled, say) and a new commit costs a millisecond for a hundred series.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dashboard.changes.doubts import autocorrelation, robust_mean, slopes, two_modes
from dashboard.changes.findings import Revision
from dashboard.changes.hypotheses import Floats, Hypotheses, Ints
from dashboard.changes.settings import Settings

#: Noise below a millionth is rounding; a series that never varies must not make it infinitely sure.
FLOOR = 1e-6
#: Points that the noise is estimated from.
_REMEMBERED = 128
#: Points' worth of doubt about that estimate: from few points it is often too small, and too small rings.
CAUTION = 4.0
#: Where a change lies is told by the commit with the most probability within this many commits of it.
NEARBY = 2
_ODDS_OF_MANY = 2 * np.log(15.0)
#: Harmonic size of two stretches from which on the bar falls no further.
LARGEST = 60.0
#: Points that the search for two modes looks back over.
LOOK_BACK = 60


@dataclass(frozen=True, slots=True)
class Shift:
    """A level that gave way to another. Silent ones are followed and not reported."""

    index: int
    earliest: int
    latest: int
    reported_at: int
    silent: bool = False


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
        self.scale: Floats = np.full(series, np.nan)
        self._seen: Ints = np.zeros(series, dtype=np.int64)
        self._last: Ints = np.zeros(series, dtype=np.int64)
        self._innovations: Floats = np.full((series, 64), np.nan)  # squared, over the forecast's variance
        self._measured: Ints = np.zeros(series, dtype=np.int64)  # points that the noise was estimated from
        self._estimate: Ints = np.zeros(series, dtype=np.int64)  # at which count of points to do it again
        self._typical: Floats = np.full(series, np.nan)
        self._errors: Ints = np.zeros(series, dtype=np.int64)
        self._depth: Ints = np.zeros(series, dtype=np.int64)
        self._best: Ints = np.zeros(series, dtype=np.int64)
        self._retry: Ints = np.zeros(series, dtype=np.int64)
        self._look: Ints = np.full(series, np.iinfo(np.int64).max)
        self._hypotheses = Hypotheses.empty(series, settings.width)

    def extend(self, values: Floats, errors: Floats | None = None, rows: Ints | None = None) -> None:
        """Take in one more commit.

        Args:
            values: log values [rows], NaN where the commit has none.
            errors: their standard errors [rows], NaN where unknown.
            rows: the series that the commit belongs to (each once); all of them if not given.
        """
        rows = np.arange(self.length.size) if rows is None else rows
        index = self.length[rows]
        self._make_room(int(index.max(initial=0)))
        self.length[rows] += 1
        measured = np.isfinite(values)
        rows, values, index = rows[measured], values[measured], index[measured]
        if not rows.size:
            return
        self.values[rows, index] = values
        if errors is not None:
            self.weights[rows, index] = self._weigh(rows, errors[measured])
        self._seen[rows] += 1
        seen = self._seen[rows]
        if (new := rows[seen == self.settings.burn_in]).size:
            self._start(new)
        going = seen > self.settings.burn_in
        if going.any():
            self._advance(rows[going], values[going], index[going], reporting=True)
        self._last[rows] = index

    def _make_room(self, index: int) -> None:
        while self.values.shape[1] <= index:
            self.values = np.hstack([self.values, np.full_like(self.values, np.nan)])
            self.weights = np.hstack([self.weights, np.ones_like(self.weights)])
            self._innovations = np.hstack([self._innovations, np.full_like(self._innovations, np.nan)])

    def _weigh(self, rows: Ints, errors: Floats) -> Floats:
        """Variance of each point relative to the series' usual one: half of it the point's own, half what all share."""
        known = np.isfinite(errors)
        count = self._errors[rows]
        before = np.where(count > 0, self._typical[rows], np.log(errors))
        # A running mean of the logarithm: one huge error must not make all others look small.
        typical = np.where(known, before + (np.log(errors) - before) / (np.minimum(count, 50) + 1), before)
        self._typical[rows] = np.where(known, typical, self._typical[rows])
        self._errors[rows] += known
        return np.where(known, 0.5 + 0.5 * np.exp(2 * (np.log(errors) - typical)), 1.0)

    def _start(self, rows: Ints) -> None:
        """Guess the noise from the burn-in and run its points through the filter."""
        burn_in = self.settings.burn_in
        index = np.nonzero(np.isfinite(self.values[rows]))[1].reshape(rows.size, burn_in)
        points = self.values[rows[:, None], index]
        weights = self.weights[rows[:, None], index]
        off = points - np.median(points, axis=1, keepdims=True)
        guess = self._spread(off * off * burn_in / (burn_in - 1))
        known = np.exp(2 * self._typical[rows])
        self.scale[rows] = np.maximum(np.where(np.isfinite(known), (guess + known) / 2, guess), FLOOR**2)
        self._measured[rows] = burn_in
        self._estimate[rows] = burn_in + 4
        nothing = np.zeros(rows.size, dtype=np.int64)
        self._hypotheses.begin(
            rows,
            points[:, 0],
            weights[:, 0],
            index[:, 0],
            cost=np.zeros(rows.size),
            before=nothing - 1,
            depth=nothing,
            settings=self.settings,
        )
        self._last[rows] = index[:, 0]
        for column in range(1, burn_in):
            self._advance(rows, points[:, column], index[:, column], reporting=False, skipped=column)
            self._last[rows] = index[:, column]

    def _advance(self, rows: Ints, y: Floats, index: Ints, *, reporting: bool, skipped: int = 0) -> None:
        """Filter one point of each of ``rows``; then judge, unless in the burn-in (``skipped`` points into it)."""
        found, settings = self._hypotheses, self.settings
        weights = self.weights[rows, index]
        best = self._best[rows]
        cost, start = found.cost[rows, best], found.start[rows, best]
        scale = self.scale[rows] * (1 + CAUTION / self._measured[rows])
        where = slice(None) if rows.size == self.length.size else rows
        distance = found.advance(where, y, weights, index - self._last[rows], scale, settings)
        self._innovations[rows, index] = distance[np.arange(rows.size), best] * scale
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
            settings=settings,
        )
        self._settle(rows)
        if reporting:
            self._judge(rows, index)
            due = rows[self._seen[rows] >= self._estimate[rows]]
            if due.size:
                self._measure_noise(due)

    def _measure_noise(self, rows: Ints) -> None:
        """Estimate the noise anew; the next time when there is a tenth more to know."""
        end = int(self.length[rows].max())
        squares = self._innovations[rows, max(0, end - _REMEMBERED) : end]
        self.scale[rows] = np.maximum(self._spread(squares), FLOOR**2)
        self._measured[rows] = np.maximum(np.isfinite(squares).sum(axis=1), 1)
        self._estimate[rows] = self._seen[rows] + np.maximum(self._seen[rows] // 10, 2)

    def _spread(self, squares: Floats) -> Floats:
        """Variance [rows] from squared deviations [rows, points], what lies beyond the gate left out; NaN for none."""
        ordered = np.sort(squares, axis=1)  # NaN last
        count = np.isfinite(squares).sum(axis=1)
        middle = ordered[np.arange(len(ordered)), np.maximum(count - 1, 0) // 2]
        variance = middle / 0.4549  # the median of a squared standard normal
        for _ in range(4):
            inside = squares < self.settings.gate**2 * variance[:, None]
            variance = np.where(inside, squares, 0.0).sum(axis=1) / np.maximum(inside.sum(axis=1), 1)
        estimate: Floats = variance
        return estimate

    def _settle(self, rows: Ints) -> None:
        """Find the best hypothesis that holds just what has been reported."""
        found = self._hypotheses
        held = np.where(found.depth[rows] == self._depth[rows][:, None], found.cost[rows], np.inf)
        self._best[rows] = held.argmin(axis=1)

    def _judge(self, rows: Ints, index: Ints) -> None:
        """Report what has become likely, withdraw what has become unlikely, and look again where changes lie."""
        found, settings = self._hypotheses, self.settings
        cost, relative = found.cost[rows], found.depth[rows] - self._depth[rows][:, None]
        held = cost[np.arange(rows.size), self._best[rows]]
        more = np.where((relative == 1) & (found.count[rows] >= settings.run), cost - 2 * self._bonus(rows), np.inf)
        near = held - more.min(axis=1) > 2 * settings.evidence - _ODDS_OF_MANY
        same = relative == 0
        for place in _beyond(near & (index >= self._retry[rows]), more, cost, same, settings.evidence):
            self._consider(int(rows[place]), int(index[place]), held[place] - more[place].min())
        less = np.where(relative == -1, cost, np.inf)
        near = held - less.min(axis=1) > 2 * settings.withdraw - _ODDS_OF_MANY
        for place in _beyond(near, less, cost, same, settings.withdraw):
            if self.shifts[rows[place]][-1].reported_at < index[place]:
                self._withdraw(int(rows[place]), int(index[place]))
        due = np.flatnonzero(index >= self._look[rows])
        if due.size:
            self._look_again(rows[due], index[due])

    def _bonus(self, rows: Ints) -> Floats:
        """How far the bar is lowered for each hypothesis, by the points that stand for it."""
        found = self._hypotheses
        left = np.maximum(found.start[rows] - np.maximum(found.before[rows], 0), 1)
        right = np.maximum(found.count[rows], 1)
        size = np.clip(left * right / (left + right), 1.0, LARGEST)
        bonus: Floats = self.settings.patience * np.log(size / self.settings.run)
        return bonus

    def _consider(self, row: int, now: int, strength: float) -> None:
        """Report a change, unless there is another explanation for it."""
        found = self._hypotheses
        challengers = (found.depth[row] == self._depth[row] + 1) & (found.count[row] >= self.settings.run)
        placed = _place(found, np.array([row]), challengers[None])
        index, earliest, latest = (int(each[0]) for each in placed)
        begin = max(int(found.start[row, self._best[row]]), 0)
        noise = float(np.sqrt(self.scale[row]))
        silent = self._back_and_forth(row, now, index)
        if not silent and self._doubtful(row, begin, index, now, noise, strength):
            self._retry[row] = now + 1 + (now - index) // 4
            return
        self._depth[row] += 1
        found.drop(row, found.depth[row] < self._depth[row] - 1)
        self._settle(np.array([row]))
        self.shifts[row].append(Shift(index, earliest, latest, now, silent))
        self._look[row] = now + 1
        # Told from the old level, these points say nothing about the noise.
        self._innovations[row, index : now + 1] = np.nan
        self._estimate[row] = self._seen[row]
        if silent:
            for place, shift in enumerate(self.shifts[row]):
                if not shift.silent and shift.index > now - LOOK_BACK:
                    why = "the series went back and forth between two levels"
                    self._revise(row, shift, now, None, why)
                    self.shifts[row][place] = replace(shift, silent=True)

    def _back_and_forth(self, row: int, now: int, index: int) -> bool:
        """Whether the series has two modes, and the new level is one of them."""
        recent = self.values[row, max(0, now + 1 - LOOK_BACK) : now + 1]
        modes = two_modes(recent[np.isfinite(recent)])
        if modes is None:
            return False
        after = self.values[row, index : now + 1]
        level = float(np.nanmedian(after))
        return bool(min(abs(level - mode) for mode in modes) < 0.25 * (modes[1] - modes[0]))

    def _doubtful(self, row: int, begin: int, index: int, now: int, noise: float, strength: float) -> bool:
        """Whether a slope explains the points as well, or the series wanders so much that a step is not sure."""
        stretch = self.values[row, begin : now + 1]
        finite = np.isfinite(stretch)
        split = int(np.count_nonzero(finite[: index - begin]))
        points = stretch[finite]
        gate = self.settings.gate
        if split < 1 or split >= points.size or slopes(points, split, noise, gate):
            return True
        rest = np.concatenate([part - robust_mean(part, noise, gate) for part in (points[:split], points[split:])])
        linked = autocorrelation(np.clip(rest, -gate * noise, gate * noise))
        return bool(strength * (1 - linked) / (1 + linked) < 2 * self.settings.evidence - _ODDS_OF_MANY)

    def _withdraw(self, row: int, now: int) -> None:
        shift = self.shifts[row].pop()
        if not shift.silent:
            self._revise(row, shift, now, None, "later points are at the level of before")
        found = self._hypotheses
        self._depth[row] -= 1
        found.drop(row, found.depth[row] > self._depth[row] + 1)
        self._settle(np.array([row]))
        self._look[row] = np.iinfo(np.int64).max

    def _look_again(self, rows: Ints, index: Ints) -> None:
        """Where the last changes lie, as far as is known by now."""
        found = self._hypotheses
        found_at = _place(found, rows, found.depth[rows] == self._depth[rows, None])
        for row, now, place, earliest, latest in zip(
            *(each.tolist() for each in (rows, index, *found_at)), strict=True
        ):
            shift = self.shifts[row][-1]
            self._look[row] = now + 1 + (now - shift.reported_at) // 2
            if place != shift.index and not shift.silent:
                self._revise(row, shift, now, place, "later points place it better")
            self.shifts[row][-1] = replace(shift, index=place, earliest=earliest, latest=latest)

    def _revise(self, row: int, shift: Shift, now: int, moved_to: int | None, why: str) -> None:
        before = self.values[row, max(0, shift.index - 20) : shift.index]
        after = self.values[row, shift.index : now]
        size = float(np.nanmedian(after) - np.nanmedian(before))
        self.revisions[row].append(Revision(shift.reported_at, now, shift.index, moved_to, size, why))

    def news(self, row: int) -> tuple[int, int]:
        """A pair that changes whenever there is something new to tell of a series."""
        last = self.shifts[row][-1].reported_at if self.shifts[row] else -1
        return len(self.revisions[row]), last

    def reported(self, row: int) -> Iterator[Shift]:
        """The changes of one series that are believed now, oldest first."""
        return (shift for shift in self.shifts[row] if not shift.silent)


def _beyond(near: NDArray[np.bool_], these: Floats, cost: Floats, same: NDArray[np.bool_], bar: float) -> list[int]:
    """Of the rows marked in ``near``, those where the hypotheses ``these`` are likelier by the log odds ``bar``.

    ``these`` holds costs, infinite for none; they are summed, and held against the sum over ``same`` of ``cost``.
    """
    places = np.flatnonzero(near)
    if not places.size:
        return []
    those, others = these[places], np.where(same[places], cost[places], np.inf)
    low = np.minimum(those.min(axis=1), others.min(axis=1))[:, None]
    ratio = np.exp((low - those) / 2).sum(axis=1) / np.maximum(np.exp((low - others) / 2).sum(axis=1), 1e-300)
    found: list[int] = places[np.log(np.maximum(ratio, 1e-300)) > bar].tolist()
    return found


def _place(found: Hypotheses, rows: Ints, among: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
    """The commit with the most probability within ``NEARBY`` of it, and the ends of the middle 95 %, [rows] each."""
    cost = np.where(among, found.cost[rows], np.inf)
    order = np.argsort(found.start[rows], axis=1)
    start = np.take_along_axis(found.start[rows], order, axis=1)
    cost = np.take_along_axis(cost, order, axis=1)
    share = np.exp((cost.min(axis=1, keepdims=True) - cost) / 2)
    share /= share.sum(axis=1, keepdims=True)
    near = np.einsum("rij,rj->ri", np.abs(start[:, :, None] - start[:, None, :]) <= NEARBY, share)
    # Where the step is clear, all its neighbours have it nearby: of those take the likeliest itself.
    index = np.where(near > 0.95 * near.max(axis=1, keepdims=True), share, -1.0).argmax(axis=1)
    grown = np.cumsum(share, axis=1)
    which = np.arange(rows.size)
    earliest, latest = (grown >= 0.025).argmax(axis=1), (grown >= 0.975).argmax(axis=1)
    return start[which, index], start[which, earliest], start[which, latest]
