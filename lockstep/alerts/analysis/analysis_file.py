"""The SQLite file that holds the analyses of a results store: changes, alerts, and the detector's states.

The file is derived from the results, so it may be deleted at any time. The name of its folder has a digest of the code,
so other code has another file. A transaction is written whole or not at all, so a process may be killed at any moment.
Readers wait for the writer only while it commits. If the file is damaged, the whole cache is moved aside, as for any
other damage.
"""

from __future__ import annotations

import math
import sqlite3
import time
import zlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json

from lockstep.alerts.cause.found_change import Cause
from lockstep.alerts.model import Alert, FoundChange
from lockstep.detect import Analysis
from lockstep.detect.series_state import SeriesState
from lockstep.history.cache_folder import DamagedCache, identity, move_aside, unusable
from lockstep.processes.trouble import refused_by_disk
from lockstep.record.series_name import SeriesName

#: Seconds to wait for another process.
_PATIENCE = 60.0

#: Seconds before analyses of earlier results are deleted, because pages may still read them.
_KEEP_S = 600.0

#: Result codes that do not mean damage: the file is locked, cannot be opened or cannot be written.
_NOT_DAMAGE = (
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL),
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM),
)

_TABLES = (
    """CREATE TABLE IF NOT EXISTS analysis (
        id INTEGER PRIMARY KEY, machine TEXT, state TEXT, ranges TEXT, at REAL, content BLOB,
        UNIQUE (machine, state, ranges)
    )""",
    """CREATE TABLE IF NOT EXISTS detector_state (
        analysis INTEGER REFERENCES analysis ON DELETE CASCADE, series INTEGER, version INTEGER, length INTEGER,
        checksum INTEGER, noise REAL, state BLOB, found BLOB, PRIMARY KEY (analysis, series, version)
    ) WITHOUT ROWID""",
)

#: Fields that many changes share. Each value is stored once, and a change refers to it by its index.
_SHARED = ("series", "cause", "between")


@dataclass(frozen=True)
class MachineAnalysis:
    """What an analysis found on a machine, before the thresholds decide which changes are reported.

    Attributes:
        changes: the changes of all series; those of one series and benchmark version follow each other, oldest first.
        freshness: the freshness alerts, without that of a silent machine.
        series: number of series that have a number, by family and suite.
        levels: the third oldest and the third newest commit at which each family was measured.
        id: the number of the analysis in the file; 0 if it is not stored.
    """

    machine: str
    changes: tuple[FoundChange, ...]
    freshness: tuple[Alert, ...]
    series: Mapping[tuple[str, str], int]
    levels: Mapping[str, tuple[str, str]]
    id: int = 0


@dataclass(frozen=True)
class DetectedSeries:
    """What the detector found in a series, and the state from which it continues: a row of ``detector_state``.

    Attributes:
        series, version: the number of the series and the index of its benchmark version, see ``Followed``.
        length: number of points that were analysed.
        checksum: checksum of these points.
    """

    series: int
    version: int
    length: int
    checksum: int
    found: Analysis
    state: SeriesState

    @property
    def noise(self) -> float:
        """Run-to-run noise (standard deviation of the logarithm); NaN if unknown or without logarithms."""
        return self.found.noise.scale if self.found.noise.measure == "ratio" else math.nan


#: What an earlier analysis left of a series: length, checksum and state, see ``DetectedSeries``.
Known = tuple[int, int, bytes]


class AnalysisFile:
    """The file of one store's analyses. Threads and processes may share it; one process writes at a time.

    Findings and states are compressed, with a checksum.

    ``cache``: the store's cache folder (``Store.cache``).
    """

    def __init__(self, cache: Path) -> None:
        self.path = cache / "analyses.sqlite"

    def newest(self, machine: str, state: str, ranges: str | None = None) -> MachineAnalysis | None:
        """Return the newest analysis of a machine; ``None`` if the file has none of these results.

        Args:
            state: see ``Results.state``.
            ranges: a text that changes whenever the ranges of commits may; ``None`` for any ranges.
        """
        query = "SELECT id, content FROM analysis WHERE (machine, state) = (?, ?) AND ranges = coalesce(?, ranges)"
        with self.reading() as connection:
            row = connection.execute(f"{query} ORDER BY id DESC", (machine, state, ranges)).fetchone()
            if row is None:
                return None
            values, rows, freshness, counts, levels = _content().validate_json(zlib.decompress(row[1]))
        shared = dict(zip(_SHARED, values, strict=True))
        changes = (FoundChange(**row | {name: of[row[name]] for name, of in shared.items()}) for row in rows)
        series = {(family, suite): number for family, suite, number in counts}
        return MachineAnalysis(machine, tuple(changes), freshness, series, levels, row[0])

    def known(self, machine: str) -> dict[tuple[int, int], Known]:
        """Return what the last analysis of a machine left, by the number of the series and its version."""
        query = (
            "SELECT series, version, length, checksum, state FROM detector_state"
            " WHERE analysis = (SELECT max(id) FROM analysis WHERE machine = ?)"
        )
        with self.reading() as connection:
            rows = connection.execute(query, (machine,))
            return {tuple(key): (length, checksum, zlib.decompress(state)) for *key, length, checksum, state in rows}

    def analysed_at(self) -> dict[tuple[str, str], float]:
        """Return when each machine was analysed, in seconds since 1970, by the machine and ``Results.state``."""
        with self.reading() as connection:
            rows = connection.execute("SELECT machine, state, max(at) FROM analysis GROUP BY machine, state")
            return {(machine, state): at for machine, state, at in rows}

    def noise(self, analysis: int) -> list[tuple[int, int, float | None]]:
        """Return number, version and noise of each series of an analysis, the versions in order."""
        query = "SELECT series, version, noise FROM detector_state WHERE analysis = ? ORDER BY version"
        with self.reading() as connection:
            return connection.execute(query, (analysis,)).fetchall()

    def found(self, analysis: int, series: int, version: int) -> Analysis | None:
        """Return what the detector found in a series; ``None`` if the file does not hold it."""
        query = "SELECT found FROM detector_state WHERE (analysis, series, version) = (?, ?, ?)"
        with self.reading() as connection:
            row = connection.execute(query, (analysis, series, version)).fetchone()
            return _analysis().validate_json(zlib.decompress(row[0])) if row else None

    def add(self, analysis: MachineAnalysis, state: str, ranges: str, detected: Sequence[DetectedSeries]) -> None:
        """Write an analysis of a machine, for ``newest`` and ``known``; delete those that it replaces."""
        shared: dict[str, dict[Hashable, int]] = {name: {} for name in _SHARED}
        changes = [
            vars(change) | {name: of.setdefault(getattr(change, name), len(of)) for name, of in shared.items()}
            for change in analysis.changes
        ]
        series = [(*name, number) for name, number in analysis.series.items()]
        content = _packed([[list(of) for of in shared.values()], changes, analysis.freshness, series, analysis.levels])
        with self.writing() as connection:
            cursor = connection.execute(
                "INSERT OR IGNORE INTO analysis (machine, state, ranges, at, content) VALUES (?, ?, ?, ?, ?)",
                (analysis.machine, state, ranges, time.time(), content),
            )
            if not cursor.rowcount:
                return
            number = cursor.lastrowid
            rows = (
                (
                    *(number, one.series, one.version, one.length, one.checksum, one.noise),
                    *(zlib.compress(one.state.to_bytes(), level=0), _packed(one.found)),
                )
                for one in detected
            )
            connection.executemany("INSERT INTO detector_state VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            old = "DELETE FROM analysis WHERE machine = ? AND id != ? AND at < ?"
            connection.execute(old, (analysis.machine, number, time.time() - _KEEP_S))

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open a view that shows the file at one moment. Without a file, or before its first commit, it is empty.

        Raises:
            DamagedCache: the file is damaged.
            StoreError: the disk refuses to read.
        """
        with self._errors():
            written = self.path.exists() and self.path.stat().st_size
            with closing(sqlite3.connect(self.path if written else ":memory:", _PATIENCE, 0, None)) as connection:
                connection.execute("BEGIN")
                # A process that was killed in the first transaction left a file that SQLite makes empty again.
                empty = not connection.execute("SELECT 1 FROM sqlite_master").fetchone()
                for table in _TABLES if empty else ():
                    connection.execute(table.replace("CREATE", "CREATE TEMP", 1))
                yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction that writes the file, which is created if necessary.

        Raises:
            DamagedCache: the file is damaged.
            StoreError: the disk refuses to write.
        """
        with self._errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, _PATIENCE, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = NORMAL")
                # A transaction that outgrew SQLite's cache would lock readers out before it commits.
                connection.execute("PRAGMA cache_spill = OFF")
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("BEGIN IMMEDIATE")
                for table in _TABLES:
                    connection.execute(table)
                yield connection
                connection.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise every error as a ``StoreError``, and move the cache aside if the file is damaged."""
        folder = identity(self.path.parent)
        try:
            yield
        except (sqlite3.DatabaseError, zlib.error, OSError) as error:
            cache = self.path.parent
            # SQLite also calls a file damaged that it cannot read.
            if not isinstance(error, zlib.error) and (not is_damage(error) or refused_by_disk(error, cache)):
                raise unusable(cache, error) from error
            move_aside(cache, folder, f"{self.path.name}: {error}")
            raise DamagedCache(f"the cache {cache} was damaged ({error}), and is made again: try again") from error


@cache
def _content() -> TypeAdapter[Any]:
    """Return the converter of the content of an analysis, see ``AnalysisFile.add``."""
    shared = tuple[list[SeriesName], list[Cause], list[tuple[str, ...]]]
    counts = list[tuple[str, str, int]]
    return TypeAdapter(tuple[shared, list[dict[str, Any]], tuple[Alert, ...], counts, dict[str, tuple[str, str]]])


@cache
def _analysis() -> TypeAdapter[Analysis]:
    return TypeAdapter(Analysis)


def _packed(content: Any) -> bytes:
    """Return a content as JSON, compressed and with a checksum."""
    return zlib.compress(to_json(content, inf_nan_mode="constants"), 1)


def is_damage(error: Exception) -> bool:
    """Return whether an error of SQLite means that the file is damaged, or that its disk is full ("disk I/O error").

    A mistake of the caller does not mean that.
    """
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    mistake = isinstance(error, sqlite3.ProgrammingError)
    return isinstance(error, sqlite3.DatabaseError) and not mistake and code not in _NOT_DAMAGE
