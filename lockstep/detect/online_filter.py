"""Update hypotheses about the level of each series, commit by commit and for many series at once.

``OnlineFilter`` holds the state of the filter. ``lockstep.detect.detector`` decides which changes to report.
"""

from __future__ import annotations

import numpy as np

from lockstep.detect.noise_estimate import NoiseEstimate
from lockstep.detect.run_lengths import Floats, Ints, RunLengths, log_odds_former
from lockstep.detect.settings import BURN_IN, BURN_IN_KNOWN, GATE, NOVELTY, UNSETTLED, WIDTH

#: If a level begins within this many first points of a series, it is the first level. The points before it are odd.
_FIRST = 3


class OnlineFilter:
    """Follows the levels of many series. Its attributes are the state after the commits so far.

    Attributes:
        length: number of commits so far [series].
        values: log values [series, commits]; NaN where missing.
        weights: relative variances of the values [series, commits]; 1 where missing.
        noise: the noise of each series.
        run_lengths: hypotheses about the current level of each series.
        depth: number of changes, reported or not [series].
        unsettled: index of the first of the newest points that scatter too much to give a level [series]; -1 if they
            give a level.

    Args:
        series: the number of series.
    """

    def __init__(self, series: int) -> None:
        self.length: Ints = np.zeros(series, dtype=np.int64)
        self.values: Floats = np.full((series, 64), np.nan)
        self.weights: Floats = np.ones((series, 64))
        self.noise = NoiseEstimate(series)
        self.run_lengths = RunLengths.empty(series, WIDTH)
        self.depth: Ints = np.zeros(series, dtype=np.int64)
        self.unsettled: Ints = np.full(series, -1, dtype=np.int64)
        #: Index of the last point from which the noise was first guessed; -1 if standard errors made a guess
        #: unnecessary.
        self._guessed: Ints = np.full(series, -1, dtype=np.int64)
        self._seen: Ints = np.zeros(series, dtype=np.int64)
        self._last: Ints = np.zeros(series, dtype=np.int64)
        self._best: Ints = np.zeros(series, dtype=np.int64)
        #: How far the last point is from its forecast, and the index of the first odd point on the same side of the
        #: level.
        self._off: Floats = np.zeros(series)
        self._odd: Ints = np.full(series, -1, dtype=np.int64)
        #: How much less the newest points would cost if the level had been lost, and where it was lost; see
        #: ``LOST``.
        self._lost: Floats = np.zeros(series)
        self._lost_at: Ints = np.zeros(series, dtype=np.int64)

    def extend(self, values: Floats, errors: Floats | None = None, rows: Ints | None = None) -> None:
        """Add the values of one commit to the series, and decide what to report.

        Args:
            values: log values [rows]; NaN where the commit has no value.
            errors: standard errors of the log values [rows]; NaN where unknown.
            rows: the series that have a value at the commit, each once; all series if not given.
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
        self.noise.see(rows, values)
        if errors is not None:
            self.weights[rows, index] = self.noise.weigh(rows, errors)
        self._seen[rows] += 1
        points = self._seen[rows]
        going = self.noise.points[rows] > 0
        if going.all():
            self._take_in(rows, values, index)
        else:
            if going.any():
                self._take_in(rows[going], values[going], index[going])
            # Standard errors give a rough estimate of the noise, so fewer points are needed before the first report.
            required = np.where(self.noise.had_errors(rows, points), BURN_IN_KNOWN, BURN_IN)
            ready = ~going & (points >= required)
            for count in np.unique(points[ready]):
                self._start(rows[ready & (points == count)], int(count))
        self._last[rows] = index

    def judge(self, rows: Ints, index: Ints) -> None:
        """Decide what to report after the points at ``index`` of the series ``rows``. ``Detector`` overrides this."""
        raise NotImplementedError

    def _make_room(self, index: int) -> None:
        while self.values.shape[1] <= index:
            self.values = np.hstack([self.values, np.full_like(self.values, np.nan)])
            self.weights = np.hstack([self.weights, np.ones_like(self.weights)])

    def _take_in(self, rows: Ints, y: Floats, index: Ints) -> None:
        self._advance(rows, y, index)
        self.judge(rows, index)
        self.noise.refresh(rows, index + 1, self._seen[rows])

    def _start(self, rows: Ints, burn_in: int) -> None:
        """Guess the noise of new series from their first ``burn_in`` points, then process these points."""
        index = np.nonzero(np.isfinite(self.values[rows]))[1].reshape(rows.size, burn_in)
        points = self.values[rows[:, None], index]
        self.noise.start(rows, points)
        self._begin(rows, points[:, 0], index[:, 0])
        for column in range(1, burn_in):
            self._advance(rows, points[:, column], index[:, column], burnt=column)
            self._last[rows] = index[:, column]
        if burn_in >= BURN_IN:
            self._guessed[rows] = index[:, -1]
        self.judge(rows, index[:, -1])

    def _begin(self, rows: Ints, y: Floats, index: Ints) -> None:
        """Add the hypothesis that the first level of a series begins at ``index``, for each of the series ``rows``."""
        none = np.full(rows.size, -1, dtype=np.int64)
        self.run_lengths.begin(
            rows,
            y,
            self.weights[rows, index],
            index,
            cost=np.zeros(rows.size),
            before=none,
            depth=self.depth[rows],
            former=none,
            log_odds_former=np.full(rows.size, -np.inf),
            origin=none,
            keep=none,
        )
        self._choose_best(rows)
        self._last[rows], self._off[rows], self._odd[rows], self._lost[rows] = index, 0.0, -1, 0.0

    def _advance(self, rows: Ints, y: Floats, index: Ints, burnt: int = _FIRST + 1) -> None:
        """Update the hypotheses by one point of each of the series ``rows``.

        If the points are among the first of their series, ``burnt`` is the number of points before them.
        """
        run_lengths = self.run_lengths
        weights = self.weights[rows, index]
        best = self._best[rows]
        cost, start = run_lengths.cost[rows, best], run_lengths.start[rows, best]
        scale = self.noise.cautious(rows)
        selection = slice(None) if rows.size == self.length.size else rows
        deviations = run_lengths.advance(selection, y, weights, index - self._last[rows], scale)
        missed = deviations[np.arange(rows.size), best]
        self.noise.note(rows, index, missed * np.sqrt(scale))
        birth = cost + 2 * NOVELTY
        first = burnt < _FIRST
        run_lengths.begin(
            rows,
            y,
            weights,
            index,
            # If the first points are odd, the level begins after them.
            cost=np.minimum(birth, burnt * GATE**2) if first else birth,
            before=start * 0 - 1 if first else start,
            depth=self.depth[rows] + (not first),
            former=self._last[rows],
            log_odds_former=log_odds_former(self._off[rows], missed) if burnt > _FIRST else np.full(rows.size, -np.inf),
            origin=np.where(self._odd[rows] < self._last[rows], self._odd[rows], -1),
            keep=best,
        )
        self._note(rows, index, missed, first)
        self._choose_best(rows)

    def _note(self, rows: Ints, index: Ints, missed: Floats, first: bool) -> None:
        """Follow the consecutive outliers of each series, which show whether the series has left its level.

        ``missed`` is the distance of each point from its forecast in standard deviations [rows]; NaN without a
        forecast. If ``first``, the points are among the first of a series and never count as outliers.
        """
        outlier = (np.abs(missed) >= GATE) & (not first)
        goes_on = (self._odd[rows] >= 0) & (missed * self._off[rows] > 0)
        self._odd[rows] = np.where(outlier, np.where(goes_on, self._odd[rows], index), -1)
        self._off[rows] = missed
        lost = self._lost[rows]
        self._lost_at[rows] = np.where(outlier & (lost == 0), index, self._lost_at[rows])
        spared = np.where(outlier, GATE**2, missed * missed) - UNSETTLED
        self._lost[rows] = np.where(outlier | (lost > 0), np.maximum(lost + spared, 0.0), 0.0)

    def _choose_best(self, rows: Ints) -> None:
        """Choose for each series the hypothesis of the least cost among those with as many changes as are known."""
        run_lengths = self.run_lengths
        held = np.where(run_lengths.depth[rows] == self.depth[rows][:, None], run_lengths.cost[rows], np.inf)
        self._best[rows] = held.argmin(axis=1)

    def _restart_at(self, row: int, first: int, now: int, level: float) -> None:
        """Process the points ``first`` to ``now`` of one series again, with a level that begins at ``first``.

        Args:
            row: the series.
            first: index of the level's first point.
            now: index of the last point.
            level: log value of the level, as uncertain as a single point; NaN if the points do not give a level.
        """
        rows = np.array([row])
        self.run_lengths.drop(row, np.ones(WIDTH, dtype=bool))
        self._begin(rows, np.array([level]), rows * 0 + first)
        for index in range(first + 1, now + 1):
            if np.isfinite(self.values[row, index]):
                self._advance(rows, self.values[rows, index], rows * 0 + index)
                self._last[row] = index
