"""A results folder as rows, kept up to date with its files.

``Results`` is a frozen picture of the folder; ``Tree`` hands out the current one and reads again only
the files that changed.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dashboard.asv_result import Benchmark, read_asv, read_benchmarks
from dashboard.provenance import join_provenance, provenance_path
from dashboard.results.guards import Unreadable, words
from dashboard.results.history import order_commits
from dashboard.results.model import Commit, Problem
from dashboard.rows import Row
from lockstep.record import SUFFIX

#: When a file was modified (ns since 1970) and its size (bytes).
Stamp = tuple[int, int]

NO_FILE: Stamp = (0, 0)


@dataclass(frozen=True)
class Results:
    """Everything that a results folder says.

    Attributes:
        root: the folder.
        rows: one a machine, commit and series. Where two environments measured the same, the last measurement.
        commits: those that have rows, oldest first.
        problems: what could not be read.
    """

    root: Path
    rows: tuple[Row, ...]
    commits: tuple[Commit, ...]
    problems: tuple[Problem, ...]

    @cached_property
    def machines(self) -> tuple[str, ...]:
        """Names of the machines that have rows."""
        return tuple(sorted({row.machine for row in self.rows}))

    @cached_property
    def series(self) -> frozenset[tuple[str, str, str, str, str]]:
        """Every series that was ever measured."""
        return frozenset(row.series for row in self.rows)

    @cached_property
    def _by_machine(self) -> dict[str, dict[str, list[Row]]]:
        found: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
        for row in self.rows:
            found[row.machine][row.commit].append(row)
        return found

    def commits_of(self, machine: str) -> tuple[Commit, ...]:
        """Commits that this machine measured, oldest first."""
        measured = self._by_machine.get(machine, {})
        return tuple(commit for commit in self.commits if commit.hash in measured)

    def at(self, machine: str, commit: Commit) -> list[Row]:
        """Rows of one machine at one commit."""
        return list(self._by_machine.get(machine, {}).get(commit.hash, ()))

    def newest(self, machine: str) -> tuple[Commit, list[Row]] | None:
        """The machine's newest commit and its rows; ``None`` if it has none."""
        commits = self.commits_of(machine)
        return (commits[-1], self.at(machine, commits[-1])) if commits else None

    @cached_property
    def _by_suite(self) -> dict[tuple[str, str], list[Row]]:
        order = {commit.hash: index for index, commit in enumerate(self.commits)}
        found: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in sorted(self.rows, key=lambda row: order[row.commit]):
            found[row.machine, row.suite].append(row)
        return found

    def history(self, machine: str, suite: str) -> list[Row]:
        """Rows of one machine and suite at every commit, oldest first."""
        return list(self._by_suite.get((machine, suite), ()))

    def machines_with(self, suite: str) -> tuple[str, ...]:
        """Machines that measured this suite."""
        return tuple(machine for machine in self.machines if (machine, suite) in self._by_suite)


class Tree:
    """A results folder that is watched: ``current()`` is cheap and at most ``patience`` seconds old.

    Args:
        root: asv's results folder; it need not exist yet.
        repo: a folder in the git repository that tells the order of commits; ``root`` by default.
        patience: seconds between two looks at the files.
    """

    def __init__(self, root: Path, repo: Path | None = None, patience: float = 2.0) -> None:
        self.root = root.absolute()
        self._repo = repo or self.root
        self._patience = patience
        self._lock = threading.Lock()
        self._looked = 0.0
        self._results: Results | None = None
        self._files: dict[Path, tuple[Stamp, Stamp]] = {}
        self._read: dict[Path, tuple[list[Row], list[Problem]]] = {}
        self._strays: list[Problem] = []
        self._table_stamp = NO_FILE
        self._table: dict[str, Benchmark] = {}
        self._table_problems: list[Problem] = []

    def current(self) -> Results:
        """The folder's results; files that changed since the last look are read again."""
        results = self._results
        if results is not None and time.monotonic() - self._looked < self._patience:
            return results
        # While one request reads, the others are served what is known.
        if not self._lock.acquire(blocking=results is None) and results is not None:
            return results
        try:
            if self._results is None or time.monotonic() - self._looked >= self._patience:
                self._results = self._refresh(self._results)
                self._looked = time.monotonic()
            return self._results
        finally:
            self._lock.release()

    def _refresh(self, before: Results | None) -> Results:
        table_changed = self._read_table()
        files, strays = _scan(self.root)
        changed = {path for path, stamps in files.items() if table_changed or self._files.get(path) != stamps}
        same = not changed and files.keys() == self._files.keys() and strays == self._strays
        if before is not None and same and not table_changed:
            return before
        kept = {path: self._read[path] for path in files if path not in changed}
        self._read = kept | {path: self._file(path, files[path]) for path in sorted(changed)}
        self._files, self._strays = files, strays
        rows = _one_each(row for path in sorted(self._read) for row in self._read[path][0])
        problems = [problem for path in sorted(self._read) for problem in self._read[path][1]]
        commits = order_commits({row.commit: row.date for row in rows}, self._repo)
        return Results(self.root, rows, commits, (*self._table_problems, *strays, *problems))

    def _read_table(self) -> bool:
        """Read ``benchmarks.json`` if it changed, and tell whether it did."""
        path = self.root / "benchmarks.json"
        stamp = _stamp(path)
        if stamp == self._table_stamp:
            return False
        self._table_stamp, self._table, self._table_problems = stamp, {}, []
        try:
            if stamp != NO_FILE:
                self._table = read_benchmarks(path)
        except (Unreadable, OSError) as error:
            self._table_problems = [Problem(path.name, str(error))]
        return True

    def _file(self, path: Path, stamps: tuple[Stamp, Stamp]) -> tuple[list[Row], list[Problem]]:
        where = words(f"{path.parent.name}/{path.name}")
        try:
            head, rows, complaints = read_asv(path, self._table)
        except (Unreadable, OSError) as error:
            return [], [Problem(where, str(error))]
        problems = [Problem(where, complaint) for complaint in complaints]
        if stamps[1] != NO_FILE:
            beside = provenance_path(path)
            try:
                rows, complaints = join_provenance(beside, head, rows)
            except OSError as error:
                complaints = [str(error)]
            where = words(f"{beside.parent.name}/{beside.name}")
            problems += [Problem(where, complaint) for complaint in complaints]
        return rows, problems


def _stamp(path: Path) -> Stamp:
    try:
        found = path.lstat()
    except OSError:
        return NO_FILE
    return found.st_mtime_ns, found.st_size


def _scan(root: Path) -> tuple[dict[Path, tuple[Stamp, Stamp]], list[Problem]]:
    """Result files with the stamps of themselves and of their provenance; provenance that stands alone is a problem."""
    files: dict[Path, tuple[Stamp, Stamp]] = {}
    problems: list[Problem] = []
    if not root.exists():
        return {}, [Problem(root.name, "does not exist")]
    for folder in sorted(_children(root, problems)):
        if not folder.is_dir():
            continue
        if folder.is_symlink():
            problems.append(Problem(words(folder.name), "is a link, not a folder"))
            continue
        names = {path.name for path in _children(folder, problems)}
        for one in sorted(names):
            path = folder / one
            if one.endswith(".json") and one not in ("machine.json", "benchmarks.json"):
                files[path] = (_stamp(path), _stamp(provenance_path(path)))
            elif one.endswith(SUFFIX) and one.removesuffix(SUFFIX) + ".json" not in names:
                problems.append(Problem(words(f"{folder.name}/{one}"), "has no asv result beside it"))
    return files, problems


def _children(folder: Path, problems: list[Problem]) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        problems.append(Problem(words(folder.name), error.strerror or str(error)))
        return []


def _one_each(rows: Iterable[Row]) -> tuple[Row, ...]:
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        key = (row.commit, *row.series)
        other = found.get(key)
        if other is None or row.measured_at >= other.measured_at:
            found[key] = row
    return tuple(found.values())
