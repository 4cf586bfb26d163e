"""What was found out before, in one file of the user's cache folder; everything in it can be found out again.

A kernel's machine code is kept under its identity, what a suite's cases do under a digest of all that decides it.
A file that cannot be read or written costs time and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

#: Raised whenever what is kept changes its form or its meaning.
VERSION = 2
#: Seconds after which what nobody asked for is forgotten.
KEPT = 60 * 24 * 3600
#: Seconds within which a use is not noted again.
RECENT = 24 * 3600


def cache_path() -> Path:
    """Where the file lies: ``LOCKSTEP_CACHE``, or ``lockstep`` in the user's cache folder."""
    folder = os.environ.get("LOCKSTEP_CACHE")
    if folder:
        return Path(folder) / f"machine-code-{VERSION}.sqlite"
    return user_cache_path("lockstep", appauthor=False) / f"machine-code-{VERSION}.sqlite"


class Cache:
    """Objects of JSON by key. Several processes may use it at once."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or cache_path()

    def get(self, keys: Iterable[str]) -> dict[str, Any]:
        """What is kept under these keys; those without anything are left out."""
        found: dict[str, Any] = {}
        with contextlib.suppress(sqlite3.Error, OSError, ValueError, zlib.error), self._open() as database:
            now = time.time()
            stale = []
            for key in dict.fromkeys(keys):
                row = database.execute("SELECT value, used FROM kept WHERE key = ?", (key,)).fetchone()
                if row is not None:
                    found[key] = json.loads(zlib.decompress(row[0]))
                    stale += [(now, key)] if now - row[1] > RECENT else []
            database.executemany("UPDATE kept SET used = ? WHERE key = ?", stale)
        return found

    def put(self, values: Mapping[str, Any]) -> None:
        """Keep these; what was not used for long is forgotten."""
        with contextlib.suppress(sqlite3.Error, OSError), self._open() as database:
            now = time.time()
            rows = [(key, zlib.compress(json.dumps(value).encode(), 3), now) for key, value in values.items()]
            database.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", rows)
            database.execute("DELETE FROM kept WHERE used < ?", (now - KEPT,))

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The database, its changes committed at the end; a file that is none is replaced."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(self._path, timeout=10)
        try:
            try:
                self._prepare(database)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise  # locked, or no room: the file itself may be in order
                database.close()
                self._path.unlink()
                database = sqlite3.connect(self._path, timeout=10)
                self._prepare(database)
            with database:
                yield database
        finally:
            database.close()

    @staticmethod
    def _prepare(database: sqlite3.Connection) -> None:
        # The journal is SQLite's usual one: of several that turn a new file to WAL at once, one is told at once that
        # it is locked, whatever the timeout.
        database.execute("CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value BLOB, used REAL)")
