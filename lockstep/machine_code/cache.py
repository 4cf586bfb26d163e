"""Cache results in one file of the user's cache folder; everything in it can be computed again.

A kernel's machine code is stored under its identity; the cases of a suite under a digest of everything that decides
them. A file that cannot be read or written only costs time.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lockstep.processes.cache_folder import cache_folder

#: Format version; it is raised whenever the stored values change in form or meaning.
VERSION = 5
#: Seconds after which unused entries are deleted.
RETENTION_S = 60 * 24 * 3600


class Cache:
    """A file that stores results of tracing and compiling as JSON by key. Several processes may use it at once."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or cache_folder() / f"machine-code-{VERSION}.sqlite"

    def get(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the values stored under these keys; missing keys are left out."""
        values: dict[str, Any] = {}
        with contextlib.suppress(sqlite3.Error, OSError, ValueError, zlib.error), self._open() as database:
            for key in dict.fromkeys(keys):
                for (value,) in database.execute("SELECT value FROM kept WHERE key = ?", (key,)):
                    values[key] = json.loads(zlib.decompress(value))
            now = time.time()
            database.executemany("UPDATE kept SET used = ? WHERE key = ?", [(now, key) for key in values])
        return values

    def put(self, values: Mapping[str, Any]) -> None:
        """Store values by key, and delete entries that were not used for ``RETENTION_S``."""
        now = time.time()
        with contextlib.suppress(sqlite3.Error, OSError), self._open() as database:
            rows = [(key, zlib.compress(json.dumps(value).encode(), 3), now) for key, value in values.items()]
            database.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", rows)
            database.execute("DELETE FROM kept WHERE used < ?", (now - RETENTION_S,))

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Yield the database and commit at the end; delete a file that is not a database."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # The journal stays in SQLite's default mode: if several processes switch a new file to WAL at once, one of them
        # fails immediately with the error that the file is locked, whatever the timeout.
        with contextlib.closing(sqlite3.connect(self._path, timeout=10)) as database, database:
            try:
                database.execute("CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value BLOB, used REAL)")
            except sqlite3.OperationalError:
                raise  # locked, or the disk is full: the file itself may be intact
            except sqlite3.DatabaseError:
                self._path.unlink()
                raise
            yield database
