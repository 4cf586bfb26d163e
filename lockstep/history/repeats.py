"""Average several measurements of one series at one commit on one GPU into one point.

The number is the arithmetic mean, which asv's graphs also show (``Graph.get_data`` of asv 0.6.6 leaves out null and
NaN). The interval is the mean of the intervals. More measurements do not narrow it, because runs scatter more than the
interval of one run suggests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.history.point_columns import COLUMNS, MOST_SAMPLES

Columns = dict[str, NDArray[Any]]

#: Number of measurements that a note lists.
_MOST = 8


def averaged(columns: Columns, same: NDArray[np.bool_]) -> Columns:
    """Return one row for each group of repeated measurements.

    Args:
        columns: columns by name, of equal length. The rows of a group are adjacent, the newest measurement last.
        same: [rows] whether a row belongs to the same group as the row before it.

    Returns:
        the columns with the means of the valid rows of each group. A row is valid if it has a number, the same
        benchmark version as the newest row, and the same GPU as the newest measurement. A copy of another commit's
        number is valid if no row of the group is a measurement. Values that cannot be averaged come from the newest
        valid row.
    """
    if not same.any():
        return columns
    group = np.cumsum(~same) - 1
    groups = int(group[-1]) + 1
    newest = np.append(np.flatnonzero(~same)[1:], len(same)) - 1
    counts = columns["version"] == columns["version"][newest][group]
    measured = counts & np.isfinite(columns["value"])
    timed = measured & (columns["same_work_as"] == 0)
    measured &= timed | (np.bincount(group, timed, groups) == 0)[group]
    gpu = columns["gpu"]
    measured &= (gpu == 0) | (gpu == gpu[_last(measured & (gpu != 0), group, groups)][group])
    counts &= measured | (np.bincount(group, measured, groups) == 0)[group]
    last = _last(counts, group, groups)
    repeated = np.bincount(group, measured, groups) > 1
    averages = {name: values[last] for name, values in columns.items()}
    for name in columns:
        if COLUMNS.get(name) == "number":
            averages[name] = np.where(repeated, _means(columns[name], measured, group, groups), averages[name])
    _drop_wrong_intervals(averages, repeated)
    for at in np.flatnonzero(repeated).tolist() if "note" in columns else ():
        rows = np.flatnonzero(measured & (group == at))
        averages["note"][at] = _note(columns, rows)
        if "samples" in columns:
            samples = [sample for row in rows.tolist() for sample in columns["samples"][row]]
            averages["samples"][at] = samples[:: -(-len(samples) // MOST_SAMPLES) or 1]
    return averages


def _last(rows: NDArray[np.bool_], group: NDArray[Any], groups: int) -> NDArray[np.int64]:
    """Return the index of the last of these rows in each group; 0 for a group without one."""
    last = np.zeros(groups, dtype=np.int64)
    np.maximum.at(last, group[rows], np.flatnonzero(rows))
    return last


def _means(values: NDArray[np.float64], used: NDArray[np.bool_], group: NDArray[Any], groups: int) -> NDArray[Any]:
    used = used & np.isfinite(values)
    totals = np.bincount(group[used], values[used], groups)
    with np.errstate(invalid="ignore"):
        means: NDArray[Any] = totals / np.bincount(group[used], minlength=groups)
    return means


def _drop_wrong_intervals(columns: Mapping[str, NDArray[Any]], repeated: NDArray[np.bool_]) -> None:
    """Set an interval to NaN if it does not contain the mean, as happens if only some measurements have an interval."""
    for value, low, high in (("value", "low", "high"), ("ratio", "ratio_low", "ratio_high")):
        if value in columns:
            wrong = repeated & ~((columns[low] <= columns[value]) & (columns[value] <= columns[high]))
            columns[low][wrong] = columns[high][wrong] = np.nan


def _note(columns: Mapping[str, NDArray[Any]], rows: NDArray[Any]) -> str:
    values = [f"{value:.4g}" for value in columns["value"][rows].tolist()]
    omitted = f" and {len(values) - _MOST} more" if len(values) > _MOST else ""
    before = next((note for note in columns["note"][rows].tolist() if note), "")
    note = f"mean of {len(values)} measurements of this commit: {', '.join(values[:_MOST])}{omitted}"
    return f"{note}; {before}" if before else note
