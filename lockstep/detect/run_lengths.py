"""Filter many series at once under several hypotheses about where the present level began.

Each series has up to ``width`` run-length hypotheses; a hypothesis is the commit at which the present level began. It
is a Kalman filter with two states: the level, which is constant, and a slow drift about it, an autoregression of order
one. It carries the cost of the points so far. A point beyond the gate costs a fixed amount and does not update the
filter: the bounded loss of Fearnhead and Rigaill ("Changepoint detection in the presence of outliers", JASA 114, 2019).
A new hypothesis begins at every point, on top of the best one that holds the reported changes, as in optimal
partitioning (Jackson et al. 2005; Killick et al., "PELT", JASA 107, 2012). It replaces the costliest hypothesis.

Variances are in units of the series' noise variance; costs are minus twice a log likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.settings import Settings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: A change is placed at the commit with the most probability within this many commits of it.
NEARBY = 2
#: Share of the changes whose first point lies at neither level. It is about a tenth in the histories of other
#: projects. With a fifth, the ranges hold 95 % of the changes even where every first point lies at neither level.
PARTIAL = 0.2
#: Log odds that a point far off the old level belongs to the change right after it: on the new level's side of the
#: old one, and on the other side.
ON_THE_WAY, ASTRAY = 2.3, -1.0
#: Probability that a change lies before its range, and behind it.
TAIL = 0.025


@dataclass(slots=True)
class RunLengths:
    """Arrays [series, width]; unused places have infinite cost.

    Attributes:
        level, wandering: the filter's state, log units.
        var_level, covariance, var_wandering: its covariance.
        cost: the cost of all points of the series so far.
        start: index of the first point at the level.
        before: index at which the level before that began.
        count: points at the level, outliers apart.
        depth: changes on the path.
        former: index of the measured point before ``start``.
        log_odds_former: log odds that the change came at ``former``, with a point that lies at neither level.
        origin: index of the first of two or more such points in a row up to ``former``; -1 for none.
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
        """Room for that many series, with no hypothesis."""
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
        """A copy of these series."""
        return RunLengths(*(getattr(self, name)[rows] for name in self.__slots__))

    def advance(
        self, rows: Ints | slice, y: Floats, weight: Floats, commits: Ints, scale: Floats, settings: Settings
    ) -> Floats:
        """Take in one point of each of the series ``rows``.

        Args:
            rows: the series.
            y: log values [rows].
            weight: variance of each point in units of the series' noise variance [rows].
            commits: commits since the series' point before [rows].
            scale: noise variance that the costs are counted in, log units squared [rows].
            settings: gate, wander and memory are used.

        Returns:
            how far off each hypothesis' forecast the point was, in units of its standard deviation [rows, width].
        """
        decay = settings.memory ** commits[:, None]
        fresh = settings.wander**2 * (1 - decay * decay)
        wandering = self.wandering[rows] * decay
        covariance = self.covariance[rows] * decay
        var_wandering = self.var_wandering[rows] * (decay * decay) + fresh
        var_level, level = self.var_level[rows], self.level[rows]

        to_level = var_level + covariance
        to_wandering = covariance + var_wandering
        variance = to_level + to_wandering + weight[:, None]
        error = y[:, None] - level - wandering
        off = error / np.sqrt(scale[:, None] * variance)
        distance = off * off
        inside = distance < settings.gate**2

        beyond = np.where(np.isnan(level), settings.unsettled, settings.gate**2)
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
        return off

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
        settings: Settings,
    ) -> None:
        """Add to each of the series ``rows`` the hypothesis that a level begins at its present point.

        It takes the place of the costliest one, but for that at ``keep`` [rows]. NaN for ``y``: points that agree on
        no level.
        """
        costs = self.cost[rows]
        kept = keep >= 0
        costs[kept, keep[kept]] = -np.inf
        place = costs.argmax(axis=1)
        wander = settings.wander**2
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
        """Forget hypotheses of one series. ``places``: mask [width]."""
        self.cost[row, places] = np.inf
        self.depth[row, places] = -9

    def recall(self, row: int, before: RunLengths, places: NDArray[np.bool_]) -> None:
        """Put the hypotheses ``places`` (mask) of one series back as they were ``before``."""
        wanted = np.flatnonzero(places & np.isfinite(before.cost[0]))
        room = np.argsort(-self.cost[row], kind="stable")[: wanted.size]
        for name in self.__slots__:
            getattr(self, name)[row, room] = getattr(before, name)[0, wanted]

    def locate(self, rows: Ints, among: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
        """Where the levels of the hypotheses ``among`` began, taken together, [rows] each.

        Args:
            rows: the series.
            among: mask [rows, width] of the hypotheses, at least one in each row.

        Returns:
            the commit with the most probability within ``NEARBY`` of it, and the ends of the middle 95 %.
        """
        cost = np.where(among, self.cost[rows], np.inf)
        share = np.exp((cost.min(axis=1, keepdims=True) - cost) / 2)
        # The change may also have come a point earlier (``log_odds_former``), or with the first of several such points.
        origin = self.origin[rows]
        start = np.hstack([self.start[rows], self.former[rows], origin])
        earlier = share * np.exp(np.where(among, self.log_odds_former[rows], -np.inf))
        share = np.hstack([share, earlier, np.where(origin >= 0, 2 * earlier, 0.0)])
        order = np.argsort(start, axis=1)
        start, share = np.take_along_axis(start, order, axis=1), np.take_along_axis(share, order, axis=1)
        share /= share.sum(axis=1, keepdims=True)
        near, here = _within(start, share, NEARBY), _within(start, share, 0)
        # Where the step is clear, all its neighbours have it nearby: of those take the likeliest itself.
        index = np.where(near > 0.95 * near.max(axis=1, keepdims=True), here, -1.0).argmax(axis=1)
        grown = np.cumsum(share, axis=1)
        which = np.arange(rows.size)
        earliest, latest = (grown >= TAIL).argmax(axis=1), (grown >= 1 - TAIL).argmax(axis=1)
        return start[which, index], start[which, earliest], start[which, latest]


def _within(start: Ints, share: Floats, reach: int) -> Floats:
    """Sum of the shares that lie within ``reach`` of each [rows, width]; ``start`` ascends in every row."""
    grown = np.concatenate([np.zeros((len(share), 1)), np.cumsum(share, axis=1)], axis=1)
    # All rows in one ascending line, with no two rows within reach of each other.
    wide = int(start.max()) - int(start.min()) + reach + 1
    first = np.arange(len(share))[:, None]
    line = (start + first * wide).ravel()
    low, high = np.searchsorted(line, line - reach), np.searchsorted(line, line + reach, "right")
    shift = first * share.shape[1]
    below, above = (np.take_along_axis(grown, at.reshape(share.shape) - shift, axis=1) for at in (low, high))
    found: Floats = above - below
    return found


def log_odds_former(former: Floats, first: Floats) -> Floats:
    """Log odds that a change came a point before the first one that lies at the new level.

    The first point after a change may lie anywhere from below the old level to beyond the new one, all places alike.

    Args:
        former: how far the point before the first one was from the old level, in standard deviations; NaN where
            there is no old level.
        first: how far the first point at the new level is from the old level, in the same unit.
    """
    wide = 2 * np.maximum(np.abs(first), 1.0)
    odds = np.log(PARTIAL * np.sqrt(2 * np.pi) / wide) + former**2 / 2
    found: Floats = np.minimum(odds, np.where(former * first > 0, ON_THE_WAY, ASTRAY))
    return np.where(np.isnan(found), -np.inf, found)


def log_odds(these: Floats, others: Floats) -> Floats:
    """Return the log of the odds that one of the hypotheses ``these`` holds rather than one of ``others``.

    Args:
        these: the costs of hypotheses [rows, width]; infinite for hypotheses to leave out.
        others: the costs of the other hypotheses [rows, width]; each row must have a finite cost.

    Returns:
        The log odds [rows]; -690 for a row whose ``these`` are all infinite.
    """
    low = np.minimum(these.min(axis=1), others.min(axis=1))[:, None]
    ratio = np.exp((low - these) / 2).sum(axis=1) / np.maximum(np.exp((low - others) / 2).sum(axis=1), 1e-300)
    odds: Floats = np.log(np.maximum(ratio, 1e-300))
    return odds
