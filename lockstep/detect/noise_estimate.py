"""Estimate how far the points of each series scatter.

The estimate uses innovations. An innovation is the distance of a point from the forecast made before it, scaled as if
the forecast were certain. Unlike deviations from a mean, innovations do not count a drift or a new level as noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.run_lengths import Floats, Ints
from lockstep.detect.settings import BURN_IN, GATE

#: How cautiously an estimate from few points is used, as a number of points. Such an estimate is often too small, which
#: causes false alarms.
CAUTION = 8.0
#: Minimum noise: smaller noise is rounding. Without a minimum, a series that never varies would be infinitely certain.
_FLOOR = 1e-6
#: The first points contain a step if their variance is this many times larger without a step than beside the best step.
_STEPPED = 6.0
#: Minimum number of points for a level to have noise of its own, and how far this noise must differ from the series'
#: noise, in standard errors of a log variance.
_OWN, _CLEARLY = 10, 4.0
#: Maximum number of points from which the noise is estimated.
_REMEMBERED = 128
#: Range of the first guess of the scatter between runs, in standard errors of one run. The 50 unchanged series recorded
#: on an H200 scatter by 0.4 to 4.6 standard errors, with a median of 1.6.
_BEYOND = 1.5, 4.0
#: Number of points over which the usual standard error of a series is averaged.
_USUAL = 50
#: The median and the third quartile of a squared standard normal.
MEDIAN_SQUARE, _THIRD_SQUARE = 0.4549, 1.3233


class NoiseEstimate:
    """Estimates the noise of many series from their innovations, and updates the estimates at each commit.

    Attributes:
        variance: the variance of one point, log units squared [series]; NaN before ``start``.
        points: the number of points that the variance was estimated from [series]; 0 before ``start``.
    """

    def __init__(self, series: int) -> None:
        self.variance: Floats = np.full(series, np.nan)
        self.points: Ints = np.zeros(series, dtype=np.int64)
        self._due: Ints = np.zeros(series, dtype=np.int64)
        self._since: Ints = np.zeros(series, dtype=np.int64)
        #: The smallest difference between neighbours so far, which shows how finely the numbers are rounded. It is
        #: found by comparison with the last value.
        self._quantum: Floats = np.full(series, np.inf)
        self._former: Floats = np.full(series, np.nan)
        self._innovations: Floats = np.full((series, 64), np.nan)
        self._usual: Floats = np.full(series, np.nan)
        self._errors: Ints = np.zeros(series, dtype=np.int64)

    def weigh(self, rows: Ints, errors: Floats) -> Floats:
        """Return the variance of each point relative to the usual variance of its series.

        Half of the variance follows the point's own standard error, and the other half is constant.

        Args:
            rows: the series.
            errors: standard errors of the points [rows]; NaN where unknown.
        """
        known = np.isfinite(errors)
        log_errors = np.log(np.where(known, errors, np.nan))
        count = self._errors[rows]
        before = np.where(count > 0, self._usual[rows], log_errors)
        # Average the logarithm, so that one huge error does not make all others look small.
        usual = np.where(known, before + (log_errors - before) / (np.minimum(count, _USUAL) + 1), before)
        self._usual[rows] = usual
        self._errors[rows] += known
        weights: Floats = np.where(known, 0.5 + 0.5 * np.exp(2 * (log_errors - usual)), 1.0)
        return weights

    def see(self, rows: Ints, values: Floats) -> None:
        """Update how finely the values of the series ``rows`` are rounded, by their next log values."""
        difference = np.abs(values - self._former[rows])
        self._quantum[rows] = np.where(
            difference > _FLOOR, np.minimum(self._quantum[rows], difference), self._quantum[rows]
        )
        self._former[rows] = values

    def had_errors(self, rows: Ints, measured: Ints) -> NDArray[np.bool_]:
        """Return a mask [rows] of the series with a standard error at each of their points, ``measured`` in number."""
        mask: NDArray[np.bool_] = self._errors[rows] == measured
        return mask

    def start(self, rows: Ints, points: Floats) -> None:
        """Guess the noise of the series ``rows`` from their first ``points`` [rows, points], log units."""
        count = points.shape[1]
        deviations = points - np.median(points, axis=1, keepdims=True)
        guess = spread(deviations * deviations * count / (count - 1))
        if count >= BURN_IN:
            steady = self._variance_beside_a_step(points)
            guess = np.where(guess > _STEPPED * steady, steady, guess)
        if count < BURN_IN:
            error_variance = np.exp(2 * self._usual[rows])
            guess = np.clip(guess, _BEYOND[0] ** 2 * error_variance, _BEYOND[1] ** 2 * error_variance)
        self.variance[rows] = np.maximum(guess, self._least(rows))
        self.points[rows] = count
        self._due[rows] = count + 4

    def _variance_beside_a_step(self, points: Floats) -> Floats:
        """Return the variance [rows] of points about the two levels of the best step through them.

        A quarter of the variance that a slope causes remains.
        """
        count = points.shape[1]
        neighbours = spread(np.diff(points, axis=1) ** 2 / 2)
        variance = np.full(len(points), np.inf)
        for split in range(2, count - 1):
            parts = points[:, :split], points[:, split:]
            deviations = np.hstack([part - np.median(part, axis=1, keepdims=True) for part in parts])
            variance = np.minimum(variance, spread(deviations * deviations * count / (count - 2)))
        least: Floats = np.maximum(variance, neighbours)
        return least

    def cautious(self, rows: Ints) -> Floats:
        """Return the noise variance by which points are judged as outliers or not [rows].

        It is larger than the estimated variance as long as the estimate comes from few points.
        """
        variance: Floats = self.variance[rows] * (1 + CAUTION / self.points[rows])
        return variance

    def note(self, rows: Ints, index: Ints, innovations: Floats) -> None:
        """Store the innovation of the point at ``index`` of each series, log units [rows]."""
        while self._innovations.shape[1] <= int(index.max()):
            self._innovations = np.hstack([self._innovations, np.full_like(self._innovations, np.nan)])
        self._innovations[rows, index] = innovations

    def forget(self, row: int, start: int, stop: int, measured: int) -> None:
        """Remove the innovations of the points ``start`` to ``stop`` of one series.

        They refer to the forecasts of a level that had ended, because a new level began at ``start``.
        """
        self._innovations[row, start:stop] = np.nan
        self._due[row], self._since[row] = measured, start

    def restart(self, row: int, points: Floats, measured: int) -> None:
        """Estimate the noise of one series anew from the ``points`` (log units) of a level with noise of its own."""
        self._innovations[row] = np.nan
        deviations = points - np.median(points)
        variance = float(spread(deviations[None] ** 2 * points.size / (points.size - 1))[0])
        self.variance[row] = max(variance, float(self.variance[row]))
        self._since[row] = 0
        self.points[row] = points.size
        self._due[row] = measured + 4

    def refresh(self, rows: Ints, length: Ints, measured: Ints) -> None:
        """Estimate the noise again for those series that have a tenth more points than at the last estimate.

        Args:
            rows: the series.
            length: number of commits of each series [rows].
            measured: number of measured commits of each series [rows].
        """
        due = measured >= self._due[rows]
        if not due.any():
            return
        rows, length, measured = rows[due], length[due], measured[due]
        index = length[:, None] - np.arange(1, _REMEMBERED + 1)
        recent = np.where(index >= 0, self._innovations[rows[:, None], np.maximum(index, 0)], np.nan)
        count = np.isfinite(recent).sum(axis=1)
        estimable = count >= BURN_IN
        squares = recent[estimable] ** 2
        variance = spread(squares)
        # Forget the points before a level whose points clearly have noise of its own.
        present = np.isfinite(squares) & (index[estimable] >= self._since[rows[estimable], None])
        own_count = present.sum(axis=1)
        fresh = np.flatnonzero((own_count >= _OWN) & (self._since[rows[estimable]] > 0))
        if fresh.size:
            alone = spread(np.where(present[fresh], squares[fresh], np.nan))
            log_ratio = np.abs(np.log(np.maximum(alone, _FLOOR**2) / np.maximum(variance[fresh], _FLOOR**2)))
            clear = log_ratio > _CLEARLY * np.sqrt(2 / own_count[fresh])
            for row in rows[estimable][fresh[clear]].tolist():
                self._innovations[row, : self._since[row]] = np.nan
            variance[fresh[clear]] = alone[clear]
            count[np.flatnonzero(estimable)[fresh[clear]]] = own_count[fresh[clear]]
        self.variance[rows[estimable]] = np.maximum(variance, self._least(rows[estimable]))
        self.points[rows[estimable]] = count[estimable]
        self._due[rows] = measured + np.maximum(measured // 10, 2)

    def _least(self, rows: Ints) -> Floats:
        """Return the minimum variance [rows]: twice the variance of rounding.

        So a difference of one rounding unit is not a step.
        """
        quantum = np.where(np.isfinite(self._quantum[rows]), self._quantum[rows], 0.0)
        return np.maximum(quantum * quantum / 6, _FLOOR**2)

    def residuals(self, row: int, index: int) -> Floats:
        """Return the innovations of one series before ``index``, in standard deviations, in commit order."""
        before = self._innovations[row, max(0, index - _REMEMBERED) : index]
        residuals: Floats = before[np.isfinite(before)] / np.sqrt(self.variance[row])
        return residuals


def spread(squares: Floats) -> Floats:
    """Return the variance [rows] from squared deviations [rows, points], without points beyond ``GATE``.

    Missing points are NaN, and each row has at least one number. The first estimate is the third quartile, so up to a
    quarter of the points may be outliers. ``GATE`` is in standard deviations.
    """
    ordered = np.sort(squares, axis=1)  # NaN last
    count = np.isfinite(squares).sum(axis=1)
    variance: Floats = ordered[np.arange(count.size), 3 * (count - 1) // 4] / _THIRD_SQUARE
    for _ in range(4):
        inside = squares < GATE**2 * variance[:, None]
        variance = np.where(inside, squares, 0.0).sum(axis=1) / np.maximum(inside.sum(axis=1), 1)
    return variance
