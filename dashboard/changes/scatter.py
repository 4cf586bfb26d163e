"""How far the points of each series scatter, as far as is known by now.

The estimate comes from innovations: how far each point was from its forecast, scaled to what it would have been
had the forecast been sure. Unlike deviations from a mean, they do not take a drift or a level for noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dashboard.changes.doubts import autocorrelation
from dashboard.changes.hypotheses import Floats, Ints
from dashboard.changes.settings import Settings

#: Points' worth of doubt about the estimate: from few points it is often too small, and too small rings.
CAUTION = 8.0
#: Noise below a millionth is rounding; a series that never varies must not make it infinitely sure.
_FLOOR = 1e-6
#: Points that the estimate is made from.
_REMEMBERED = 128
#: Runs scatter by that many of the standard errors that one run tells of, as a first guess: at least and at most.
#: The 50 series of the recorded H200 that did not change scatter by 0.4 … 4.6 of them, in the median by 1.6.
_BEYOND = 1.5, 4.0
#: Errors that the usual one is a running mean of.
_USUAL = 50
#: The median of a squared standard normal.
_MEDIAN_SQUARE = 0.4549


class Scatter:
    """The noise of many series.

    Attributes:
        variance: of one point, log units squared [series]; NaN before ``start``.
        points: that it was estimated from [series]; 0 before ``start``.
    """

    def __init__(self, series: int, settings: Settings) -> None:
        self.variance: Floats = np.full(series, np.nan)
        self.points: Ints = np.zeros(series, dtype=np.int64)
        self._settings = settings
        self._due: Ints = np.zeros(series, dtype=np.int64)
        self._innovations: Floats = np.full((series, 64), np.nan)
        self._usual: Floats = np.full(series, np.nan)
        self._errors: Ints = np.zeros(series, dtype=np.int64)

    def weigh(self, rows: Ints, errors: Floats) -> Floats:
        """Variance of each point relative to the series' usual one: half of it the point's own, half what all share.

        Args:
            rows: the series.
            errors: standard errors of their points [rows], NaN where unknown.
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

    def told(self, rows: Ints, seen: Ints) -> NDArray[np.bool_]:
        """Mask [rows] of the series of which all ``seen`` points had an error."""
        mask: NDArray[np.bool_] = self._errors[rows] == seen
        return mask

    def start(self, rows: Ints, points: Floats) -> None:
        """Guess the noise of ``rows`` from their first ``points`` [rows, points], log units."""
        count = points.shape[1]
        off = points - np.median(points, axis=1, keepdims=True)
        guess = spread(off * off * count / (count - 1), self._settings.gate)
        if count < self._settings.burn_in:
            told = np.exp(2 * self._usual[rows])
            guess = np.clip(guess, _BEYOND[0] ** 2 * told, _BEYOND[1] ** 2 * told)
        self.variance[rows] = np.maximum(guess, _FLOOR**2)
        self.points[rows] = count
        self._due[rows] = count + 4

    def cautious(self, rows: Ints) -> Floats:
        """The variance that a point is judged by [rows]: larger than the estimate while that stands on few points."""
        variance: Floats = self.variance[rows] * (1 + CAUTION / self.points[rows])
        return variance

    def note(self, rows: Ints, index: Ints, innovations: Floats) -> None:
        """Remember the innovation of the point at ``index`` of each series, log units [rows]."""
        while self._innovations.shape[1] <= int(index.max()):
            self._innovations = np.hstack([self._innovations, np.full_like(self._innovations, np.nan)])
        self._innovations[rows, index] = innovations

    def forget(self, row: int, start: int, stop: int, seen: int) -> None:
        """Leave these points of one series out: told from a level that had ended, they say nothing about the noise."""
        self._innovations[row, start:stop] = np.nan
        self._due[row] = seen

    def refresh(self, rows: Ints, length: Ints, seen: Ints) -> None:
        """Estimate the noise anew where there is a tenth more to know.

        Args:
            rows: the series.
            length: their commits [rows]. seen: those of them that were measured [rows].
        """
        due = seen >= self._due[rows]
        if not due.any():
            return
        rows, length, seen = rows[due], length[due], seen[due]
        index = length[:, None] - np.arange(1, _REMEMBERED + 1)
        recent = np.where(index >= 0, self._innovations[rows[:, None], np.maximum(index, 0)], np.nan)
        count = np.isfinite(recent).sum(axis=1)
        enough = count >= self._settings.burn_in
        self.variance[rows[enough]] = np.maximum(spread(recent[enough] ** 2, self._settings.gate), _FLOOR**2)
        self.points[rows[enough]] = count[enough]
        self._due[rows] = seen + np.maximum(seen // 10, 2)

    def linked(self, row: int, index: int) -> float:
        """How many times less the points before ``index`` say than independent ones: forecasts miss in a row."""
        before = self._innovations[row, max(0, index - _REMEMBERED) : index]
        limit = self._settings.gate * float(np.sqrt(self.variance[row]))
        linked = autocorrelation(np.clip(before[np.isfinite(before)], -limit, limit))
        return (1 + linked) / (1 - linked)


def spread(squares: Floats, gate: float) -> Floats:
    """Variance [rows] from squared deviations [rows, points], what lies beyond the gate left out.

    Missing points are NaN; each row has at least one that is not.
    """
    ordered = np.sort(squares, axis=1)  # NaN last
    count = np.isfinite(squares).sum(axis=1)
    variance: Floats = ordered[np.arange(count.size), (count - 1) // 2] / _MEDIAN_SQUARE
    for _ in range(4):
        inside = squares < gate**2 * variance[:, None]
        variance = np.where(inside, squares, 0.0).sum(axis=1) / np.maximum(inside.sum(axis=1), 1)
    return variance
