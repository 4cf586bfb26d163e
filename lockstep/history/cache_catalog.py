"""Store in SQLite which result files were read, and which parquet files ("parts") of the cache hold their points.

This manifest can be rebuilt from the results folder. A part and its runs are added in one transaction. So if a process
is killed, finished parts stay and the other files are read again.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, fields
from functools import cache
from pathlib import Path

from lockstep.history.cache_folder import DamagedCache
from lockstep.history.line import Line
from lockstep.history.model import Commit
from lockstep.history.problems import Problem
from lockstep.history.scan import Stamp
from lockstep.history.shared_sqlite import keep_write_ahead_log

#: Seconds to wait for another writer.
_PATIENCE = 60.0

_TABLES = """
    CREATE TABLE IF NOT EXISTS file (
        path TEXT PRIMARY KEY, mtime INTEGER, size INTEGER, beside_mtime INTEGER, beside_size INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS run (
        id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT UNIQUE, folder TEXT, "commit" TEXT, date INTEGER,
        environment TEXT, measured_at INTEGER, facts TEXT, controls TEXT, layout TEXT, points INTEGER, content TEXT,
        part TEXT
    );
    CREATE TABLE IF NOT EXISTS problem (path TEXT, shown TEXT, what TEXT, reason TEXT, weight TEXT);
    CREATE INDEX IF NOT EXISTS problem_path ON problem (path);
    CREATE TABLE IF NOT EXISTS part (name TEXT PRIMARY KEY, folder TEXT, rows INTEGER) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS layout (id TEXT PRIMARY KEY, series BLOB) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS series (id INTEGER PRIMARY KEY, benchmark TEXT, parameters TEXT);
    CREATE TABLE IF NOT EXISTS version (id INTEGER PRIMARY KEY, text TEXT);
    CREATE TABLE IF NOT EXISTS history (
        "commit" TEXT PRIMARY KEY, place INTEGER, subject TEXT, lines TEXT, fork TEXT, base TEXT, by_date INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS said (key TEXT PRIMARY KEY, text TEXT) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class RunRow:
    """A result file that was read.

    Attributes:
        id: the number that the file's points carry. When a file changes, it gets a new number. Its old points then
            belong to no run and are ignored, because numbers are never reused.
        facts, controls: conditions of the measurement as JSON texts. Equal facts give equal texts.
        layout: digest of the sorted numbers of the file's series.
        points: the number of points in the file.
        content: digest of the points: series number, value and time of each. Files with equal digests are copies.
        part: name of the parquet file that holds the points; "" if the file has no points.
    """

    id: int
    path: str
    folder: str
    commit: str
    date: int
    environment: str
    measured_at: int
    facts: str
    controls: str
    layout: str
    points: int
    content: str
    part: str = ""


@dataclass(frozen=True)
class Part:
    """A parquet file of the cache with points from one folder of the results."""

    name: str
    folder: str
    rows: int


@dataclass(frozen=True)
class Intake:
    """The data read from several result files. Their points are in one part (parquet file), or there are no points."""

    part: Part | None
    files: Mapping[str, Stamp]
    runs: Sequence[RunRow]
    problems: Sequence[tuple[str, Problem]]
    layouts: Mapping[str, bytes]
    series: Mapping[int, tuple[str, str]]
    versions: Mapping[int, str]


class Catalog:
    """The manifest: which result files were read, and which parts hold their points.

    Threads and processes may share a manifest, because every call opens its own connection.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seal = path.with_suffix(".crc32")
        with self._connection() as connection:
            keep_write_ahead_log(connection, _PATIENCE)
            connection.executescript(_TABLES)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = NORMAL")
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction that writes the manifest and changes its generation. Readers see all changes or none."""
        self._seal.unlink(missing_ok=True)
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                # A random text, because the generation of a manifest that was made again must differ too.
                _say(connection, "generation", secrets.token_hex(8))
                connection.execute("COMMIT")
            except BaseException:
                connection.rollback()
                raise

    def seal(self) -> None:
        """Store a checksum of the whole manifest, unless it is stored. The next write deletes the checksum.

        Call this and ``verify`` while no other process writes.
        """
        if not self._seal.exists():
            temporary = self._seal.with_suffix(".tmp")
            temporary.write_text(self._checksum())
            temporary.replace(self._seal)

    def verify(self) -> None:
        """Compare the manifest with its checksum, unless a process was killed before it stored one.

        Raises:
            DamagedCache: they differ.
        """
        if self._seal.exists() and self._seal.read_text() != self._checksum():
            raise DamagedCache(f"{self._path.name} has another checksum")

    @contextmanager
    def verified(self) -> Iterator[None]:
        """Run a block that reads the manifest, and verify the manifest after it, whatever the block raises."""
        try:
            yield
        finally:
            self.verify()

    def _checksum(self) -> str:
        with self._connection() as connection:
            return f"{zlib.crc32(connection.serialize()):08x}"

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """Open a view that shows the manifest at one moment, even if other processes write meanwhile."""
        with self._connection() as connection:
            connection.execute("BEGIN")
            yield Reading(connection)

    def take(self, intake: Intake) -> None:
        """Store what was read from some result files, in place of what was known about these files."""
        with self._writing() as connection:
            _forget(connection, intake.files)
            if intake.part:
                connection.execute("INSERT INTO part VALUES (?, ?, ?)", astuple(intake.part))
            name = intake.part.name if intake.part else ""
            connection.executemany(
                "INSERT INTO file VALUES (?, ?, ?, ?, ?)", [(path, *stamp) for path, stamp in intake.files.items()]
            )
            connection.executemany(
                "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(*astuple(run)[:-1], name) for run in intake.runs],
            )
            connection.executemany(
                "INSERT INTO problem VALUES (?, ?, ?, ?, ?)",
                [(path, *astuple(problem)) for path, problem in intake.problems],
            )
            series = [(number, *texts) for number, texts in intake.series.items()]
            connection.executemany("INSERT OR IGNORE INTO series VALUES (?, ?, ?)", series)
            connection.executemany("INSERT OR IGNORE INTO layout VALUES (?, ?)", intake.layouts.items())
            connection.executemany("INSERT OR IGNORE INTO version VALUES (?, ?)", intake.versions.items())

    def forget(self, paths: Iterable[str]) -> None:
        """Remove files that no longer exist. Their points stay in the parts until a merge, and are ignored."""
        with self._writing() as connection:
            _forget(connection, paths)

    def merge(self, old: Sequence[Part], new: Part | None) -> None:
        """Record that a merge replaced several parts by one part; ``None`` if no point was left."""
        with self._writing() as connection:
            for part in old:
                connection.execute("DELETE FROM part WHERE name = ?", (part.name,))
                moved = (new.name if new else "", part.name)
                connection.execute("UPDATE run SET part = ? WHERE part = ?", moved)
            if new:
                connection.execute("INSERT INTO part VALUES (?, ?, ?)", astuple(new))

    def set_history(self, state: str, line: Line) -> None:
        """Store the commits in their order, and the state from which the order was computed."""
        with self._writing() as connection:
            connection.execute("DELETE FROM history")
            rows = [
                (commit.hash, place, commit.subject, json.dumps(commit.lines), commit.fork, commit.base, commit.by_date)
                for place, commit in enumerate(line.commits)
            ]
            connection.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            _say(connection, "line note", line.note)
            _say(connection, "history", state)

    def say(self, values: Mapping[str, str]) -> None:
        """Store texts by key, for ``Reading.stored_text``."""
        with self._writing() as connection:
            for key, text in values.items():
                _say(connection, key, text)


class Reading:
    """What the manifest holds at one moment: result files, parts, series, versions, commits and problems."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def stored_text(self, key: str) -> str:
        """Return the text that ``Catalog.say`` stored; "" if there is none.

        The text "generation" changes whenever the manifest changes.
        """
        return _stored_text(self._connection, key) or ""

    def files(self) -> dict[str, Stamp]:
        """Return the times and sizes that each known file, readable or not, had when it was read."""
        rows = self._connection.execute("SELECT path, mtime, size, beside_mtime, beside_size FROM file")
        return {
            path: (mtime, size, provenance_mtime, provenance_size)
            for path, mtime, size, provenance_mtime, provenance_size in rows
        }

    def runs(self) -> list[RunRow]:
        """Return the result files that could be read, sorted by path."""
        columns = ", ".join(f'"{field}"' for field in _RUN_FIELDS)
        return [RunRow(*row) for row in self._connection.execute(f"SELECT {columns} FROM run ORDER BY path")]

    def next_run(self) -> int:
        """Return a number that is greater than the number of every run that ever existed.

        The first number is random, so that runs of a cache that was made again have other numbers than before.
        """
        row = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'run'").fetchone()
        return (row[0] if row else secrets.randbelow(2**30)) + 1

    def commits(self) -> dict[str, int]:
        """Return the date of every commit, in ms since 1970, by hash. If files disagree, the earliest date counts."""
        return dict(self._connection.execute('SELECT "commit", min(date) FROM run GROUP BY 1'))

    def parts(self) -> list[Part]:
        """Return the parts in use, sorted by name."""
        return [Part(*row) for row in self._connection.execute("SELECT name, folder, rows FROM part ORDER BY name")]

    def live_rows(self) -> dict[str, int]:
        """Return, by part, the number of points that belong to a run, without parts that have no such points."""
        return dict(self._connection.execute("SELECT part, sum(points) FROM run GROUP BY part"))

    def problems(self) -> list[Problem]:
        """Return the problems of the result files, sorted by path."""
        rows = self._connection.execute("SELECT shown, what, reason, weight FROM problem ORDER BY path, rowid")
        return [Problem(*row) for row in rows]

    def layouts(self) -> dict[str, bytes]:
        """Return the series numbers (the bytes of int64 numbers) of each layout, by the layout's digest."""
        return dict(self._connection.execute("SELECT id, series FROM layout"))

    def series(self) -> dict[int, tuple[str, tuple[str, ...]]]:
        """Return the benchmark and the parameter values of each series, by the series' number."""
        rows = self._connection.execute("SELECT id, benchmark, parameters FROM series")
        values = cache(lambda text: tuple(json.loads(text)))
        return {number: (benchmark, values(text)) for number, benchmark, text in rows}

    def versions(self) -> dict[int, str]:
        """Return the text of each benchmark version, by the version's number."""
        return dict(self._connection.execute("SELECT id, text FROM version"))

    def history(self) -> list[Commit]:
        """Return every commit that was placed, oldest first, with the date 0."""
        columns = '"commit", subject, lines, fork, base, by_date'
        rows = self._connection.execute(f"SELECT {columns} FROM history ORDER BY place")
        return [
            Commit(commit, 0, subject, tuple(json.loads(lines)), fork, base, bool(by_date))
            for commit, subject, lines, fork, base, by_date in rows
        ]


_RUN_FIELDS = tuple(field.name for field in fields(RunRow))


def _forget(connection: sqlite3.Connection, paths: Iterable[str]) -> None:
    rows = [(path,) for path in paths]
    for table in ("file", "run", "problem"):
        connection.executemany(f"DELETE FROM {table} WHERE path = ?", rows)


def _stored_text(connection: sqlite3.Connection, key: str) -> str | None:
    row = connection.execute("SELECT text FROM said WHERE key = ?", (key,)).fetchone()
    return row[0] if row else None


def _say(connection: sqlite3.Connection, key: str, text: str) -> None:
    connection.execute("INSERT OR REPLACE INTO said VALUES (?, ?)", (key, text))
