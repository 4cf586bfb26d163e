"""DuckDB over the parts of one machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from lockstep.history.columns import BLANKS, COLUMNS, DTYPES, Kind
from lockstep.history.model import STATES, Floats, Ints
from lockstep.history.repeats import averaged
from lockstep.timing.intervals import standard_error

#: Half the width of asv's 99 % interval in standard errors, were it a normal one. asv takes the interval from order
#: statistics or a Laplace posterior (``asv.statistics.compute_stats``): this is a scale, not a test.
ASV_QUANTILE = 2.5758

#: Points that are in memory at once while trends are read; one takes about 200 bytes.
_AT_ONCE = 300_000

#: Series up to which each is looked up by itself; more are read as a range.
_FEW = 64

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "160MB",
    "threads": "2",
    "preserve_insertion_order": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}

_NUMBERS = "series, run, version, state, value, low, high, ratio, ratio_low, ratio_high, epochs, mde, number, repeat"


@dataclass(frozen=True, eq=False)
class Source:
    """Where a machine's points lie, and which of them are its own.

    Attributes:
        parts: parquet files; they may also hold points of superseded runs or of other machines.
        ids: this machine's run numbers, ascending.
        runs: for each id, its index in ``Results.runs``.
        commits: for each id, the index of its commit in ``Results.commits(machine)``.
        ranks: for each id, how many earlier measurements of the same commit there are (0 for the first).
    """

    parts: tuple[Path, ...]
    ids: NDArray[np.int64]
    runs: Ints
    commits: Ints
    ranks: Ints

    def in_order(self, runs: NDArray[Any], series: NDArray[Any], kept: NDArray[Any]) -> NDArray[np.intp]:
        """Those of the rows ``kept`` that are the source's, by series, commit and rank."""
        place, own = lookup(self.ids, runs)
        kept = kept[own[kept]]
        place = place[kept]
        ordered: NDArray[np.intp] = kept[np.lexsort((self.ranks[place], self.commits[place], series[kept]))]
        return ordered

    def averaged(self, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Rows in order, with repeated measurements as one."""
        if not self.ranks.any() or not len(columns["run"]):
            return columns
        commits = self.commits[lookup(self.ids, columns["run"])[0]]
        same = np.append(False, (np.diff(commits) == 0) & (np.diff(columns["series"]) == 0))
        return averaged(columns, same)


@dataclass(frozen=True, eq=False)
class Numbers:
    """Columns of several series, one after the other and each in the order of commits; see ``Trend``.

    ``starts`` holds the place of each series' first point, and the length at its end; ``series`` and ``version`` the
    stored numbers; ``baseline`` the variant that a ratio refers to ("" none), where it was asked for.
    """

    starts: list[int]
    series: NDArray[np.int64]
    commit: Ints
    run: Ints
    version: NDArray[np.int64]
    state: NDArray[np.uint8]
    value: Floats
    low: Floats
    high: Floats
    error: Floats
    log_ratio: Floats
    ratio_error: Floats
    mde: Floats
    number: Ints
    repeat: Ints
    baseline: NDArray[Any] | None = None


#: Columns of points by name, of one length; texts and samples are objects.
Rows = dict[str, NDArray[Any]]


class StoreError(Exception):
    """The cache cannot be used; the message says where it is and what to do."""


class Reader:
    """Queries; each has a cursor of its own, so that threads need not wait for one another.

    Args:
        spill: folder for what does not fit in memory.
    """

    def __init__(self, spill: Path) -> None:
        self._settings = _SETTINGS | {"temp_directory": str(spill)}
        self._lock = threading.Lock()
        self._process = 0
        self._connection: duckdb.DuckDBPyConnection | None = None

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            # A server may fork after this was made, and DuckDB's threads stay behind.
            if self._connection is None or self._process != os.getpid():
                self._process = os.getpid()
                self._connection = duckdb.connect(":memory:", config=self._settings)
                self._connection.execute("SET parquet_metadata_cache = true")
            return self._connection.cursor()

    def numbers(self, source: Source, series: Sequence[int]) -> Iterator[Numbers]:
        """Numbers of these series (rising), a portion at a time; series without a point are left out."""
        portion = max(1, _AT_ONCE // max(1, len(source.ids)))
        for start in range(0, len(series), portion):
            yield _in_order(self._columns(source, series[start : start + portion]), source, series)

    def every(self, source: Source) -> Numbers:
        """All numbers of a source of few runs, and the variants that its ratios refer to."""
        sql = f"SELECT {_NUMBERS}, baseline FROM read_parquet(?) WHERE run IN ({_listed(source.ids.tolist())})"
        found = self._ask(sql, [_paths(source)]).fetchnumpy()
        return _in_order({name: _filled(values, COLUMNS[name]) for name, values in found.items()}, source)

    def rows(
        self,
        source: Source,
        series: Sequence[int] = (),
        runs: Sequence[int] = (),
        names: Collection[str] = COLUMNS.keys(),
    ) -> Rows:
        """Return points of these series, or of these runs (by their stored numbers).

        Args:
            source: the source of the points.
            series, runs: the series or the runs whose points are returned; give one of the two.
            names: the names of the columns; for a value that has an interval, both its ends as well.
        """
        column, wanted = ("series", series) if series else ("run", runs)
        sql = f"SELECT {', '.join(names)} FROM read_parquet(?) WHERE {column} IN ({_listed(wanted)})"
        found = self._ask(sql, [_paths(source)]).fetchnumpy()
        # Column by column: of a wide machine two copies of all take as much as the page.
        columns = {name: _filled(found.pop(name), COLUMNS[name]) for name in tuple(found)}
        own = source.in_order(columns["run"], columns["series"], np.arange(len(columns["run"])))
        return source.averaged({name: columns.pop(name)[own] for name in tuple(columns)})

    def latest(self, source: Source, count: int, names: Collection[str] = COLUMNS.keys()) -> Rows:
        """Return the point of every series at the last of the machine's commits that has one.

        Args:
            source: all points of the machine.
            count: the number of the machine's series.
            names: the names of the columns.
        """
        newest = self.rows(source, runs=source.ids[source.commits == source.commits.max()].tolist(), names=names)
        # Where the newest commit measured everything, the millions of older points need no look.
        if len(newest["series"]) == count:
            return newest
        sql = """
            SELECT series, max(place)
            FROM read_parquet(?) JOIN (SELECT unnest(?::INTEGER[]) AS run, unnest(?::INTEGER[]) AS place) USING (run)
            GROUP BY series
        """
        parameters = [_paths(source), source.ids.tolist(), source.commits.tolist()]
        last = self._ask(sql, parameters).fetchnumpy()
        series, places = last.values()
        parts = []
        for place in np.unique(places).tolist():
            rows = self.rows(source, runs=source.ids[source.commits == place].tolist(), names=names)
            own = np.isin(rows["series"], series[places == place])
            parts.append(rows if own.all() else {name: values[own] for name, values in rows.items()})
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part.pop(name) for part in parts]) for name in names} if parts else {}

    def _ask(self, sql: str, parameters: list[Any]) -> duckdb.DuckDBPyConnection:
        try:
            return self._cursor().execute(sql, parameters)
        except duckdb.Error as error:
            where = Path(parameters[0][0]).parents[1]
            raise StoreError(
                f"the cache {where} is damaged ({error}): delete that folder, and it is made anew"
            ) from error

    def _columns(self, source: Source, series: Sequence[int]) -> dict[str, Any]:
        where = f"IN ({_listed(series)})" if len(series) <= _FEW else f"BETWEEN {series[0]} AND {series[-1]}"
        if len(source.ids) <= _FEW:
            where += f" AND run IN ({_listed(source.ids.tolist())})"
        sql = f"SELECT {_NUMBERS} FROM read_parquet(?) WHERE series {where}"
        found = self._ask(sql, [_paths(source)]).fetchnumpy()
        return {name: np.ma.filled(values, BLANKS[COLUMNS[name]]) for name, values in found.items()}


def _in_order(found: dict[str, Any], source: Source, wanted: Sequence[int] | None = None) -> Numbers:
    """The source's own points of the series that are wanted (``None``: of all), by series and commit."""
    kept = np.arange(len(found["run"]))
    if wanted is not None:
        kept = np.flatnonzero(lookup(np.asarray(wanted, dtype=np.int64), found["series"])[1])
    kept = source.in_order(found["run"], found["series"], kept)
    column = source.averaged({name: values[kept] for name, values in found.items()})
    series, (place, _) = column["series"], lookup(source.ids, column["run"])
    ends = np.flatnonzero(np.append(np.diff(series), 1)) + 1 if len(series) else series
    return Numbers(
        starts=[0, *map(int, ends)],
        series=series,
        commit=source.commits[place],
        run=source.runs[place],
        error=errors(column),
        log_ratio=log_ratios(column),
        ratio_error=standard_error(column["ratio_low"], column["ratio_high"], column["epochs"]),
        baseline=column.get("baseline"),
        **{name: column[name] for name in ("version", "state", "value", "low", "high", "mde", "number", "repeat")},
    )


def errors(column: Mapping[str, NDArray[Any]]) -> Floats:
    """Standard errors of the logarithms of "value", NaN unknown: from our intervals, or asv's of "bare" points."""
    bare = column["state"] == STATES.index("bare")
    ours = standard_error(column["low"], column["high"], column["epochs"])
    with np.errstate(divide="ignore", invalid="ignore"):
        asvs = np.log(column["high"] / column["low"]) / (2 * ASV_QUANTILE)
    return np.where(bare, asvs, ours)


def log_ratios(column: Mapping[str, NDArray[Any]]) -> Floats:
    """Logarithms of the paired ratios, NaN unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.log(column["ratio"])
    return found


def _filled(values: NDArray[Any], kind: Kind) -> NDArray[Any]:
    """A column with what stands for nothing in place of nulls."""
    missing = np.ma.getmaskarray(values)
    if kind not in ("text", "samples"):
        return np.ma.filled(values.astype(DTYPES[kind]), BLANKS[kind])
    found = np.empty(len(values), dtype=object)
    found.fill(BLANKS[kind])
    there = np.ma.getdata(values)
    if kind == "text":
        found[~missing] = there[~missing]
        return found
    # An element at a time: the samples of a point are one value, and no row of several.
    for place in np.flatnonzero(~missing).tolist():
        found[place] = there[place]
    return found


def lookup(rising: NDArray[np.int64], values: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the place of each value among ``rising``, and whether it is there."""
    place = np.searchsorted(rising, values).clip(max=len(rising) - 1)
    return place, rising[place] == values


def _paths(source: Source) -> list[str]:
    return [str(path) for path in source.parts]


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(int(number)) for number in numbers)
