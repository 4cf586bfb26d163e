"""Read rows from the history.

A row joins the latency and the speedup at a commit, which the store holds as two points.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.compare.row_table import (
    ALWAYS,
    COLUMN_OF,
    SHARED,
    TEXTS,
    Columns,
    Indices,
    RowTable,
    interval_names,
)
from lockstep.history.model import Floats, Ints, Part, SeriesKey
from lockstep.history.row_keys import PARTS
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered, remembered_few

#: The columns of the store that hold a number, the ends of its interval and its error.
_ENDS = ("value", "low", "high", "error")


@remembered
def newest_rows(results: Results, machine: str) -> RowTable:
    """Return the newest row of every series of a machine, in the order of the series."""
    rows = rows_of(results, machine, results.columns(machine, SHARED))
    # The newest latency and the newest speedup of a series may come from different commits.
    key, commit = rows.columns["key"], rows.columns["commit"]
    newest = np.full(len(rows.series_keys.keys), -1, dtype=np.int32)
    np.maximum.at(newest, key, commit)
    is_newest = commit == newest[key]
    return rows if is_newest.all() else rows.select(is_newest)


@remembered_few
def rows_at(results: Results, machine: str, commit: str) -> RowTable:
    """Return the rows of a machine at a commit (full hash), in the order of the series."""
    commits = results.commits(machine)
    if commits and commit == commits[-1].hash:
        # The newest rows include those of the machine's newest commit, so they are not read a second time.
        rows = newest_rows(results, machine)
        at_last_commit = rows.columns["commit"] == len(commits) - 1
        return rows if at_last_commit.all() else rows.select(at_last_commit)
    return rows_of(results, machine, results.columns(machine, SHARED, commit))


def rows_over(
    results: Results,
    machine: str,
    keys: Iterable[SeriesKey],
    quantities: Collection[str] | None = None,
) -> RowTable:
    """Return all rows of these series, old to new; only ``quantities``, without texts and facts, unless ``None``."""
    names = SHARED if quantities is None else [COLUMN_OF[name] for name in quantities if name in COLUMN_OF]
    series = results.keys(machine).series_of(keys)
    return rows_of(results, machine, results.columns(machine, names, series=series))


def rows_of(results: Results, machine: str, points: Columns) -> RowTable:
    """Join points into rows, in the order of the points: the latency and the speedup at a commit become one row."""
    commits = (*results.commits(machine), *results.apart(machine))
    index = results.keys(machine)
    if not points:
        return RowTable(index, commits, _NO_COLUMNS)
    key, part = index.key_at[points["rank"]], index.part_at[points["rank"]]
    # Both points store the same values of the record. The row takes the state of its latency.
    ratio = part == PARTS.index("speedup")
    row, count = _rows_of_points(key, points["commit"])
    main = np.empty(count, dtype=np.intp)
    for group in (ratio, ~ratio):
        main[row[group]] = np.flatnonzero(group)
    shown = [name for name in SHARED if name in points]
    columns = {name: points[name][main] for name in (*ALWAYS, *shown)} | {"key": key[main]}
    for name in TEXTS:
        columns[name] = _interned(columns[name]) if name in columns else np.full(count, "", dtype=object)
    for code, name in enumerate(PARTS):
        points_of_part = np.flatnonzero(part == code)
        if len(points_of_part):
            columns |= _numbers(name, {end: points[end][points_of_part] for end in _ENDS}, row[points_of_part], count)
    return RowTable(index, commits, columns)


#: The columns of a table without rows.
_NO_COLUMNS: Columns = {name: np.empty(0, dtype=object if name in TEXTS else float) for name in SHARED} | {
    name: np.empty(0, dtype=np.int32) for name in ("key", *ALWAYS, "version", "state")
}


def _rows_of_points(key: Ints, commit: Ints) -> tuple[Indices, int]:
    """Return the index of the row to which each point belongs, and the number of rows.

    Points with the same key and the same commit belong to one row.
    """
    pairs = key.astype(np.int64) << 32 | commit
    _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.intp)
    place[np.argsort(first)] = np.arange(len(first))
    return place[inverse], len(first)


def _numbers(part: Part, points: Columns, row: Indices, count: int) -> dict[str, Floats]:
    """Return the columns of the number ``part``, its interval and its error, from the points that hold the number."""
    values = points["value"]
    columns = {}
    for name, end in zip(interval_names(part), _ENDS, strict=True):
        column = np.full(count, np.nan)
        column[row] = np.where(np.isnan(values), np.nan, points[end])
        columns[name] = column
    return columns


def _interned(texts: NDArray[Any]) -> NDArray[Any]:
    """Replace equal texts by one object, in place, which saves memory. Return the texts."""
    interned: dict[str, str] = {}
    texts[:] = [interned.setdefault(text, text) for text in texts.tolist()]
    return texts
