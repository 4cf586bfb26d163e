"""SQLite's write-ahead log, with which readers wait for nobody."""

from __future__ import annotations

import sqlite3
import time


def keep_write_ahead_log(connection: sqlite3.Connection, patience: float) -> None:
    """Turn a database to it, which stays so.

    Of several that turn a new database at once SQLite tells all but one that it is locked, at once and whatever the
    connection's timeout: each holds the lock of a reader by then, and would wait for the others' to end
    (sqlite3_busy_handler of SQLite's manual).

    Args:
        connection: outside of any transaction.
        patience: seconds to try for.

    Raises:
        sqlite3.OperationalError: it is locked for longer, or cannot be written.
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
