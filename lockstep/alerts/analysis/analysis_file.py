"""Open the SQLite file that holds the analyses of a results store.

The file is derived from the results, so it may be deleted at any time. The name of its folder has a digest of the code,
so other code has another file. A transaction is written whole or not at all, so a process may be killed at any moment.
Readers do not wait for the writer. If the file is damaged, the whole cache is moved aside, as for any other damage.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from lockstep.history.cache_folder import DamagedCache, StoreError, identity, move_aside
from lockstep.history.trouble import refused_by_disk

#: Seconds to wait for another writer.
_PATIENCE = 60.0

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


class MissingAnalyses(StoreError):
    """The requested analysis is not in the file of analyses, or there is no file yet."""


class AnalysisFile:
    """The file of one store's analyses. Threads and processes may share it; one process writes at a time.

    Args:
        cache: the store's cache folder (``Store.cache``).
    """

    def __init__(self, cache: Path) -> None:
        self.path = cache / "analyses.sqlite"
        self._lock = threading.RLock()
        #: By process, the file (its inode) and the connection. A forked process never closes its parent's connection.
        self._connections: dict[int, tuple[int, sqlite3.Connection]] = {}

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open a view that shows the file at one moment.

        The connection stays open between calls, so a disk that becomes full or read-only does not end reading.

        Raises:
            MissingAnalyses: there is no file yet.
            DamagedCache: the file is damaged.
            StoreError: the disk refuses to read.
        """
        with self._lock, self._errors():
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
        except (sqlite3.DatabaseError, zlib.error) as error:
            if not isinstance(error, zlib.error) and (not is_damage(error) or refused_by_disk(error, cache)):
                raise self._refused(error) from error
            _, connection = self._connections.pop(os.getpid(), (None, None))
            if connection is not None:
                connection.close()
            move_aside(cache, folder, f"{self.path.name}: {error}")
            raise DamagedCache(f"the cache {cache} was damaged ({error}), and is made again: try again") from error
        except FileNotFoundError as error:
            raise MissingAnalyses(f"there is no analysis of these results in {cache} yet") from error
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> StoreError:
        reason = refused_by_disk(error, self.path.parent) or f"{error}: choose another folder"
        return StoreError(f"the cache {self.path.parent} cannot be used: {reason}")


def packed(content: bytes, level: int = 1) -> bytes:
    """Return bytes compressed and with a checksum, for ``unpacked``. Level 0 only adds the checksum."""
    return zlib.compress(content, level)


def unpacked(content: bytes) -> bytes:
    """Return the bytes that ``packed`` converted. Within ``AnalysisFile.reading``, damage is found and handled."""
    return zlib.decompress(content)


def is_damage(error: Exception) -> bool:
    """Return whether an error of SQLite means that the file is damaged, or that its disk is full ("disk I/O error").

    A mistake of the caller does not mean that.
    """
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    mistake = isinstance(error, sqlite3.ProgrammingError)
    return isinstance(error, sqlite3.DatabaseError) and not mistake and code not in _NOT_DAMAGE
