"""Share a SQLite file among processes: readers do not wait for a writer, and damage is told from other errors."""

from __future__ import annotations

import sqlite3
import time

#: Result codes that do not mean damage: the file is locked, cannot be opened or cannot be written.
_NOT_DAMAGE = (
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL),
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM),
)


def is_damage(error: Exception) -> bool:
    """Return whether an error of SQLite means that the file is damaged, or that its disk is full ("disk I/O error").

    A mistake of the caller does not mean that.
    """
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    mistake = isinstance(error, sqlite3.ProgrammingError)
    return isinstance(error, sqlite3.DatabaseError) and not mistake and code not in _NOT_DAMAGE


def keep_write_ahead_log(connection: sqlite3.Connection, patience: float) -> None:
    """Turn on the write-ahead log of a database. The database file keeps the setting.

    The function retries because SQLite ignores its own timeout here. If several connections turn on the log of a new
    database, SQLite refuses all but one of them at once, because each holds a read lock and would wait for the others
    (sqlite3_busy_handler in SQLite's manual).

    Args:
        connection: a connection outside any transaction.
        patience: seconds for which to retry.

    Raises:
        sqlite3.OperationalError: the database stays locked, or cannot be written.
    """
    until = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
        time.sleep(0.01)
