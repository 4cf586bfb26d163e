"""Report the changes of many series, point by point. A report after ``n`` points depends on these ``n`` points alone.

The points are analysed in blocks. A block's noise and slope come from the points before it, at most ``WINDOW`` of them.
Within the block, a change is reported as soon as one of two rules holds: the penalised levels need it
(``forward_costs``), or it is plainly there (``plain_steps``). Both are computed again from the points when more points
come, so the state is the points, how far each lay from its forecast, and the reported changes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.constants import (
    BESIDE,
    BURN_IN,
    EARLY,
    EARLY_PLAIN_GAP,
    EARLY_PLAIN_POINTS,
    EVIDENCE,
    GATE,
    NOVELTY,
    PATIENCE,
    PLAIN_GAP,
    PLAIN_POINTS,
    RUN,
    WINDOW,
)
from lockstep.detect.findings import Trend
from lockstep.detect.forward_costs import forward_costs
from lockstep.detect.noise import FLOOR, noise_of, resolution_of
from lockstep.detect.plain_steps import plain_steps
from lockstep.detect.series_state import NEEDED, SeriesState, Shift

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Lengths at which the noise of a series is estimated again: often at first, then every ``WINDOW`` points.
_FIRST_BLOCKS = (3, 4, 5, 7, 10, 14, 20, 28, 40, 56, 80, WINDOW)
#: Numbers of points at the newest level at which its beginning is located again.
_LOOK_AGAIN = (5, 8, 12, 20, 32, 48, 64, 96)
#: A change is located within this many points of where it was reported.
_NEAR = 10
#: A change is located where the probability within this many points is greatest.
_NEARBY = 2
#: Assumed share of the changes whose first point lies at neither level: about a tenth in the histories of other
#: projects, taken twice to be safe.
_PARTIAL = 0.2
#: Number of points beside a change whose scatter counts.
_BESIDE = 30
#: The points beside a change are noisier than the series from this ratio of variances on. Their variance is then taken
#: with caution: that of three points often comes out too small.
_NOISIER, _FEW = 2.0, 4.0
#: The rules of a plain step: points on each side, and size of the gap. The second holds among the first points alone.
_PLAIN = (PLAIN_POINTS, PLAIN_GAP), (EARLY_PLAIN_POINTS, EARLY_PLAIN_GAP)
#: Stands for the size of the numbers in a series of zeros.
_SMALLEST_NUMBER = 1e-100


class Detector:
    """The points of several series, and their reported changes. Memory grows with the longest series.

    Args:
        trends: the series; each may be empty.
        states: what an earlier detector knew after the first points of each series; ``None`` for nothing. Only the
            later points are analysed.

    Attributes:
        ratio: whether the changes of each series are ratios, see ``Trend.ratio``.
        count: number of points of each series.
        values: the points [series, points]: logarithms for a ratio, otherwise the numbers.
        errors, resolution: standard error and rounding unit of each point [series, points].
        squares: squared distance of each point from its forecast when it was new [series, points].
        variance, slope: the newest noise of each series, see ``NoiseOfPoints``.
        shifts: the reported changes, by series.
    """

    def __init__(self, trends: Sequence[Trend], states: Sequence[SeriesState | None] = ()) -> None:
        errors = [np.full(len(trend), np.nan) if trend.errors is None else trend.errors for trend in trends]
        self.ratio: Mask = np.array([trend.ratio for trend in trends], dtype=np.bool_)
        self.count: Ints = np.array([len(trend) for trend in trends], dtype=np.int64)
        shape = len(trends), int(self.count.max(initial=1))
        self.values: Floats = np.full(shape, np.nan)
        self.errors: Floats = np.full(shape, np.nan)
        self.resolution: Floats = np.full(shape, np.nan)
        self.squares: Floats = np.full(shape, np.nan)
        self.done: Ints = np.zeros(len(trends), dtype=np.int64)
        self.variance: Floats = np.full(len(trends), np.nan)
        self.slope: Floats = np.zeros(len(trends))
        self.shifts: list[list[Shift]] = [[] for _ in trends]
        for row, state in enumerate(states):
            if state is not None:
                self._restore(row, state)
        if trends:
            rows, places = np.nonzero(np.arange(shape[1]) < self.count[:, None])
            self.errors[rows, places] = np.concatenate(errors)
            self._put(rows, places, np.concatenate([trend.values for trend in trends]))
        self._report(np.flatnonzero(self.done < self.count))

    def state(self, row: int) -> SeriesState:
        """Return what the detector knows of a series besides its points."""
        done = int(self.done[row])
        squares = self.squares[row, max(done - NEEDED, 0) : done].copy()
        return SeriesState(done, float(self.variance[row]), float(self.slope[row]), list(self.shifts[row]), squares)

    def _restore(self, row: int, state: SeriesState) -> None:
        self.done[row], self.variance[row], self.slope[row] = state.done, state.variance, state.slope
        self.shifts[row] = list(state.shifts)
        self.squares[row, state.done - state.squares.size : state.done] = state.squares

    def _put(self, rows: Ints, places: Ints, values: Floats) -> None:
        ratio = self.ratio[rows]
        # Earlier points are in no block of new points.
        needed = places >= self.done[rows] - NEEDED
        unit = np.full(values.shape, np.nan)
        unit[needed] = resolution_of(values[needed])
        with np.errstate(divide="ignore", invalid="ignore"):
            self.values[rows, places] = np.where(ratio, np.log(np.abs(values)), values)
            self.resolution[rows, places] = np.where(ratio, unit / np.abs(values), unit)

    def _report(self, rows: Ints) -> None:
        longest = int(self.count[rows].max(initial=0))
        edges = [*_FIRST_BLOCKS, *range(2 * WINDOW, longest + WINDOW, WINDOW)]
        for start, stop in itertools.pairwise(edges):
            chosen = rows[(self.count[rows] > start) & (self.done[rows] < stop)]
            if chosen.size:
                _Block(self, chosen, start, min(stop, int(self.count[chosen].max()))).report()
        self.done[rows] = self.count[rows]


class _Block:
    """Some series up to the point ``stop``. The points from ``start`` on are new. Positions count from ``first``."""

    def __init__(self, detector: Detector, rows: Ints, start: int, stop: int) -> None:
        self.detector, self.rows = detector, rows
        self.first = max(0, start - WINDOW)
        self.known = start - self.first
        window = slice(self.first, stop)
        values, resolution = detector.values[rows, window], detector.resolution[rows, window]
        size = np.where(detector.ratio[rows], 1.0, np.abs(values[:, : self.known]).max(axis=1))
        # Any number is a change after zeros alone.
        size = np.where(size > 0, size, _SMALLEST_NUMBER)
        # A plain step may be one rounding unit.
        self.least = np.maximum(resolution[:, : self.known].min(axis=1) / 2, FLOOR * size)
        resolution = np.where(np.isfinite(resolution), resolution, 0.0)
        errors, levels = detector.errors[rows, window], self._levels(values.shape)
        # The first block begins behind points without a forecast.
        squares = detector.squares[rows, max(self.first, _FIRST_BLOCKS[0]) : start]
        noise = noise_of(values, errors, squares, resolution, FLOOR * size, levels, self.known)
        self.y = values - noise.slope[:, None] * np.arange(values.shape[1])
        self.variance, self.outlier = noise.variance, noise.outlier
        detector.variance[rows], detector.slope[rows] = noise.usual, noise.slope
        self.begin = np.array([max(0, self._last(row) - self.first) for row in rows.tolist()])
        #: For each point, where the level begins that the cheapest hypothesis sees there.
        self.begins = np.zeros(self.y.shape, dtype=np.int64)

    def _last(self, row: int) -> int:
        shifts = self.detector.shifts[row]
        return shifts[-1].index if shifts else 0

    def _levels(self, shape: tuple[int, ...]) -> Ints:
        """Return the number of reported changes before each point [series, points]."""
        steps = np.zeros(shape, dtype=np.int64)
        for place, row in enumerate(self.rows.tolist()):
            for shift in self.detector.shifts[row]:
                if self.first < shift.index < self.first + shape[1]:
                    steps[place, shift.index - self.first] = 1
        return np.cumsum(steps, axis=1)

    def report(self) -> None:
        """Report the changes at each new point, in order."""
        done, count = self.detector.done[self.rows] - self.first, self.detector.count[self.rows] - self.first
        for point, now in enumerate(forward_costs(self.y, self.variance, self.begin, self.outlier)):
            self.begins[:, point] = now.best
            if point < self.known:
                continue
            new = (done <= point) & (point < count)
            self.detector.squares[self.rows[new], self.first + point] = now.squares[new]
            early = self.first + point + 1 - EARLY_PLAIN_POINTS < BURN_IN
            for points, times in _PLAIN if early else _PLAIN[:1]:
                # With fewer points, equal roundings are common.
                least = self.least if points == PLAIN_POINTS else self.least * times
                plain = plain_steps(self.y[:, : point + 1], least, points, times)
                for place in np.flatnonzero(new & plain).tolist():
                    self._add_plain(place, point, points)
            # The cost of a level that began no later than the newest change.
            without = np.where(now.start <= self.begin[:, None], now.cost, np.inf).min(axis=1)
            for place in np.flatnonzero(new & (now.best > self.begin)).tolist():
                self._find(place, point, now.cost[place], now.start[place], float(without[place]))
            ages = point + 1 - self.begin
            for place in np.flatnonzero(new & (self.begin > 0) & np.isin(ages, _LOOK_AGAIN)).tolist():
                self._look_again(place, point)

    def _find(self, place: int, point: int, cost: Floats, start: Ints, without: float) -> None:
        """Report a change of the series at ``place`` if the costs of the hypotheses show it."""
        begin = int(self.begin[place])
        among = np.where((start >= begin + RUN) & (start <= point - RUN + 1), cost, np.inf)
        least = among.min()
        if not math.isfinite(least) or least > cost.min() + 1:
            return
        at = int(start[among.argmin()])
        # Hypotheses that were given up cost at least as much as a new one.
        if not math.isfinite(without):
            without = float(cost.min()) + 2 * NOVELTY
        evidence = (without - least) / 2 + math.log(np.exp((least - among) / 2).sum())
        early = EARLY if self.first + at < BURN_IN else 0.0
        if evidence > threshold(at - begin, point - at + 1) + early and self._beside(place, begin, at, point):
            self._find_before(place, begin, at, point)
            at, earliest, latest = self._located(place, int(self.begin[place]), at, point)
            self._add(place, point, at, earliest, latest, plain=False)

    def _find_before(self, place: int, begin: int, at: int, point: int) -> None:
        """Report the changes on the way to the one at ``at``, whose levels were too short before."""
        ends = [at]
        while (start := int(self.begins[place, ends[0] - 1])) > begin + 1:
            ends.insert(0, start)
        for start, stop in itertools.pairwise(ends):
            if stop - start >= RUN and self._gain(place, begin, start, stop) > threshold(start - begin, stop - start):
                self._add(place, point, start, start, start, plain=False)
                begin = start

    def _gain(self, place: int, begin: int, at: int, stop: int) -> float:
        """Return the log odds of two levels, which meet at ``at``, against one level from ``begin`` to ``stop``."""
        y, variance = self.y[place], self.variance[place]

        def cost(first: int, last: int) -> float:
            squares = (y[first:last] - np.median(y[first:last])) ** 2 / variance[first:last]
            return float(np.minimum(squares, GATE**2).sum())

        return (cost(begin, stop) - cost(begin, at) - cost(at, stop)) / 2 - NOVELTY

    def _beside(self, place: int, begin: int, at: int, point: int) -> bool:
        """Return whether the points beside a change scatter little enough to show it."""
        y = self.y[place]
        before, after = y[max(begin, at - _BESIDE) : at], y[at : point + 1]
        usual = self.variance[place, point]
        variance = max(_scatter(before, usual), _scatter(after, usual))
        size = np.median(after) - np.median(before)
        return bool(size * size / (variance / before.size + variance / after.size) > 2 * BESIDE)

    def _located(self, place: int, begin: int, at: int, point: int) -> tuple[int, int, int]:
        """Return where the change near ``at`` lies, by the levels on its sides, and its 95 % range."""
        y, variance = self.y[place, : point + 1], self.variance[place, : point + 1]
        low, high = max(begin + 1, at - _NEAR), min(point - RUN + 1, at + _NEAR)
        levels = np.median(y[max(begin, at - _BESIDE) : at]), np.median(y[at : at + _BESIDE])
        old, new = (_bounded((y[low : high + 1] - level) ** 2 / variance[low : high + 1]) for level in levels)
        # The first point of a change may lie at neither level, anywhere between or beyond them.
        apart = np.abs(levels[1] - levels[0]) / np.sqrt(variance[low : high + 1])
        partial = -2 * np.log(_PARTIAL * math.sqrt(2 * math.pi) / (2 * np.maximum(apart, GATE)))
        # A change at ``low + i`` leaves the points before it at the old level.
        cost = np.append(0.0, np.cumsum(old - new)[:-1]) + np.minimum(partial - new, 0.0) * (apart > GATE)
        share = np.exp((cost.min() - cost) / 2)
        share /= share.sum()
        nearby = np.convolve(share, np.ones(2 * _NEARBY + 1))[_NEARBY : _NEARBY + share.size]
        # Of several places with almost the same probability nearby, take the one that is itself most likely.
        found = low + int(np.where(nearby > 0.95 * nearby.max(), share, -1.0).argmax())
        grown = np.cumsum(share)
        earliest, latest = low + int((grown >= 0.025).argmax()), low + int((grown >= 0.975).argmax())
        # Where the first points lie far from the new level, the point that reaches it may bring the rest.
        far = np.abs(y[found:] - levels[1]) > max(abs(levels[1] - levels[0]) / 4, GATE * math.sqrt(variance[found]))
        return found, min(earliest, found), max(latest, found + int(far.argmin()))

    def _add_plain(self, place: int, point: int, points: int) -> None:
        """Report a plain step, unless it is reported. A change close to it is moved to its place.

        Args:
            points: number of points on each side of the step.
        """
        row, at = int(self.rows[place]), point + 1 - points
        shifts = self.detector.shifts[row]
        index = self.first + at
        near = [shift for shift in shifts if abs(shift.index - index) < points]
        begin = max([0, *(shift.index - self.first for shift in shifts if shift.index <= index - points)])
        _, earliest, latest = self._located(place, begin, at, point)
        earliest, latest = min(earliest, at), max(latest, at)
        if not near:
            self._add(place, point, at, earliest, latest, plain=True)
            return
        nearest = min(near, key=lambda shift: abs(shift.index - index))
        if abs(nearest.index - index) <= 1:
            self._replace(place, nearest, replace(nearest, plain=True))
        elif not nearest.plain:
            ends = {"earliest": self.first + earliest, "latest": self.first + latest}
            self._replace(place, nearest, replace(nearest, index=index, plain=True, **ends))

    def _look_again(self, place: int, point: int) -> None:
        """Locate the newest change again."""
        shifts = self.detector.shifts[int(self.rows[place])]
        at = shifts[-1].index - self.first
        if shifts[-1].plain or at != self.begin[place]:
            return
        before = max([0, *(other.index - self.first for other in shifts[:-1])])
        if point - RUN + 1 <= before:
            return
        at, earliest, latest = (self.first + found for found in self._located(place, before, at, point))
        self._replace(place, shifts[-1], replace(shifts[-1], index=at, earliest=earliest, latest=latest))

    def _add(self, place: int, point: int, at: int, earliest: int, latest: int, *, plain: bool) -> None:
        row, first = int(self.rows[place]), self.first
        shifts = self.detector.shifts[row]
        # A change reported at the same point as others is identified by an earlier point: at most one names each point.
        taken = {shift.reported_at for shift in shifts}
        reported_at = next(now for now in range(first + point, -1, -1) if now not in taken)
        shifts.append(Shift(first + at, first + earliest, first + latest, reported_at, first + at, plain))
        shifts.sort(key=lambda shift: shift.index)
        self.begin[place] = max(0, shifts[-1].index - first)

    def _replace(self, place: int, old: Shift, new: Shift) -> None:
        """Replace a reported change by its corrected form."""
        row = int(self.rows[place])
        shifts = self.detector.shifts[row]
        shifts[shifts.index(old)] = new
        self.begin[place] = max(0, self._last(row) - self.first)


def threshold(before: float, after: float) -> float:
    """Return the log odds at which a change is reported that has these numbers of points on its sides."""
    harmonic = before * after / (before + after)
    return EVIDENCE - PATIENCE * math.log(harmonic / RUN)


def _bounded(squares: Floats) -> Floats:
    """Return squared distances, of which those of outliers grow slowly: a point at neither level is of the nearer."""
    return np.where(squares > GATE**2, GATE**2 + 2 * np.log(np.maximum(squares, 1.0) / GATE**2), squares)


def _scatter(points: Floats, usual: float) -> float:
    """Return the variance of points about their median, without a fifth of outliers, if it clearly exceeds ``usual``.

    Otherwise return ``usual``.
    """
    squares = np.sort((points - np.median(points)) ** 2)
    squares = squares[: squares.size - squares.size // 5]
    own = squares.sum() / max(squares.size - 1, 1)
    return float(own * (1 + _FEW / squares.size) if own > _NOISIER * usual else usual)
