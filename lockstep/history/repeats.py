"""Several measurements of one series at one commit, as one point.

asv draws the arithmetic mean of what it finds of a commit (``Graph.get_data`` of asv 0.6.6, which leaves out null and
NaN), and so do pages and alerts here. The interval is the mean of the intervals, as asv takes the mean of the weights
it makes of them: more files of a commit make a mean no surer, since runs scatter more than the intervals of one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.history.columns import COLUMNS, MOST_SAMPLES

Columns = dict[str, NDArray[Any]]

#: Measurements that a note lists.
_MOST = 8


def averaged(columns: Columns, same: NDArray[np.bool_]) -> Columns:
    """One row for each group of rows that measure the same.

    Args:
        columns: by name, of one length; the rows of a group stand together, the newest measurement last.
        same: [rows] whether a row belongs to the group of the row before it.

    Returns:
        the columns with means of numbers. What cannot be averaged is the newest row's that counts. Rows count that
        have a number and the newest row's version of the benchmark.
    """
    if not same.any():
        return columns
    group = np.cumsum(~same) - 1
    groups = int(group[-1]) + 1
    newest = np.append(np.flatnonzero(~same)[1:], len(same)) - 1
    counts = columns["version"] == columns["version"][newest][group]
    measured = counts & np.isfinite(columns["value"])
    counts &= measured | (np.bincount(group, measured, groups) == 0)[group]
    last = np.zeros(groups, dtype=np.int64)
    np.maximum.at(last, group[counts], np.flatnonzero(counts))
    several = np.bincount(group, measured, groups) > 1
    found = {name: values[last] for name, values in columns.items()}
    for name in columns:
        if COLUMNS.get(name) == "number":
            found[name] = np.where(several, _means(columns[name], measured, group, groups), found[name])
    _drop_wrong_intervals(found, several)
    for at in np.flatnonzero(several).tolist() if "note" in columns else ():
        rows = np.flatnonzero(measured & (group == at))
        found["note"][at] = _note(columns, rows)
        if "samples" in columns:
            samples = [sample for row in rows.tolist() for sample in columns["samples"][row]]
            found["samples"][at] = samples[:: -(-len(samples) // MOST_SAMPLES) or 1]
    return found


def _means(values: NDArray[np.float64], used: NDArray[np.bool_], group: NDArray[Any], groups: int) -> NDArray[Any]:
    used = used & np.isfinite(values)
    totals = np.bincount(group[used], values[used], groups)
    with np.errstate(invalid="ignore"):
        means: NDArray[Any] = totals / np.bincount(group[used], minlength=groups)
    return means


def _drop_wrong_intervals(columns: Mapping[str, NDArray[Any]], several: NDArray[np.bool_]) -> None:
    """Set an interval to NaN that does not hold its mean, as where only some measurements have one."""
    for value, low, high in (("value", "low", "high"), ("ratio", "ratio_low", "ratio_high")):
        wrong = several & ~((columns[low] <= columns[value]) & (columns[value] <= columns[high]))
        columns[low][wrong] = columns[high][wrong] = np.nan


def _note(columns: Mapping[str, NDArray[Any]], rows: NDArray[Any]) -> str:
    values = [f"{value:.4g}" for value in columns["value"][rows].tolist()]
    more = f" and {len(values) - _MOST} more" if len(values) > _MOST else ""
    before = next((note for note in columns["note"][rows].tolist() if note), "")
    said = f"mean of {len(values)} measurements of this commit: {', '.join(values[:_MOST])}{more}"
    return f"{said}; {before}" if before else said
