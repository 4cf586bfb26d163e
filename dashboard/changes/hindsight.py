"""What a series shows once it is seen whole: steps too small to ring for, and where those that rang lie best.

Each stretch between two edges is asked whether it holds one step more. A Kalman filter as in ``hypotheses`` goes over
it from either end; the points before a place by the one, and those from it on by the other, give the likelihood of a
step there. Here a point is odd with a probability, not yes or no. Then each edge is judged anew between its neighbours,
until nothing moves: binary segmentation (Vostrikova 1981) that begins with what rang and can take back what it did.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dashboard.changes.doubts import slopes
from dashboard.changes.hypotheses import NEARBY, Floats, Ints
from dashboard.changes.modes import modes
from dashboard.changes.replay import LOOK_BACK, ODDS_OF_MANY, Replay
from dashboard.changes.settings import Settings

#: Nearly all series stand still after two rounds.
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Sight:
    """A step that the whole series shows.

    Attributes:
        index: first point at the new level.
        earliest, latest: the points between which ``index`` lies with 95 % probability.
        share: probability that there is a step, within two commits of ``index``.
    """

    index: int
    earliest: int
    latest: int
    share: float


#: The edges of each series, and the step seen there; ``None`` until judged.
_Edges = dict[int, dict[int, Sight | None]]
_Stretch = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Points:
    """The measured points of some stretches: all [stretches, points], filled up with the first one behind the last.

    ``index``: where in the series. ``count`` [stretches]: how many there are. ``variance`` [stretches]: of one.
    """

    rows: Ints
    index: Ints
    values: Floats
    weights: Floats
    count: Ints
    variance: Floats

    @classmethod
    def of(cls, replay: Replay, rows: Ints, starts: Ints, stops: Ints) -> _Points:
        """Of the series ``rows``, ``start <= index < stop``."""
        grid = starts[:, None] + np.arange(int((stops - starts).max()))
        there = grid < stops[:, None]
        grid = np.where(there, grid, starts[:, None])
        there &= np.isfinite(replay.values[rows[:, None], grid])
        count = there.sum(axis=1)
        # Gaps are closed: the filter is told how far apart points lie.
        order = np.argsort(~there, axis=1, kind="stable")[:, : int(count.max())]
        index = np.take_along_axis(grid, order, axis=1)
        index = np.where(np.arange(index.shape[1]) < count[:, None], index, index[:, :1])
        values, weights = replay.values[rows[:, None], index], replay.weights[rows[:, None], index]
        return cls(rows, index, values, weights, count, replay.scatter.cautious(rows))

    def backwards(self) -> _Points:
        """The same, last point first."""
        back = np.maximum(self.count[:, None] - 1 - np.arange(self.index.shape[1]), 0)
        return _Points(
            self.rows,
            np.take_along_axis(self.index, back, axis=1),
            np.take_along_axis(self.values, back, axis=1),
            np.take_along_axis(self.weights, back, axis=1),
            self.count,
            self.variance,
        )


def look_back(replay: Replay, rows: Sequence[int]) -> list[list[Sight]]:
    """The steps that each of the series ``rows`` shows, oldest first.

    What the replay followed and kept silent about (a slope, modes) is an edge here as well, and is not told.
    """
    silent = {row: {shift.index for shift in replay.shifts[row] if shift.silent} for row in rows}
    sights: _Edges = {row: {shift.index: None for shift in replay.shifts[row]} for row in rows}
    moving = [row for row in rows if replay.scatter.points[row]]
    for _ in range(_ROUNDS):
        before = {row: set(sights[row]) for row in moving}
        _judge(replay, moving, sights, silent)
        _add(replay, moving, sights)
        moving = [row for row in moving if set(sights[row]) != before[row]]
    return [[sight for _, sight in sorted(sights[row].items()) if sight is not None] for row in rows]


def _judge(replay: Replay, rows: Sequence[int], sights: _Edges, silent: dict[int, set[int]]) -> None:
    """Look where each edge lies best between its neighbours, and drop those that nothing speaks for."""
    edges: list[int] = []
    between: list[_Stretch] = []
    for row in rows:
        known = [0, *sorted(sights[row]), int(replay.length[row])]
        for before, edge, after in zip(known, known[1:], known[2:], strict=False):
            if edge not in silent[row]:
                edges.append(edge)
                between.append((row, before, after))
    for edge, (row, _, _), sight in zip(edges, between, _search(replay, between, replay.settings.run), strict=True):
        del sights[row][edge]
        if sight is not None:
            sights[row][sight.index] = sight


def _add(replay: Replay, rows: Sequence[int], sights: _Edges) -> None:
    """Add the step that a stretch between edges holds, unless something else explains it."""
    stretches = [
        (row, start, stop)
        for row in rows
        for start, stop in itertools.pairwise([0, *sorted(sights[row]), int(replay.length[row])])
    ]
    for stretch, sight in zip(stretches, _search(replay, stretches, replay.settings.lasting), strict=True):
        if sight is not None and not _explained(replay, *stretch, sight.index):
            sights[stretch[0]][sight.index] = sight


def _explained(replay: Replay, row: int, start: int, stop: int, index: int) -> bool:
    """Whether the series switches between levels about ``index``, or a slope explains the stretch better."""
    series = replay.values[row, : replay.length[row]]
    around = series[max(0, index - LOOK_BACK) : index + LOOK_BACK]
    before, after = (part[np.isfinite(part)] for part in (series[start:index], series[index:stop]))
    noise = float(np.sqrt(replay.scatter.variance[row]))
    return modes(around[np.isfinite(around)]) is not None or slopes(
        np.concatenate([before, after]), before.size, noise, replay.settings.gate
    )


def _search(replay: Replay, stretches: Sequence[_Stretch], run: int) -> list[Sight | None]:
    """The step that each stretch (row, start, stop) holds, if that is likely enough, with ``run`` points a side."""
    found: list[Sight | None] = [None] * len(stretches)
    fit = [place for place, (_, start, stop) in enumerate(stretches) if stop - start >= 2 * run]
    if not fit:
        return found
    rows, starts, stops = np.array([stretches[place] for place in fit]).T
    points = _Points.of(replay, rows, starts, stops)
    before, after = _likelihoods(points, replay.settings)
    width = points.index.shape[1]
    left = np.arange(width)
    right = points.count[:, None] - left
    none = np.take_along_axis(before, points.count[:, None], axis=1)
    gain = before[:, :width] + np.take_along_axis(after, np.maximum(right, 0), axis=1) - none
    gain[(left < run) | (right < run)] = -np.inf
    alone = (starts == 0) & (stops == replay.length[rows])
    gain += np.where(alone, replay.settings.alone, 0.0)[:, None]
    best = gain.max(axis=1, initial=-np.inf)
    # A share needs all of it within ``2 · NEARBY + 1`` places.
    lowest = replay.settings.doubt + np.log(replay.settings.share / (2 * NEARBY + 1))
    for line in np.flatnonzero(best > lowest).tolist():
        row = int(rows[line])
        linked = replay.scatter.linked(row, int(replay.length[row]))
        if best[line] >= (replay.settings.evidence - ODDS_OF_MANY / 2) * linked:
            count = points.count[line]
            found[fit[line]] = _place(gain[line, :count], points.index[line, :count], replay.settings)
    return found


def _place(gain: Floats, index: Ints, settings: Settings) -> Sight | None:
    """The place with the most probability about it, if that is enough; see ``Settings.share``."""
    top = max(float(gain.max()), settings.doubt)
    steps, none = np.exp(gain - top), np.exp(settings.doubt - top)
    grown = np.concatenate([[0.0], np.cumsum(steps)])
    near = grown[np.searchsorted(index, index + NEARBY, "right")] - grown[np.searchsorted(index, index - NEARBY)]
    best = int(np.where(near > 0.95 * near.max(), steps, -1.0).argmax())
    share = float(near[best] / (steps.sum() + none))
    if share < settings.share:
        return None
    earliest, latest = (int(index[(grown[1:] >= end * grown[-1]).argmax()]) for end in (0.025, 0.975))
    return Sight(int(index[best]), earliest, latest, share)


def _likelihoods(points: _Points, settings: Settings) -> tuple[Floats, Floats]:
    """Log likelihood of the first 0, 1, … points about one level, and of the last [stretches, points + 1] each.

    The first point may itself be odd: then the level begins with the second.
    """
    stretches, width = points.index.shape
    back = points.backwards()
    index = np.vstack([points.index, back.index])
    values, weights = np.vstack([points.values, back.values]), np.vstack([points.weights, back.weights])
    gaps = np.abs(np.diff(index, axis=1, append=index[:, -1:]))
    told = _filtered(
        np.vstack([values, np.roll(values, -1, axis=1)]),
        np.vstack([weights, np.roll(weights, -1, axis=1)]),
        np.vstack([gaps, np.roll(gaps, -1, axis=1)]),
        np.tile(points.variance, 4),
        settings,
    )
    found = np.zeros((2 * stretches, width + 1))
    found[:, 1:] = told[: 2 * stretches]
    odd = told[2 * stretches :, : width - 1] - settings.gate**2 / 2
    found[:, 2:] = np.logaddexp(found[:, 2:], odd)
    return found[:stretches], found[stretches:]


def _filtered(values: Floats, weights: Floats, gaps: Ints, variance: Floats, settings: Settings) -> Floats:
    """Log likelihood of the points up to each one, about a level that is the first [lines, points].

    Args:
        values: log values [lines, points]. weights: their variances, in units of ``variance``.
        gaps: commits from each point to the next [lines, points].
        variance: of a point, log units squared [lines].
        settings: gate, wander and memory are used.
    """
    values, weights = np.ascontiguousarray(values.T), np.ascontiguousarray(weights.T)
    decays = settings.memory**gaps.T
    wander = settings.wander**2
    odd = np.exp(-(settings.gate**2) / 2)
    found = np.zeros(values.shape)
    level, wandering = values[0], np.zeros(values.shape[1])
    var_level, covariance, var_wandering = weights[0] + wander, wandering - wander, wandering + wander
    for now in range(1, values.shape[0]):
        decay = decays[now - 1]
        wandering = wandering * decay
        covariance = covariance * decay
        var_wandering = wander + (var_wandering - wander) * decay * decay
        to_level, to_wandering = var_level + covariance, covariance + var_wandering
        spread = to_level + to_wandering + weights[now]
        error = values[now] - level - wandering
        distance = error * error / (variance * spread)
        usual = np.exp(-0.5 * distance) / np.sqrt(spread)
        either = usual + odd
        share = usual / either
        found[now] = either
        gain_level, gain_wandering = to_level / spread, to_wandering / spread
        # Usual or odd: one normal with the mean and the variance of the two.
        told = share * spread * (1 - (1 - share) * distance)
        step = share * error
        level = level + gain_level * step
        wandering = wandering + gain_wandering * step
        var_level = var_level - gain_level * gain_level * told
        covariance = covariance - gain_level * gain_wandering * told
        var_wandering = var_wandering - gain_wandering * gain_wandering * told
    found[1:] = np.cumsum(np.log(found[1:]), axis=0)
    likelihood: Floats = found.T
    return likelihood
