"""Turn on SQLite's write-ahead log. With the log, readers never wait."""

from __future__ import annotations

import sqlite3
import time


def keep_write_ahead_log(connection: sqlite3.Connection, patience: float) -> None:
    """Turn on the write-ahead log of a database. The setting is permanent.

    If several connections do this on a new database, SQLite refuses all but one at once, whatever the timeout: each
    holds a read lock and would wait for the others (sqlite3_busy_handler in SQLite's manual). So this function retries.

    Args:
        connection: a connection outside any transaction.
        patience: seconds to retry.

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
