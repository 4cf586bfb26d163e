"""Estimate how far the points of each series scatter.

The estimate uses innovations. An innovation is a point's distance from its forecast, scaled to the distance from a
certain forecast. Unlike deviations from a mean, innovations do not count a drift or a level as noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.run_lengths import Floats, Ints
from lockstep.detect.settings import Settings

#: Weight of the doubt about the estimate, in points. An estimate from few points is often too small, which causes false
#: alarms.
CAUTION = 8.0
#: Noise below a millionth is rounding. The floor keeps a series without any variation from being infinitely certain.
_FLOOR = 1e-6
#: Ratio of the variance without a step to the variance beside a step, above which the first points contain a step.
_STEPPED = 6.0
#: Number of points with which a level may have noise of its own, and the difference required, in standard errors of a
#: log variance.
_OWN, _CLEARLY = 10, 4.0
#: Number of points in the estimate.
_REMEMBERED = 128
#: Least and greatest first guess of the scatter between runs, in standard errors of one run. The 50 unchanged series
#: recorded on an H200 scatter by 0.4 to 4.6 standard errors, in the median by 1.6.
_BEYOND = 1.5, 4.0
#: Number of errors in the running mean of the usual error.
_USUAL = 50
#: The median and the third quartile of a squared standard normal.
MEDIAN_SQUARE, _THIRD_SQUARE = 0.4549, 1.3233


class NoiseEstimate:
    """The noise of many series.

    Attributes:
        variance: the variance of one point, log units squared [series]; NaN before ``start``.
        points: the number of points that the variance was estimated from [series]; 0 before ``start``.
    """

    def __init__(self, series: int, settings: Settings) -> None:
        self.variance: Floats = np.full(series, np.nan)
        self.points: Ints = np.zeros(series, dtype=np.int64)
        self._settings = settings
        self._due: Ints = np.zeros(series, dtype=np.int64)
        self._since: Ints = np.zeros(series, dtype=np.int64)
        #: The smallest difference between neighbours, and the last value. Both show how finely the numbers are rounded.
        self._quantum: Floats = np.full(series, np.inf)
        self._former: Floats = np.full(series, np.nan)
        self._innovations: Floats = np.full((series, 64), np.nan)
        self._usual: Floats = np.full(series, np.nan)
        self._errors: Ints = np.zeros(series, dtype=np.int64)

    def weigh(self, rows: Ints, errors: Floats) -> Floats:
        """Return each point's variance relative to the series' usual variance: half from its own error, half constant.

        Args:
            rows: the series.
            errors: standard errors of the points [rows]; NaN where unknown.
        """
        known = np.isfinite(errors)
        own = np.log(np.where(known, errors, np.nan))
        count = self._errors[rows]
        before = np.where(count > 0, self._usual[rows], own)
        # A running mean of the logarithm: one huge error must not make all others look small.
        usual = np.where(known, before + (own - before) / (np.minimum(count, _USUAL) + 1), before)
        self._usual[rows] = usual
        self._errors[rows] += known
        weights: Floats = np.where(known, 0.5 + 0.5 * np.exp(2 * (own - usual)), 1.0)
        return weights

    def see(self, rows: Ints, values: Floats) -> None:
        """Learn the rounding of each series from the next log value of each of ``rows``."""
        apart = np.abs(values - self._former[rows])
        self._quantum[rows] = np.where(apart > _FLOOR, np.minimum(self._quantum[rows], apart), self._quantum[rows])
        self._former[rows] = values

    def told(self, rows: Ints, seen: Ints) -> NDArray[np.bool_]:
        """Return a mask [rows] of the series whose ``seen`` points all had an error."""
        mask: NDArray[np.bool_] = self._errors[rows] == seen
        return mask

    def start(self, rows: Ints, points: Floats) -> None:
        """Guess the noise of ``rows`` from their first ``points`` [rows, points], log units."""
        count = points.shape[1]
        off = points - np.median(points, axis=1, keepdims=True)
        guess = spread(off * off * count / (count - 1), self._settings.gate)
        if count >= self._settings.burn_in:
            steady = self._beside_a_step(points)
            guess = np.where(guess > _STEPPED * steady, steady, guess)
        if count < self._settings.burn_in:
            told = np.exp(2 * self._usual[rows])
            guess = np.clip(guess, _BEYOND[0] ** 2 * told, _BEYOND[1] ** 2 * told)
        self.variance[rows] = np.maximum(guess, self._least(rows))
        self.points[rows] = count
        self._due[rows] = count + 4

    def _beside_a_step(self, points: Floats) -> Floats:
        """Return the variance [rows] about the two levels of the best step. A slope would keep a quarter of its
        variance.
        """
        count = points.shape[1]
        neighbours = spread(np.diff(points, axis=1) ** 2 / 2, self._settings.gate)
        found = np.full(len(points), np.inf)
        for split in range(2, count - 1):
            parts = points[:, :split], points[:, split:]
            off = np.hstack([part - np.median(part, axis=1, keepdims=True) for part in parts])
            found = np.minimum(found, spread(off * off * count / (count - 2), self._settings.gate))
        least: Floats = np.maximum(found, neighbours)
        return least

    def cautious(self, rows: Ints) -> Floats:
        """Return the variance for judging a point [rows]. It exceeds the estimate while the estimate rests on few
        points.
        """
        variance: Floats = self.variance[rows] * (1 + CAUTION / self.points[rows])
        return variance

    def note(self, rows: Ints, index: Ints, innovations: Floats) -> None:
        """Store the innovation of the point at ``index`` of each series, log units [rows]."""
        while self._innovations.shape[1] <= int(index.max()):
            self._innovations = np.hstack([self._innovations, np.full_like(self._innovations, np.nan)])
        self._innovations[rows, index] = innovations

    def forget(self, row: int, start: int, stop: int, seen: int) -> None:
        """Drop the innovations of these points of one series, because they refer to a level that had ended.

        A new level begins at ``start``.
        """
        self._innovations[row, start:stop] = np.nan
        self._due[row], self._since[row] = seen, start

    def restart(self, row: int, points: Floats, seen: int) -> None:
        """Guess the noise of one series again from the ``points`` (log units) of a level with noise of its own."""
        self._innovations[row] = np.nan
        off = points - np.median(points)
        own = float(spread(off[None] ** 2 * points.size / (points.size - 1), self._settings.gate)[0])
        self.variance[row] = max(own, float(self.variance[row]))
        self._since[row] = 0
        self.points[row] = points.size
        self._due[row] = seen + 4

    def refresh(self, rows: Ints, length: Ints, seen: Ints) -> None:
        """Estimate the noise again for series with a tenth more points.

        Args:
            rows: the series.
            length: number of commits of each series [rows].
            seen: number of measured commits of each series [rows].
        """
        due = seen >= self._due[rows]
        if not due.any():
            return
        rows, length, seen = rows[due], length[due], seen[due]
        index = length[:, None] - np.arange(1, _REMEMBERED + 1)
        recent = np.where(index >= 0, self._innovations[rows[:, None], np.maximum(index, 0)], np.nan)
        count = np.isfinite(recent).sum(axis=1)
        enough = count >= self._settings.burn_in
        squares = recent[enough] ** 2
        found = spread(squares, self._settings.gate)
        # Once the points of a level clearly show noise of its own, earlier points are forgotten.
        present = np.isfinite(squares) & (index[enough] >= self._since[rows[enough], None])
        own = present.sum(axis=1)
        fresh = np.flatnonzero((own >= _OWN) & (self._since[rows[enough]] > 0))
        if fresh.size:
            alone = spread(np.where(present[fresh], squares[fresh], np.nan), self._settings.gate)
            apart = np.abs(np.log(np.maximum(alone, _FLOOR**2) / np.maximum(found[fresh], _FLOOR**2)))
            clear = apart > _CLEARLY * np.sqrt(2 / own[fresh])
            for row in rows[enough][fresh[clear]].tolist():
                self._innovations[row, : self._since[row]] = np.nan
            found[fresh[clear]] = alone[clear]
            count[np.flatnonzero(enough)[fresh[clear]]] = own[fresh[clear]]
        self.variance[rows[enough]] = np.maximum(found, self._least(rows[enough]))
        self.points[rows[enough]] = count[enough]
        self._due[rows] = seen + np.maximum(seen // 10, 2)

    def _least(self, rows: Ints) -> Floats:
        """Return the least possible variance [rows]: twice that of rounding, so that one quantum alone is not a
        step.
        """
        quantum = np.where(np.isfinite(self._quantum[rows]), self._quantum[rows], 0.0)
        return np.maximum(quantum * quantum / 6, _FLOOR**2)

    def residuals(self, row: int, index: int) -> Floats:
        """Return the innovations of one series before ``index``, in standard deviations, in commit order."""
        before = self._innovations[row, max(0, index - _REMEMBERED) : index]
        residuals: Floats = before[np.isfinite(before)] / np.sqrt(self.variance[row])
        return residuals


def spread(squares: Floats, gate: float) -> Floats:
    """Return the variance [rows] of squared deviations [rows, points] without points beyond the gate.

    Missing points are NaN; each row has at least one number. The estimate begins with the third quartile, so a quarter
    of the points may be outliers. The median would tolerate nearly half, which is more than needed, but with ten points
    it is half the true value in one of 14 cases.
    """
    ordered = np.sort(squares, axis=1)  # NaN last
    count = np.isfinite(squares).sum(axis=1)
    variance: Floats = ordered[np.arange(count.size), 3 * (count - 1) // 4] / _THIRD_SQUARE
    for _ in range(4):
        inside = squares < gate**2 * variance[:, None]
        variance = np.where(inside, squares, 0.0).sum(axis=1) / np.maximum(inside.sum(axis=1), 1)
    return variance
