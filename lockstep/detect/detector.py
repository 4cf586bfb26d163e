"""Decide, commit by commit, which changes of many series are reported, moved and withdrawn.

For each series, a detector holds the hypotheses about its current level, the reported changes and their revisions. Its
reports after ``n`` commits depend only on these ``n`` commits, not on later ones. It consists of arrays and lists, so
its state can be saved. One more commit takes a millisecond for a hundred series.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.findings import Revision
from lockstep.detect.level_shift import Shift, Silence, after_last
from lockstep.detect.modes import explained
from lockstep.detect.online_filter import OnlineFilter
from lockstep.detect.run_lengths import Floats, Ints, log_odds
from lockstep.detect.settings import BURN_IN, EARLY, EVIDENCE, GATE, LOST, PATIENCE, RUN, SETTLES, UNSETTLED, WITHDRAW
from lockstep.detect.step_or_drift import correlated, explained_by_noise, median, slopes

#: In cost units, the sum of many hypotheses is better than the best of them by at most about this much.
ODDS_OF_MANY = 2 * np.log(15.0)
#: Harmonic size of two segments above which the threshold for a report falls no further.
LARGEST = 20.0
#: Harmonic size of two segments below which the threshold for a report rises no further.
SMALLEST = 2.0
#: Points still lie about the old level if their median is within this many of their median deviations from the level.
ABOUT = 1.5
#: If a new estimate places a change more than this many commits earlier, the change is withdrawn instead of moved.
FAR = 20
#: Number of commits after a step that a slope silenced, at each of which the test for a slope is repeated. Chosen on
#: seeds 1 to 4 of ``evaluate``.
SLOPE_CHECKS = 64
#: Number of newest commits whose points the test for a slope uses.
LOOK_BACK = 120


class Detector(OnlineFilter):
    """Follows many series commit by commit, and decides which of their changes are reported.

    Args:
        series: the number of series.
    """

    def __init__(self, series: int) -> None:
        super().__init__(series)
        self.shifts: list[list[Shift]] = [[] for _ in range(series)]
        self.revisions: list[list[Revision]] = [[] for _ in range(series)]
        self._retry: Ints = np.zeros(series, dtype=np.int64)
        self._look: Ints = np.full(series, np.iinfo(np.int64).max)

    def judge(self, rows: Ints, index: Ints) -> None:
        """Report new changes, withdraw changes that became unlikely, and correct the positions of the last changes."""
        run_lengths = self.run_lengths
        cost, relative = run_lengths.cost[rows], run_lengths.depth[rows] - self.depth[rows][:, None]
        held = cost[np.arange(rows.size), self._best[rows]]
        # Most series have nothing to report, so the expensive steps run only for the others.
        gain = held - np.where(relative == 1, cost, np.inf).min(axis=1)
        lowest = 2 * EVIDENCE - ODDS_OF_MANY - 2 * PATIENCE * np.log(LARGEST / RUN)
        if (candidates := ((gain > lowest) & (index >= self._retry[rows])).nonzero()[0]).size:
            self._report(rows[candidates], index[candidates])
        if self.depth[rows].any():
            gain = held - np.where(relative == -1, cost, np.inf).min(axis=1)
            if (candidates := (gain > 2 * WITHDRAW - ODDS_OF_MANY).nonzero()[0]).size:
                self._reconsider(rows[candidates], index[candidates])
        if (due := (index >= self._look[rows]).nonzero()[0]).size:
            self._relocate(rows[due], index[due])
        for place in (self._lost[rows] > LOST).nonzero()[0].tolist():
            self._report_unsettled(int(rows[place]), int(index[place]))
        unsettled = self.unsettled[rows]
        if unsettled.max() >= 0:
            for place in ((unsettled >= 0) & (index - unsettled >= SETTLES)).nonzero()[0].tolist():
                self._accept_noise(int(rows[place]), int(index[place]))

    def _report(self, rows: Ints, index: Ints) -> None:
        """Report the changes whose log odds exceed the threshold."""
        run_lengths = self.run_lengths
        cost, relative = run_lengths.cost[rows], run_lengths.depth[rows] - self.depth[rows][:, None]
        challengers = (relative == 1) & self._stands(rows, index)
        challenger_cost = np.where(challengers, cost - 2 * self._bonus(rows), np.inf)
        held = np.where(relative == 0, cost, np.inf)
        strength = held.min(axis=1) - challenger_cost.min(axis=1)
        likely = np.flatnonzero(log_odds(challenger_cost, held) > EVIDENCE)
        if likely.size:
            places = run_lengths.locate(rows[likely], challengers[likely])
            columns = rows[likely], index[likely], strength[likely], *places
            for challenge in zip(*(column.tolist() for column in columns), strict=True):
                self._consider(*challenge)

    def _stands(self, rows: Ints, index: Ints) -> NDArray[np.bool_]:
        """Return a mask [rows, width] of the hypotheses with enough points for a report.

        A hypothesis needs ``RUN`` points at its level, or two if the series has already left the level.
        """
        run_lengths = self.run_lengths
        limit = GATE * np.sqrt(self.noise.cautious(rows) * self.weights[rows, index])
        left = np.abs(self.values[rows, index][:, None] - run_lengths.level[rows]) > limit[:, None]
        left &= np.abs(self._off[rows][:, None]) > GATE
        short = left & (run_lengths.count[rows] == RUN - 1) & (index[:, None] - run_lengths.start[rows] >= RUN - 1)
        mask: NDArray[np.bool_] = short | (run_lengths.count[rows] >= RUN)
        return mask

    def _reconsider(self, rows: Ints, index: Ints) -> None:
        """Withdraw the last change of each of the series ``rows`` if that change is no longer likely."""
        run_lengths = self.run_lengths
        cost, relative = run_lengths.cost[rows], run_lengths.depth[rows] - self.depth[rows][:, None]
        fewer_cost, held = np.where(relative == -1, cost, np.inf), np.where(relative == 0, cost, np.inf)
        for place in np.flatnonzero(log_odds(fewer_cost, held) > WITHDRAW).tolist():
            if self.shifts[rows[place]][-1].reported_at < index[place]:
                self._withdraw(int(rows[place]), int(index[place]))

    def _bonus(self, rows: Ints) -> Floats:
        """Return by how much the threshold for reporting each hypothesis falls, because more points support it."""
        run_lengths = self.run_lengths
        left = np.maximum(run_lengths.start[rows] - np.maximum(run_lengths.before[rows], 0), 1)
        right = np.maximum(run_lengths.count[rows], 1)
        size = np.clip(left * right / (left + right), SMALLEST, LARGEST)
        # The noise was first guessed from these points, so they are weak evidence for a change.
        guessed = self._guessed[rows, None]
        raised = EARLY * BURN_IN / self.noise.points[rows, None]
        early = (guessed >= 0) & (run_lengths.start[rows] <= 2 * guessed)
        bonus: Floats = PATIENCE * np.log(size / RUN) - np.where(early, raised, 0.0)
        return bonus

    def _consider(self, row: int, now: int, strength: float, index: int, earliest: int, latest: int) -> None:
        """Report a change unless switches between modes, a slope or noise explain it."""
        run_lengths = self.run_lengths
        silent: Silence = ""
        switched = self._switched(row, index, now)
        if switched is not None:
            silent = "modes"
        elif self._explained_by_noise(row, index, now, strength):
            self._retry[row] = now + 1 + (now - index) // 4
            return
        # Test noise before a slope: a step that a slope silenced is reported when the slope ends, but a step that noise
        # silenced is not.
        elif self.unsettled[row] < 0 and self._slopes(row, index, now):
            silent = "slope"
        index, earliest, latest = after_last(self.shifts[row], self.values[row], index, earliest, latest)
        self.depth[row] += 1
        run_lengths.drop(row, run_lengths.depth[row] < self.depth[row] - 1)
        self._choose_best(np.array([row]))
        self.shifts[row].append(Shift(index, earliest, latest, now, silent))
        self._look[row] = now + 1
        self.unsettled[row] = -1
        # These counts refer to the level that has ended.
        self._off[row], self._odd[row], self._lost[row] = 0.0, -1, 0.0
        self.noise.forget(row, index, now + 1, int(self._seen[row]))
        if switched:
            self._withdraw_switches(row, now, switched)
        self._catch_up(row, now)

    def _explained_by_noise(self, row: int, index: int, now: int, strength: float) -> bool:
        """Return whether correlated noise, or larger noise around ``index``, explains a step of this strength."""
        points = self.values[row, index : now + 1]
        return explained_by_noise(
            self.noise.residuals(row, index),
            points[np.isfinite(points)] - self.run_lengths.level[row, self._best[row]],
            float(np.sqrt(self.noise.variance[row])),
            strength - (2 * EVIDENCE - ODDS_OF_MANY),
        )

    def _catch_up(self, row: int, now: int) -> None:
        """If the last point is already off the level that was just reported, begin to search for the next level."""
        rows, run_lengths, best = np.array([row]), self.run_lengths, int(self._best[row])
        level, start, cost = (
            float(column[row, best]) for column in (run_lengths.level, run_lengths.start, run_lengths.cost)
        )
        limit = GATE * np.sqrt(self.noise.cautious(rows) * self.weights[rows, now])
        if abs(self.values[row, now] - level) <= limit[0]:
            return
        before = run_lengths.select(rows)
        self._restart_at(row, int(start), now, level)
        run_lengths.cost[row] += cost - run_lengths.cost[row, self._best[row]]
        # Keep the hypotheses without the change, so that the change can be withdrawn.
        run_lengths.recall(row, before, before.depth[0] == self.depth[row] - 1)
        self._choose_best(rows)

    def _report_unsettled(self, row: int, now: int) -> None:
        """Report that the points scatter too much to give a level, unless noise or modes explain the scatter."""
        first = int(self._lost_at[row])
        if self._lost[row] < LOST * correlated(self.noise.residuals(row, first)):
            return
        run_lengths = self.run_lengths
        agree = (run_lengths.count[row] > 1) & (run_lengths.count[row] > now - run_lengths.start[row])
        agree &= run_lengths.depth[row] == self.depth[row] + 1
        if agree.any() and self._lost[row] < LOST + GATE**2 - UNSETTLED:
            return  # the newest points may be a level; the next point will show
        if self._switched(row, first, now) is not None:
            self._lost[row] = 0.0
            return
        if self._noisier(row, first, now):
            return
        self.depth[row] += 1
        self.shifts[row].append(Shift(first, first, first, now, unsettled=True))
        self.unsettled[row] = first
        self._look[row] = np.iinfo(np.int64).max
        self.noise.forget(row, first, now + 1, int(self._seen[row]))
        self._restart_at(row, first, now, np.nan)

    def _noisier(self, row: int, first: int, now: int) -> bool:
        """Raise the noise of a series, and return True, if its points lie far off its level on both sides."""
        level = float(self.run_lengths.level[row, self._best[row]])
        points = self.values[row, first : now + 1]
        points = points[np.isfinite(points)]
        limit, middle = GATE * float(np.sqrt(self.noise.variance[row])), median(points)
        if points.max() < level + limit or points.min() > level - limit:
            return False
        if abs(middle - level) > ABOUT * median(np.abs(points - middle)):
            return False
        self.noise.restart(row, points, int(self._seen[row]))
        self._restart_at(row, first, now, level)
        self._look[row] = np.iinfo(np.int64).max
        return True

    def _accept_noise(self, row: int, now: int) -> None:
        """Treat points that scatter too much for a level ("unsettled") as a level with more noise from now on."""
        first = int(self.unsettled[row])
        self.unsettled[row] = -1
        self.shifts[row][-1] = replace(self.shifts[row][-1], unsettled=False)
        points = self.values[row, first : now + 1]
        self.noise.restart(row, points[np.isfinite(points)], int(self._seen[row]))
        self._restart_at(row, first, now, median(points))

    def _switched(self, row: int, index: int, now: int) -> int | None:
        """Return how many of the newest reported changes are switches between modes, like the step at ``index``.

        ``None`` if the step at ``index`` is not such a switch.
        """
        series = self.values[row, : now + 1]
        measured = np.isfinite(series)
        places = np.cumsum(measured) - measured
        edges = [int(places[shift.index]) for shift in self.reported(row) if shift.index < index]
        return explained(series[measured], edges, int(places[index]))

    def _slopes(self, row: int, index: int, now: int) -> bool:
        """Return whether a slope explains the points since the last reported change better than a step at ``index``."""
        begin = max([shift.index for shift in self.reported(row) if shift.index < index] + [now - LOOK_BACK, 0])
        before, after = self.values[row, begin:index], self.values[row, index : now + 1]
        before, after = before[np.isfinite(before)], after[np.isfinite(after)]
        noise = float(np.sqrt(self.noise.variance[row]))
        return slopes(np.concatenate([before, after]), before.size, noise)

    def _withdraw_switches(self, row: int, now: int, count: int) -> None:
        """Withdraw the newest ``count`` reported changes, because they were switches between modes."""
        reported = [place for place, shift in enumerate(self.shifts[row]) if not shift.silent]
        for place in reported[-count:]:
            shift = self.shifts[row][place]
            self._revise(row, shift, now, None, "the series switches between a few levels")
            self.shifts[row][place] = replace(shift, silent="modes")

    def _withdraw(self, row: int, now: int) -> None:
        shift = self.shifts[row].pop()
        if not shift.silent:
            self._revise(row, shift, now, None, "later points are at the level of before")
        if self.shifts[row] and self.shifts[row][-1].unsettled:
            self.unsettled[row] = self.shifts[row][-1].index
        run_lengths = self.run_lengths
        self.depth[row] -= 1
        run_lengths.drop(row, run_lengths.depth[row] > self.depth[row] + 1)
        self._choose_best(np.array([row]))
        self._look[row] = np.iinfo(np.int64).max

    def _relocate(self, rows: Ints, index: Ints) -> None:
        """Compute the positions of the last changes again, and test again whether a slope explains unreported steps.

        The next time comes when the number of commits since the report of the change has grown by half. The test for a
        slope runs at each of the first ``SLOPE_CHECKS`` commits after an unreported step, and the step is reported as
        soon as no slope explains it.
        """
        run_lengths = self.run_lengths
        places = run_lengths.locate(rows, run_lengths.depth[rows] == self.depth[rows, None])
        for row, now, index_now, *ends in zip(*(column.tolist() for column in (rows, index, *places)), strict=True):
            shift = self.shifts[row][-1]
            age = now - shift.reported_at
            self._look[row] = now + 1 + (0 if shift.silent == "slope" and age < SLOPE_CHECKS else age // 2)
            if index_now < shift.index - FAR:
                # A place this far away belongs to another change, which was never likely enough for a report. So the
                # reported change does not exist.
                run_lengths.depth[row] -= (run_lengths.depth[row] == self.depth[row]) & (
                    run_lengths.start[row] < shift.index - FAR
                )
                self._withdraw(row, now)
                continue
            index_now, *ends = after_last(self.shifts[row][:-1], self.values[row], index_now, *ends)
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

    def reported(self, row: int) -> Iterator[Shift]:
        """Yield the reported changes of one series that are not withdrawn, oldest first."""
        return (shift for shift in self.shifts[row] if not shift.silent)
