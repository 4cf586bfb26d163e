"""Read rows from the history. A row joins the latency and the speedup of one commit, which are two points of the
store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.compare.row_table import (
    SHARED,
    TEXTS,
    Columns,
    Indices,
    MachineFacts,
    RowTable,
    interval_names,
    no_columns,
)
from lockstep.compare.rows import Row
from lockstep.history.model import Floats, Ints, Part, Series
from lockstep.history.row_keys import PARTS
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered, remembered_few

#: The columns of a point's number, its interval and its error.
_ENDS = ("value", "low", "high", "error")


@remembered
def _machine(results: Results, machine: str) -> MachineFacts:
    runs = results.runs_of(machine)
    states = tuple(run.clock_state for run in runs)
    return MachineFacts(results.keys(machine), results.commits(machine), states, results.benchmarks, results.versions)


@remembered
def newest_rows(results: Results, machine: str) -> RowTable:
    """Return the newest row of every series of a machine, in the order of the series."""
    rows = _table(results, machine, results.columns(machine, SHARED))
    # Latency and speedup of a series may end at different commits.
    key, commit = rows.columns["key"], rows.columns["commit"]
    newest = np.full(len(rows.series_keys.keys), -1, dtype=np.int32)
    np.maximum.at(newest, key, commit)
    own = commit == newest[key]
    return rows if own.all() else rows.select(own)


@remembered_few
def rows_at(results: Results, machine: str, commit: str) -> RowTable:
    """Return the rows of one commit (its full hash)."""
    commits = results.commits(machine)
    if commits and commit == commits[-1].hash:
        # At the machine's newest commit, the newest rows serve both queries, so they are read once.
        rows = newest_rows(results, machine)
        own = rows.columns["commit"] == len(commits) - 1
        return rows if own.all() else rows.select(own)
    return _table(results, machine, results.columns(machine, SHARED, commit))


def rows_over(results: Results, machine: str, series: Iterable[Series], texts: bool = True) -> RowTable:
    """Return every row of these series of a machine, by series, then oldest first.

    Args:
        results: the results of all machines.
        machine: the machine of the series.
        series: the series.
        texts: whether to read the notes and reasons.
    """
    names = SHARED if texts else tuple(name for name in SHARED if name not in TEXTS)
    return _table(results, machine, results.columns(machine, names, series=series))


def rows_of(results: Results, series: Iterable[Series]) -> list[Row]:
    """Return every row of the given series, sorted by machine, by series, then oldest first."""
    of: dict[str, list[Series]] = {}
    for each in series:
        of.setdefault(each.machine, []).append(each)
    return [row for name in results.machines if name in of for row in rows_over(results, name, of[name])]


def _table(results: Results, machine: str, points: Columns) -> RowTable:
    """Return the points as rows, in the order of the points. A latency and a speedup of one commit become one row."""
    shared = _machine(results, machine)
    index = shared.index
    if not points:
        return RowTable(shared, no_columns())
    key, part = index.key_at[points["rank"]], index.part_at[points["rank"]]
    # The record's values are stored with both points. The state of the row is the state of its latency.
    ratio = part == PARTS.index("speedup")
    row, count = _rows_of_points(key, points["commit"])
    main = np.empty(count, dtype=np.intp)
    for some in (ratio, ~ratio):
        main[row[some]] = np.flatnonzero(some)
    shown = [name for name in SHARED if name in points]
    columns = {name: points[name][main] for name in ("rank", "commit", *shown)} | {"key": key[main]}
    for name in TEXTS:
        columns[name] = _interned(columns[name]) if name in columns else _without_text(count)
    for code, name in enumerate(PARTS):
        own = np.flatnonzero(part == code)
        if len(own):
            columns |= _numbers(name, {end: points[end][own] for end in _ENDS}, row[own], count)
    return RowTable(shared, columns)


def _rows_of_points(key: Ints, commit: Ints) -> tuple[Indices, int]:
    """Return the index of each point's row, and the number of rows. A row is a key at a commit."""
    pairs = key.astype(np.int64) << 32 | commit
    _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.intp)
    place[np.argsort(first)] = np.arange(len(first))
    return place[inverse], len(first)


def _numbers(part: Part, points: Columns, row: Indices, count: int) -> dict[str, Floats]:
    """Return the four columns of a number, from the points that have the number."""
    values = points["value"]
    known = ~np.isnan(values) if part == "value" else values > 0
    found = {}
    for name, end in zip(interval_names(part), _ENDS, strict=True):
        column = np.full(count, np.nan)
        column[row] = np.where(known, points[end], np.nan)
        found[name] = column
    return found


def _without_text(count: int) -> NDArray[Any]:
    texts = np.empty(count, dtype=object)
    texts.fill("")
    return texts


def _interned(texts: NDArray[Any]) -> NDArray[Any]:
    """Replace equal texts by one object, in place, and return the texts."""
    seen: dict[str, str] = {}
    texts[:] = [seen.setdefault(text, text) for text in texts.tolist()]
    return texts
