"""Open the database of the alerts: a SQLite file in the user's data folder by default, or PostgreSQL by URL.

Only one transaction writes at a time, by SQLite's ``BEGIN IMMEDIATE`` or a PostgreSQL advisory lock. So if two
processes analyse the same results, the second finds the alerts of the first. If a process is killed, the database
undoes its unfinished transaction.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, select, text
from sqlalchemy.exc import ArgumentError, DatabaseError, InterfaceError, OperationalError

from lockstep.alerts.database.alert_row import DamagedContent
from lockstep.alerts.database.schema import VERSION
from lockstep.processes.exit_status import Unusable
from lockstep.processes.trouble import refused_by_disk

#: All layouts, the newest last. ``lockstep.alerts.database.layouts`` converts the others to it.
LAYOUTS = ("0001", "0002", "0003", "0004", "0005")

#: Seconds to wait for another writer.
_PATIENCE = 30.0

#: Seconds to wait for a PostgreSQL server to answer at all.
_CONNECT_S = 5

#: Number of the PostgreSQL advisory lock: "Lockstep" in ASCII, which other programs are unlikely to use.
_ADVISORY_LOCK = int.from_bytes(b"Lockstep", "big")


class StateError(Unusable):
    """The database cannot be used. The message says why and what to do, and never contains a password."""


class Database:
    """An open database in the newest layout.

    Args:
        where: a file, or a URL (``postgresql://user@host/name``).

    Raises:
        StateError: the database cannot be reached, is of another kind, or has a newer layout.
    """

    def __init__(self, location: str | Path) -> None:
        self._url = _url(location)
        with self._errors_explained("opened"):
            self._engine = _engine(self._url)
            self._migrate()

    def __str__(self) -> str:
        return self._url.database or "" if self._sqlite else self._url.render_as_string(hide_password=True)

    @property
    def _sqlite(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    def close(self) -> None:
        """Close all connections to the database."""
        self._engine.dispose()

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a connection that sees one consistent state of the database. It does not wait for writers."""
        with self._errors_explained(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that excludes other writers; an exception rolls it back."""
        alone = self._engine.execution_options(begin="IMMEDIATE")
        with self._errors_explained(), alone.begin() as connection:
            if not self._sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
            yield connection

    @contextlib.contextmanager
    def _errors_explained(self, use: str = "used") -> Iterator[None]:
        try:
            yield
        except (OperationalError, InterfaceError, ImportError, OSError) as error:
            raise StateError(f"the alert database at {self} cannot be {use}: {self._reason(error)}") from error
        except (DatabaseError, DamagedContent, JSONDecodeError, UnicodeDecodeError) as error:
            # SQLAlchemy has subclasses of ``DatabaseError`` for wrong statements, which are our mistakes.
            if isinstance(error, DatabaseError) and type(error) is not DatabaseError:
                raise
            raise StateError(
                f"the alert database at {self} is damaged: {self._reason(error)}. Restore a backup, or move the "
                "database away to begin with a new one (docs/alerts.md#backup)"
            ) from error

    def _reason(self, error: Exception) -> str:
        refused = refused_by_disk(error, Path(self._url.database or "").parent) if self._sqlite else ""
        return refused or str(getattr(error, "orig", None) or error).strip().splitlines()[0]

    def _migrate(self) -> None:
        with self._engine.connect() as connection:
            if _layout(connection) == LAYOUTS[-1]:
                return
        # Imported here, because most starts have nothing to convert.
        from lockstep.alerts.database.layouts import create_or_convert

        with self.write() as connection:
            # Another process may have converted the database meanwhile.
            layout = _layout(connection)
            if layout not in (None, *LAYOUTS):
                raise StateError(
                    f"the alert database at {self} was written by another version of Lockstep (its layout is {layout}, "
                    f"and this version knows {', '.join(LAYOUTS)}): use that version, or move the database away to "
                    "begin with a new one"
                )
            if layout != LAYOUTS[-1]:
                create_or_convert(connection, LAYOUTS[-1])


def _url(location: str | Path) -> URL:
    if isinstance(location, Path) or "://" not in location:
        return URL.create("sqlite", database=str(Path(location).absolute()))
    try:
        url = make_url(location)
    except ArgumentError as error:
        raise StateError(
            "--state (or LOCKSTEP_STATE) is not a database URL; write postgresql://user:password@host/name or a file"
        ) from error
    kinds = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
    kind = kinds.get(url.drivername, url.drivername)
    if kind not in kinds.values():
        raise StateError(f"Lockstep does not support {url.drivername} databases: use sqlite or postgresql")
    return url.set(drivername=kind)


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": _CONNECT_S})
    if url.database and url.database != ":memory:":
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": _PATIENCE})

    @event.listens_for(engine, "connect")
    def settle(connection: Any, record: Any) -> None:
        # The driver must not begin transactions itself: it begins deferred ones, which may fail at their first write.
        connection.isolation_level = None
        _keep_write_ahead_log(connection)
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        mode = connection.get_execution_options().get("begin", "DEFERRED")
        connection.exec_driver_sql(f"BEGIN {mode}")

    return engine


def _keep_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Turn on the write-ahead log of a database. The database file keeps the setting.

    The function retries because SQLite ignores its own timeout here. If several connections turn on the log of a new
    database, SQLite refuses all but one of them at once, because each holds a read lock and would wait for the others
    (sqlite3_busy_handler in SQLite's manual).

    """
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
        time.sleep(0.01)


def _layout(connection: Connection) -> str | None:
    """Return the layout of a database; ``None`` if it has no tables yet."""
    if not inspect(connection).has_table(VERSION.name):
        return None
    layout: str | None = connection.scalar(select(VERSION.c.version_num))
    return layout
