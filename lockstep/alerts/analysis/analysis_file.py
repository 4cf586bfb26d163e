"""The SQLite file that holds the analyses of a results store: changes, alerts, and the detector's states.

The file is derived from the results, so it may be deleted at any time. The name of its folder has a digest of the code,
so other code has another file. A transaction is written whole or not at all, so a process may be killed at any moment.
Readers do not wait for the writer. If the file is damaged, the whole cache is moved aside, as for any other damage.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from lockstep.alerts.database.alert_row import cause_from_json, cause_json, from_json, to_json
from lockstep.alerts.model import Alert, FoundChange
from lockstep.detect import Analysis, Change, Level, Noise
from lockstep.detect.series_state import SeriesState
from lockstep.history.cache_folder import DamagedCache, identity, move_aside, unusable
from lockstep.processes.trouble import refused_by_disk
from lockstep.record.series_name import SeriesName

#: Seconds to wait for another writer.
_PATIENCE = 60.0

#: Seconds before analyses of earlier results are deleted, because pages may still read them.
_KEEP_S = 600.0

#: Result codes that do not mean damage: the file is locked, cannot be opened or cannot be written.
_NOT_DAMAGE = (
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL),
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM),
)

_TABLES = """
    CREATE TABLE analysis (
        id INTEGER PRIMARY KEY, machine TEXT, state TEXT, ranges TEXT, at REAL, content BLOB,
        UNIQUE (machine, state, ranges)
    );
    CREATE TABLE detector_state (
        analysis INTEGER REFERENCES analysis ON DELETE CASCADE, series INTEGER, version INTEGER, length INTEGER,
        checksum INTEGER, noise REAL, state BLOB, found BLOB, PRIMARY KEY (analysis, series, version)
    ) WITHOUT ROWID;
"""


#: Fields that many changes share, so that each value is stored once, and how it is converted to JSON and back.
_SHARED: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "series": (astuple, lambda content: SeriesName(*content)),
    "cause": (cause_json, cause_from_json),
    "between": (list, tuple),
}


@dataclass(frozen=True)
class MachineAnalysis:
    """What an analysis found on a machine, before the thresholds decide which changes are reported.

    Attributes:
        machine: the machine's name.
        changes: the changes of all series; those of one series and benchmark version follow each other, oldest first.
        freshness: the freshness alerts, without that of a silent machine.
        series: number of series that have a number, by family and suite.
        id: the number of the analysis in the file; 0 if it is not stored.
    """

    machine: str
    changes: tuple[FoundChange, ...]
    freshness: tuple[Alert, ...]
    series: Mapping[tuple[str, str], int]
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

    The detector's states and findings are compressed, with a checksum; ``_errors`` handles what the checksum finds.

    Args:
        cache: the store's cache folder (``Store.cache``).
    """

    def __init__(self, cache: Path) -> None:
        self.path = cache / "analyses.sqlite"
        self._lock = threading.RLock()
        #: By process, the file (its inode) and the connection. A forked process never closes its parent's connection.
        self._connections: dict[int, tuple[int, sqlite3.Connection]] = {}

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
            parts, changes, alerts, series = json.loads(zlib.decompress(row[1]))
            counts = {(family, suite): number for family, suite, number in series}
            freshness = tuple(map(from_json, alerts))
            return MachineAnalysis(machine, _changes_from_json(parts, changes), freshness, counts, row[0])

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
            return _found_from_json(zlib.decompress(row[0]).decode()) if row else None

    def add(self, analysis: MachineAnalysis, state: str, ranges: str, detected: Sequence[DetectedSeries]) -> None:
        """Write an analysis of a machine, for ``newest`` and ``known``; delete those that it replaces."""
        parts, changes = _changes_json(analysis.changes)
        alerts = [to_json(alert) for alert in analysis.freshness]
        series = [[*name, number] for name, number in analysis.series.items()]
        content = _packed(json.dumps([parts, changes, alerts, series]).encode())
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
                    *(_packed(one.state.to_bytes(), level=0), _packed(_found_json(one.found).encode())),
                )
                for one in detected
            )
            connection.executemany("INSERT INTO detector_state VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            old = "DELETE FROM analysis WHERE machine = ? AND id != ? AND at < ?"
            connection.execute(old, (analysis.machine, number, time.time() - _KEEP_S))

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open a view that shows the file at one moment; without a file, an empty one.

        The connection stays open between calls, so a disk that becomes full or read-only does not end reading.

        Raises:
            DamagedCache: the file is damaged.
            StoreError: the disk refuses to read.
        """
        with self._lock, self._errors():
            if not self.path.exists():
                with closing(sqlite3.connect(":memory:")) as empty:
                    empty.executescript(_TABLES)
                    yield empty
                return
            connection = self._opened()
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.rollback()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction that writes the file, which is created if necessary.

        Raises:
            DamagedCache: the file is damaged.
            StoreError: the disk refuses to write.
        """
        with self._lock, self._errors():
            if not self.path.exists():
                self._create()
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.rollback()
                raise
            # Move the log into the file, as far as no reader needs it. The next read finds any damage.
            with suppress(sqlite3.DatabaseError):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _create(self) -> None:
        """Create the file with its tables under another name, so that readers never see a file without tables."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.path.parent) as folder:
            made = Path(folder, self.path.name)
            with closing(sqlite3.connect(made, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(_TABLES)
            # link, unlike rename, fails where a file is.
            with suppress(FileExistsError):
                os.link(made, self.path)

    def _opened(self) -> sqlite3.Connection:
        inode = self.path.stat().st_ino
        known, connection = self._connections.get(os.getpid(), (None, None))
        if connection is None or known != inode:
            if connection is not None:  # its file was replaced
                connection.close()
            connection = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            self._connections[os.getpid()] = inode, connection
        return connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise every error as a ``StoreError``, and move the cache aside if the file is damaged."""
        cache = self.path.parent
        folder = identity(cache)
        try:
            yield
        except (sqlite3.DatabaseError, zlib.error, OSError) as error:
            # SQLite also calls a file damaged that it cannot read.
            if not isinstance(error, zlib.error) and (not is_damage(error) or refused_by_disk(error, cache)):
                raise unusable(cache, error) from error
            _, connection = self._connections.pop(os.getpid(), (None, None))
            if connection is not None:
                connection.close()
            move_aside(cache, folder, f"{self.path.name}: {error}")
            raise DamagedCache(f"the cache {cache} was damaged ({error}), and is made again: try again") from error


def _changes_json(changes: Iterable[FoundChange]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the shared values, each once, and the fields of each change, which refer to shared values by index."""
    places: dict[str, dict[Hashable, int]] = {name: {} for name in _SHARED}
    rows = [
        vars(change)
        | {name: of_name.setdefault(getattr(change, name), len(of_name)) for name, of_name in places.items()}
        for change in changes
    ]
    return {name: [to(part) for part in places[name]] for name, (to, _) in _SHARED.items()}, rows


def _changes_from_json(parts: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> tuple[FoundChange, ...]:
    """Return the changes that ``_changes_json`` converted."""
    shared = {name: [back(part) for part in parts[name]] for name, (_, back) in _SHARED.items()}
    return tuple(FoundChange(**{**row, **{name: shared[name][row[name]] for name in shared}}) for row in rows)


def _found_json(found: Analysis) -> str:
    """Return what the detector found in a series as JSON: each object as a list."""
    return json.dumps(found, default=lambda part: [getattr(part, name) for name in part.__slots__])


def _found_from_json(text: str) -> Analysis:
    """Return what ``_found_json`` converted."""
    changes, levels, noise, mde, unconfirmed = json.loads(text)
    return Analysis(
        changes=tuple(Change(*change) for change in changes),
        levels=tuple(Level(*level) for level in levels),
        noise=Noise(*noise),
        mde=mde,
        unconfirmed=unconfirmed and Change(*unconfirmed),
    )


def _packed(content: bytes, level: int = 1) -> bytes:
    """Return bytes compressed and with a checksum. Level 0 only adds the checksum."""
    return zlib.compress(content, level)


def is_damage(error: Exception) -> bool:
    """Return whether an error of SQLite means that the file is damaged, or that its disk is full ("disk I/O error").

    A mistake of the caller does not mean that.
    """
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    mistake = isinstance(error, sqlite3.ProgrammingError)
    return isinstance(error, sqlite3.DatabaseError) and not mistake and code not in _NOT_DAMAGE
