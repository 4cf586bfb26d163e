"""Turn on SQLite's write-ahead log, with which readers do not wait for a writer."""

from __future__ import annotations

import sqlite3
import time


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
