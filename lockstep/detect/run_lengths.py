"""Estimate where the current level of each series began, by several hypotheses for each series.

Each series has up to ``width`` hypotheses. Each hypothesis names the commit at which the current level began, and holds
a Kalman filter with two states: the constant level, and a slow drift about the level (an autoregression of order one).
It also holds the cost of all points so far. A point beyond ``GATE`` costs a fixed amount and does not update the
filter. This is the bounded loss of Fearnhead and Rigaill ("Changepoint detection in the presence of outliers", JASA
114, 2019).

At every point, a new hypothesis replaces the costliest one. It extends the best hypothesis that contains the reported
changes, as in optimal partitioning (Jackson et al. 2005; Killick et al., "PELT", JASA 107, 2012).

Variances are in units of the series' noise variance; costs are minus twice a log likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.settings import GATE, MEMORY, UNSETTLED, WANDER

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: A change is placed at the commit for which the total probability within this many commits around it is greatest.
NEARBY = 2
#: Assumed share of the changes whose first point lies at neither the old nor the new level. In the histories of other
#: projects it is about a tenth. With a fifth, the ranges hold 95 % of the changes even if all first points are such.
PARTIAL = 0.2
#: Log odds that a point far off the old level is already part of the change that follows it. The first number is for a
#: point on the same side of the old level as the new level, the second for a point on the other side.
ON_THE_WAY, ASTRAY = 2.3, -1.0
#: Probability that a change lies before its range, and that it lies after its range.
TAIL = 0.025


@dataclass(slots=True)
class RunLengths:
    """The hypotheses of many series, as arrays [series, width]. Unused elements have infinite cost.

    Attributes:
        level, wandering: the filter's state, log units.
        var_level, covariance, var_wandering: covariance matrix of the filter's state.
        cost: the cost of all points of the series so far.
        start: index of the first point at the level.
        before: index of the first point at the previous level.
        count: points at the level, without outliers.
        depth: number of changes in the hypothesis.
        former: index of the measured point before ``start``.
        log_odds_former: log odds that the change already came at ``former``, whose point lies at neither level.
        origin: index of the first of two or more consecutive points at neither level that end at ``former``; -1 for
            none.
    """

    level: Floats
    wandering: Floats
    var_level: Floats
    covariance: Floats
    var_wandering: Floats
    cost: Floats
    start: Ints
    before: Ints
    count: Ints
    depth: Ints
    former: Ints
    log_odds_former: Floats
    origin: Ints

    @classmethod
    def empty(cls, series: int, width: int) -> RunLengths:
        """Return the arrays of hypotheses for this number of series, with no hypothesis yet."""
        shape = (series, width)

        def numbers() -> Floats:
            return np.zeros(shape)

        def counts() -> Ints:
            return np.full(shape, -1, dtype=np.int64)

        return cls(
            *(numbers(), numbers(), numbers(), numbers(), numbers()),
            *(np.full(shape, np.inf), counts(), counts(), counts(), counts()),
            *(counts(), np.full(shape, -np.inf), counts()),
        )

    def select(self, rows: Ints) -> RunLengths:
        """Return a copy of the hypotheses of these series."""
        return RunLengths(*(getattr(self, name)[rows] for name in self.__slots__))

    def advance(self, rows: Ints | slice, y: Floats, weight: Floats, commits: Ints, scale: Floats) -> Floats:
        """Update all hypotheses of the series ``rows`` by one point of each series.

        Args:
            rows: the series.
            y: log values [rows].
            weight: variance of each point in units of the series' noise variance [rows].
            commits: number of commits since the series' previous point [rows].
            scale: noise variance used for the costs, log units squared [rows].

        Returns:
            the point's distance from each hypothesis' forecast, in standard deviations of the forecast [rows, width].
        """
        decay = MEMORY ** commits[:, None]
        fresh = WANDER**2 * (1 - decay * decay)
        wandering = self.wandering[rows] * decay
        covariance = self.covariance[rows] * decay
        var_wandering = self.var_wandering[rows] * (decay * decay) + fresh
        var_level, level = self.var_level[rows], self.level[rows]

        to_level = var_level + covariance
        to_wandering = covariance + var_wandering
        variance = to_level + to_wandering + weight[:, None]
        error = y[:, None] - level - wandering
        deviations = error / np.sqrt(scale[:, None] * variance)
        distance = deviations * deviations
        inside = distance < GATE**2

        beyond = np.where(np.isnan(level), UNSETTLED, GATE**2)
        self.cost[rows] += np.where(inside, distance + np.log(variance), beyond)
        inverse = inside / variance
        gain = to_level * inverse
        self.level[rows] = level + gain * error
        self.var_level[rows] = var_level - gain * to_level
        self.covariance[rows] = covariance - gain * to_wandering
        gain = to_wandering * inverse
        self.wandering[rows] = wandering + gain * error
        self.var_wandering[rows] = var_wandering - gain * to_wandering
        self.count[rows] += inside
        return deviations

    def begin(
        self,
        rows: Ints,
        y: Floats,
        weight: Floats,
        index: Ints,
        *,
        cost: Floats,
        before: Ints,
        depth: Ints,
        former: Ints,
        log_odds_former: Floats,
        origin: Ints,
        keep: Ints,
    ) -> None:
        """Add to each of the series ``rows`` the hypothesis that a level begins at the series' current point.

        The new hypothesis replaces the costliest one other than ``keep`` [rows]. ``y`` is NaN if the points do not give
        a level.
        """
        costs = self.cost[rows]
        has_keep = keep >= 0
        costs[has_keep, keep[has_keep]] = -np.inf
        place = costs.argmax(axis=1)
        wander = WANDER**2
        for array, value in (
            (self.level, y),
            (self.wandering, 0.0),
            (self.var_level, weight + wander),
            (self.covariance, -wander),
            (self.var_wandering, wander),
            (self.cost, cost),
            (self.start, index),
            (self.before, before),
            (self.count, 1),
            (self.depth, depth),
            (self.former, former),
            (self.log_odds_former, log_odds_former),
            (self.origin, origin),
        ):
            array[rows, place] = value

    def drop(self, row: int, places: NDArray[np.bool_]) -> None:
        """Remove the hypotheses ``places`` (mask [width]) of one series."""
        self.cost[row, places] = np.inf
        self.depth[row, places] = -9

    def recall(self, row: int, before: RunLengths, places: NDArray[np.bool_]) -> None:
        """Restore the hypotheses ``places`` (mask [width]) of one series from ``before``."""
        restored = np.flatnonzero(places & np.isfinite(before.cost[0]))
        free = np.argsort(-self.cost[row], kind="stable")[: restored.size]
        for name in self.__slots__:
            getattr(self, name)[row, free] = getattr(before, name)[0, restored]

    def locate(self, rows: Ints, among: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
        """Return where the current level of each series began, by the probabilities of the hypotheses ``among``.

        Args:
            rows: the series.
            among: mask [rows, width] of the hypotheses, at least one in each row.

        Returns:
            three arrays [rows]: the most likely commit (with the greatest probability within ``NEARBY`` of it), and the
                two ends of the range that holds the middle 95 % of the probability.
        """
        cost = np.where(among, self.cost[rows], np.inf)
        share = np.exp((cost.min(axis=1, keepdims=True) - cost) / 2)
        # The change may also have come one point earlier (``log_odds_former``), or at the first of several points at
        # neither level.
        origin = self.origin[rows]
        start = np.hstack([self.start[rows], self.former[rows], origin])
        earlier = share * np.exp(np.where(among, self.log_odds_former[rows], -np.inf))
        share = np.hstack([share, earlier, np.where(origin >= 0, 2 * earlier, 0.0)])
        order = np.argsort(start, axis=1)
        start, share = np.take_along_axis(start, order, axis=1), np.take_along_axis(share, order, axis=1)
        share /= share.sum(axis=1, keepdims=True)
        nearby, exact = _within(start, share, NEARBY), _within(start, share, 0)
        # Near a clear step, several commits have the same probability within ``NEARBY``. Of these, take the commit that
        # is itself most likely.
        index = np.where(nearby > 0.95 * nearby.max(axis=1, keepdims=True), exact, -1.0).argmax(axis=1)
        grown = np.cumsum(share, axis=1)
        row_index = np.arange(rows.size)
        earliest, latest = (grown >= TAIL).argmax(axis=1), (grown >= 1 - TAIL).argmax(axis=1)
        return start[row_index, index], start[row_index, earliest], start[row_index, latest]


def _within(start: Ints, share: Floats, reach: int) -> Floats:
    """Return, for each start, the sum of ``share`` over all starts within ``reach`` of it [rows, width].

    ``start`` must ascend within each row.
    """
    grown = np.concatenate([np.zeros((len(share), 1)), np.cumsum(share, axis=1)], axis=1)
    # Put all rows in one ascending line, with rows further apart than ``reach``.
    wide = int(start.max()) - int(start.min()) + reach + 1
    first = np.arange(len(share))[:, None]
    line = (start + first * wide).ravel()
    low, high = np.searchsorted(line, line - reach), np.searchsorted(line, line + reach, "right")
    shift = first * share.shape[1]
    below, above = (np.take_along_axis(grown, at.reshape(share.shape) - shift, axis=1) for at in (low, high))
    summed: Floats = above - below
    return summed


def log_odds_former(former: Floats, first: Floats) -> Floats:
    """Return the log odds that a change came one point before the first point at the new level.

    It is assumed that the first point after such a change lies anywhere between the old and the new level, or somewhat
    beyond them, with equal probability.

    Args:
        former: distance of the point before the first point from the old level, in standard deviations; NaN without an
            old level.
        first: distance of the first point at the new level from the old level, in the same unit.
    """
    wide = 2 * np.maximum(np.abs(first), 1.0)
    odds = np.log(PARTIAL * np.sqrt(2 * np.pi) / wide) + former**2 / 2
    evidence: Floats = np.minimum(odds, np.where(former * first > 0, ON_THE_WAY, ASTRAY))
    return np.where(np.isnan(evidence), -np.inf, evidence)


def log_odds(favoured: Floats, opposed: Floats) -> Floats:
    """Return the log odds that one of the hypotheses ``favoured`` is true rather than one of ``opposed``.

    Args:
        favoured: costs [rows, width]; infinite for hypotheses to leave out.
        opposed: costs [rows, width]; each row must have a finite cost.

    Returns:
        the log odds [rows]; -690 for a row in which all of ``favoured`` are infinite.
    """
    low = np.minimum(favoured.min(axis=1), opposed.min(axis=1))[:, None]
    ratio = np.exp((low - favoured) / 2).sum(axis=1) / np.maximum(np.exp((low - opposed) / 2).sum(axis=1), 1e-300)
    odds: Floats = np.log(np.maximum(ratio, 1e-300))
    return odds
