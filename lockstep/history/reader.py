"""Query the parts of one machine with DuckDB."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from lockstep.history.cache_folder import StoreError
from lockstep.history.model import STATES, Floats, Ints
from lockstep.history.parquet import PartChecks
from lockstep.history.point_columns import COLUMNS
from lockstep.history.repeats import averaged
from lockstep.timing.intervals import standard_error

#: Half the width of a normal distribution's 99 % interval, in standard errors. It turns asv's interval into an error.
#: asv takes its interval from order statistics or a Laplace posterior (``asv.statistics.compute_stats``), so the error
#: is only a scale and not good enough for a test.
ASV_QUANTILE = 2.5758

#: Up to this number of runs, a query for series names the runs, and the series as a range. That is faster.
_FEW = 64

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "160MB",
    "threads": "2",
    "preserve_insertion_order": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


@dataclass(frozen=True, eq=False)
class Source:
    """Where the points of a machine are stored, and which of the stored runs belong to the machine.

    Attributes:
        folder: the folder of the parquet files.
        names: for each id, the name of the file that holds its points. The file may also hold points of other machines,
            and of runs that were replaced.
        ids: this machine's run numbers, ascending.
        commits: for each id, the index of its commit in ``MachineIndex.commits``, followed by those apart.
        runs: for each id, its index in ``Results.runs``.
        ranks: for each id, the number of earlier measurements of the same commit (0 for the first).
    """

    folder: Path
    names: NDArray[Any]
    ids: NDArray[np.int64]
    commits: Ints
    runs: Ints
    ranks: Ints

    @cached_property
    def parts(self) -> tuple[Path, ...]:
        """The parquet files."""
        return tuple(self.folder / name for name in sorted(set(self.names.tolist())))

    def between(self, first: int, end: int) -> Source:
        """Return the source of the points at the commits from ``first`` up to ``end``, without it."""
        chosen = (first <= self.commits) & (self.commits < end)
        arrays: dict[str, Any] = {
            name: column[chosen] for name, column in vars(self).items() if isinstance(column, np.ndarray)
        }
        return replace(self, **arrays)

    def in_order(self, columns: Rows, kept: NDArray[Any]) -> Rows:
        """Return the machine's points among the rows ``kept``, one for each series and commit, in this order.

        The column "run" then has indices in ``Results.runs``, and "commit" those in ``MachineIndex.commits``. Repeated
        measurements of a commit are replaced by their means. ``columns`` is emptied, because both may be large.
        """
        place = np.searchsorted(self.ids, columns["run"][kept]).clip(max=len(self.ids) - 1)
        belongs = self.ids[place] == columns["run"][kept]
        kept, place = kept[belongs], place[belongs]
        order = np.lexsort((self.ranks[place], self.commits[place], columns["series"][kept]))
        kept, place = kept[order], place[order]
        points = {name: columns.pop(name)[kept] for name in tuple(columns)}
        points |= {"run": self.runs[place], "commit": self.commits[place]}
        if not self.ranks.any() or not len(kept):
            return points
        return averaged(points, np.append(False, (np.diff(points["commit"]) == 0) & (np.diff(points["series"]) == 0)))


#: Columns of points by name, of equal length. Texts and samples are Python objects.
Rows = dict[str, NDArray[Any]]


class Reader:
    """Runs queries on the cache's parquet files. Threads do not wait for one another: each query has its own cursor.

    Args:
        spill: folder for intermediate data that does not fit in memory.
        checks: verifies each part before a query reads it.
    """

    def __init__(self, spill: Path, checks: PartChecks) -> None:
        self._checks = checks
        self._settings = _SETTINGS | {"temp_directory": str(spill)}
        self._lock = threading.Lock()
        #: By process, because a fork copies no threads of DuckDB. A forked process never closes its parent's
        #: connection, which would wait for those threads.
        self._connections: dict[int, duckdb.DuckDBPyConnection] = {}

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            connection = self._connections.get(os.getpid())
            if connection is None:
                connection = self._connections[os.getpid()] = duckdb.connect(":memory:", config=self._settings)
                # GLOBAL, because a cursor does not take over the connection's own settings.
                connection.execute("SET GLOBAL parquet_metadata_cache = true")
            return connection.cursor()

    def rows(
        self,
        source: Source,
        series: Sequence[int] = (),
        runs: Sequence[int] = (),
        names: Collection[str] = COLUMNS.keys(),
    ) -> Rows:
        """Return the points of some series, or of some runs, as columns; see ``Source.in_order`` for their order.

        Args:
            series, runs: the stored numbers of the series or of the runs; give one of the two.
            names: the names of the columns. They must include the columns that identify a row and those that hold its
                number with its interval. A ratio must come with its interval.
        """
        few = bool(series) and len(source.ids) <= _FEW
        condition = f"series {_among(series)}" if series else f"run IN ({_listed(runs)})"
        if few:
            span = f"series BETWEEN {min(series)} AND {max(series)}"
            condition = f"{span} AND run IN ({_listed(source.ids.tolist())})"
        sql = f"SELECT {', '.join(names)} FROM read_parquet(?) WHERE {condition}"
        columns = self._ask(sql, source)
        kept = np.flatnonzero(np.isin(columns["series"], series)) if few else np.arange(len(columns["run"]))
        return source.in_order(columns, kept)

    def latest(self, source: Source, count: int, names: Collection[str] = COLUMNS.keys()) -> Rows:
        """Return each series' newest point.

        Args:
            source: all points of the machine.
            count: the number of the machine's series.
        """
        newest = self.rows(source, runs=source.ids[source.commits == source.commits.max()].tolist(), names=names)
        # If every series was measured at the newest commit, the millions of older points need not be read.
        if len(newest["series"]) == count:
            return newest
        sql = """
            SELECT series, max(place) AS place
            FROM read_parquet(?) JOIN (SELECT unnest(?::INTEGER[]) AS run, unnest(?::INTEGER[]) AS place) USING (run)
            GROUP BY series
        """
        last = self._ask(sql, source, source.ids.tolist(), source.commits.tolist())
        parts = []
        for place in np.unique(last["place"]).tolist():
            rows = self.rows(source, runs=source.ids[source.commits == place].tolist(), names=names)
            belongs = np.isin(rows["series"], last["series"][last["place"] == place])
            parts.append({name: values[belongs] for name, values in rows.items()})
        return {name: np.concatenate([part.pop(name) for part in parts]) for name in tuple(parts[0])} if parts else {}

    def _ask(self, sql: str, source: Source, *parameters: list[int]) -> dict[str, Any]:
        """Return the columns that a query selects. Its first parameter is the list of the source's parts."""
        for part in source.parts:
            self._checks.verify(part)
        try:
            rows = self._cursor().execute(sql, [list(map(str, source.parts)), *parameters]).fetchnumpy()
        except duckdb.Error as error:
            for part in source.parts:  # perhaps a part was deleted or damaged meanwhile
                self._checks.verify(part)
            raise StoreError(f"DuckDB cannot query the cache {source.folder.parent}: {error}") from error
        # DuckDB stores a NaN of NumPy as null.
        return {
            name: np.ma.filled(values, np.nan) if values.dtype == float else values for name, values in rows.items()
        }


def errors(column: Mapping[str, NDArray[Any]]) -> Floats:
    """Return the standard errors of log("value"), from the intervals; NaN if unknown.

    A point in the state "bare" has asv's 99 % interval, and any other point Lockstep's 95 % interval.
    """
    bare = column["state"] == STATES.index("bare")
    interval_errors = standard_error(column["low"], column["high"], column["epochs"])
    with np.errstate(divide="ignore", invalid="ignore"):
        asvs = np.log(column["high"] / column["low"]) / (2 * ASV_QUANTILE)
    return np.where(bare, asvs, interval_errors)


def log_ratios(column: Mapping[str, NDArray[Any]]) -> Floats:
    """Return the logarithms of the ratios that come from paired rounds; NaN for other points."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs: Floats = np.log(column["ratio"])
    return logs


def _among(series: Sequence[int]) -> str:
    """Return the condition that a row belongs to one of these series."""
    # For a list of several numbers, DuckDB decodes every row of a row group; for a join, only rows that match.
    return f"IN (SELECT unnest([{_listed(series)}]))" if len(series) > 1 else f"IN ({_listed(series)})"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(int(number)) for number in numbers)
