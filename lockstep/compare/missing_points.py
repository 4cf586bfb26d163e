"""Correct the verdict on each series that has no point to compare: it ended, or it skipped the earlier commit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lockstep.compare.difference import Differences
from lockstep.compare.verdict import LOUDEST
from lockstep.history.snapshot import Results

#: Number of commits before the compared commit in which an earlier point is searched.
_BEFORE = 24

_FAILED, _NEW, _UNSURE, _NOT_MEASURED = map(LOUDEST.index, ("failed", "new", "unsure", "not measured"))


def not_measured(differences: Differences, first: int, newest: int) -> Differences:
    """Return the differences with the verdict "not measured" for series without a point after the commit ``first``.

    Otherwise, if the newest point of a series is at that commit, the point would be compared with itself and give
    "same". The verdict "failed" stays. ``first``, with which the rows are compared, and ``newest`` are positions among
    the machine's commits.
    """
    place = differences.rows.columns["commit"]
    ended = (differences.verdict != _FAILED) & ((place < first) | ((place == first) & (first < newest)))
    if not ended.any():
        return differences
    worse, error, half = (
        np.where(ended, np.nan, column) for column in (differences.worse, differences.error, differences.half)
    )
    verdict = np.where(ended, np.uint8(_NOT_MEASURED), differences.verdict)
    times = {at: moved for at, moved in differences.times.items() if not ended[at]}
    return replace(differences, worse=worse, error=error, half=half, verdict=verdict, times=times)


def not_new(
    differences: Differences,
    results: Results,
    machine: str,
    first: int,
    searched: NDArray[np.bool_] | None = None,
) -> Differences:
    """Return the differences with the verdict "unsure" instead of "new" for series that are not new.

    Such a series has no number at the commit ``first``, but a number of the same benchmark version before that commit.
    ``first`` is a position among the machine's commits. An earlier number is searched for the rows of the mask
    ``searched``, by default those after ``first``.
    """
    rows = differences.rows
    if searched is None:
        searched = rows.columns["commit"] > first
    missing = np.flatnonzero((differences.verdict == _NEW) & (differences.earlier < 0) & searched)
    if not len(missing) or first == 0:
        return differences
    key = rows.columns["key"][missing]
    missing_versions = dict(zip(key.tolist(), rows.columns["version"][missing].tolist(), strict=True))
    index = rows.series_keys
    ranks = np.flatnonzero(np.isin(index.key_at, key)).tolist()
    keys = {index.series[rank]: int(index.key_at[rank]) for rank in ranks}
    known_keys = set()
    for trend in results.trends(keys, last=len(results.commits(machine)) - first + _BEFORE):
        measured_before = (trend.commit < first) & np.isfinite(trend.value)
        if missing_versions[keys[trend.series]] in set(trend.version[measured_before].tolist()):
            known_keys.add(keys[trend.series])
    known = missing[np.isin(key, list(known_keys))]
    verdict = differences.verdict.copy()
    verdict[known] = _UNSURE
    return replace(differences, verdict=verdict)
