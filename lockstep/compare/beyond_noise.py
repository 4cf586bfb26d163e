"""Find the changes that noise does not explain, before the detector has confirmed them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lockstep.compare.difference import Differences, limits
from lockstep.compare.verdict import CHANGED, LOUDEST, quantiles
from lockstep.detect.noise import CAUTION
from lockstep.history.model import Floats
from lockstep.history.row_keys import PARTS
from lockstep.history.snapshot import Results
from lockstep.suite.thresholds import Thresholds

#: Number of newest commits whose points give the usual level of a series.
RECENT = 24

#: Number of points up to the earlier commit whose median is the earlier level. Two outliers do not move this median.
BEFORE = 5


def beyond_noise(
    results: Results,
    machine: str,
    first: int,
    differences: Differences,
    noise: Floats,
    thresholds: Thresholds,
) -> NDArray[np.bool_]:
    """Return a mask of the rows that changed by more than noise explains.

    The confidence is that of all rows together (Bonferroni): of 500 single intervals at 99 %, five would exclude zero
    by chance. The newest point must also differ by more than noise from two medians: of the points since the earlier
    commit, and of the last ``BEFORE`` points up to the earlier commit. Otherwise an outlier at the earlier commit would
    make all later points look changed.

    Args:
        first: the position of the earlier commit among the machine's commits.
        differences: the differences from the earlier commit to the newest row of each series.
        noise: run-to-run noise of each row (standard deviation of the logarithm). A row with NaN is never in the mask.
    """
    compared = int((~np.isnan(differences.worse)).sum())
    # An estimate of noise from few commits is often too small.
    caution = math.sqrt(1 + CAUTION / max(len(results.commits(machine)), 1))
    needed = np.where(np.isfinite(noise), _needed(differences, max(compared, 1), caution, thresholds), np.inf)
    exceeds = np.abs(differences.worse) > needed
    moved = _from_usual(results, first, differences, exceeds)
    beyond = np.zeros(len(differences), dtype=bool)
    for place in np.flatnonzero(exceeds).tolist():
        worse = float(differences.worse[place])
        # For a series without other points, compare only with the earlier commit.
        beyond[place] = moved.get(place, worse) * math.copysign(1, worse) > needed[place]
    return beyond


def _needed(differences: Differences, compared: int, caution: float, thresholds: Thresholds) -> Floats:
    """Return the log of the smallest factor that noise does not explain, for each row.

    Infinite for rows whose difference is not certain.
    """
    rows = differences.rows
    significant = np.isin(differences.verdict, _CHANGED) & ~np.isnan(differences.error)
    _, confidence = limits(rows, thresholds)
    half = quantiles(1 - (1 - confidence) / compared) * caution * differences.error
    mde = rows.columns["mde"]
    needed: Floats = np.where(significant, np.fmax(half, np.log1p(np.where(np.isnan(mde), 0.0, mde))), np.inf)
    return needed


def _from_usual(results: Results, first: int, differences: Differences, exceeds: NDArray[np.bool_]) -> dict[int, float]:
    """Return how much worse the newest point is than the nearest earlier level (log), by the index of the row."""
    rows, index = differences.rows, differences.rows.series_keys
    signs = np.where((differences.quantity == _SPEEDUP) | differences.flipped, -1.0, 1.0)
    series = {}
    for place in np.flatnonzero(exceeds).tolist():
        same_key = index.key_at == rows.columns["key"][place]
        for rank in np.flatnonzero(same_key & (index.part_at == differences.quantity[place])).tolist():
            series[index.series[rank]] = place
    moved = {}
    for trend in results.trends(series, last=RECENT + BEFORE):
        place = series[trend.series]
        commit = rows.columns["commit"][place]
        now = (trend.value > 0) & (trend.commit == commit)
        if not now.any():
            continue
        measured = (trend.value > 0) & (trend.same_work_as == 0)
        same = measured & (trend.version == trend.version[now][-1])
        since = np.log(trend.value[same & (trend.commit >= first) & (trend.commit < commit)])[-RECENT:]
        before = np.log(trend.value[same & (trend.commit <= first)])[-BEFORE:]
        newest = math.log(trend.value[now][-1])
        sign = signs[place]
        grown = [sign * (newest - level) for points in (since, before) for level in _levels(points)]
        if grown:
            # Take the nearest level, because a point that is at any of the levels has not changed.
            moved[place] = min(grown, key=abs)
    return moved


_CHANGED = [LOUDEST.index(verdict) for verdict in CHANGED]
_SPEEDUP = PARTS.index("speedup")


def _levels(values: NDArray[np.float64]) -> list[float]:
    """Return the median, or both middle values of an even number of values.

    Their mean would hide that either of the two may be an outlier.
    """
    ordered = np.sort(values)
    count = len(ordered)
    return [float(ordered[at]) for at in {(count - 1) // 2, count // 2}] if count else []
