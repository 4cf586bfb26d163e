"""Judge a change by the points on both sides: whether it lasts, and whether the series moves between its two levels."""

from __future__ import annotations

import math

import numpy as np

from lockstep.alerts.analysis.followed_series import Followed
from lockstep.detect import Change
from lockstep.detect.plain_steps import plain_steps

#: Number of points before and after a change whose medians give the moves of other times, and the levels.
WINDOW = 5

#: Number of points on each side of a change among which a series is at one level or the other.
_AROUND = 128

#: Number of passages from one level to the other from which on a series counts as moving between two levels.
_OFTEN = 4

#: A stay at the new level lasts if it has at least this many times the points of the longest stay before it.
_LASTING = 10


def recent_loss(followed: Followed, change: Change, worse: float) -> float | None:
    """Return by how much the last three points are worse than the points before a change; ``None`` if unknown."""
    values = followed.values.values
    before, newest = values[max(change.index - WINDOW, 0) : change.index], values[max(change.index, len(values) - 3) :]
    old, new = float(np.median(before)), float(np.median(newest))
    if change.measure == "difference":
        return worse * (new - old)
    return worse * math.log(new / old) if old > 0 and new > 0 else None


def moves_between(followed: Followed, change: Change) -> bool:
    """Return whether a series passes often from one level of a change to the other, at each within a quarter of it.

    One passage suffices where the change returns from a dip: from fewer than ``WINDOW`` points, with more before them.
    """
    values = followed.values.values[max(change.index - _AROUND, 0) : change.index + _AROUND]
    y, at = np.log(values) if change.measure == "ratio" else values, min(change.index, _AROUND)
    levels = np.array([[np.median(y[max(at - WINDOW, 0) : at])], [np.median(y[at : at + WINDOW])]])
    near = np.abs(y - levels) <= abs(change.size) / 4
    is_new = near[1, near.any(axis=0)]
    turns = np.flatnonzero(is_new[1:] != is_new[:-1]) + 1
    stays = np.diff([0, *turns, is_new.size])
    last = int(np.searchsorted(turns, near[:, :at].any(axis=0).sum()))
    dip = last > 0 and stays[last] < WINDOW <= stays[last - 1]
    return bool(dip) or (len(turns) >= _OFTEN and not (is_new[-1] and stays[-1] >= _LASTING * max(stays[-3::-2])))


def few_and_unclear(followed: Followed, change: Change, start: int) -> bool:
    """Return whether few points follow a change, and the gap to those of the level before is below their range.

    Few are fewer than ``WINDOW``; of the points before, as many count. ``start``: the first point at that level.
    """
    first = max(change.index - WINDOW, start)
    y, after = followed.values.values[None, first:], len(followed.values) - change.index
    return after < WINDOW and not plain_steps(y, np.zeros(1), after, times=1.0, before=change.index - first).any()
