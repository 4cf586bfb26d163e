"""Keep a columnar cache of a results folder up to date, and give snapshots of it."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from hashlib import blake2b
from pathlib import Path
from typing import Any

from lockstep.history.benchmarks_file import read_tables
from lockstep.history.cache_catalog import Catalog
from lockstep.history.cache_folder import (
    DamagedCache,
    StoreError,
    code_digest,
    default_cache,
    identity,
    lock_of,
    move_aside,
    moved_aside,
    only_one,
    sweep_caches,
)
from lockstep.history.ingest import batches, read_all
from lockstep.history.line import find_line, repository_state
from lockstep.history.parquet import PartChecks, merge_parts, mergeable, sweep
from lockstep.history.problems import Problem, Refreshed
from lockstep.history.reader import Reader
from lockstep.history.scan import Scan, scan
from lockstep.history.shared_sqlite import is_damage
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_contents import load, with_versions
from lockstep.history.trouble import Trouble, refused_by_disk
from lockstep.suite.thresholds import Same, ThresholdsError, read_thresholds

__all__ = ["Store", "StoreError", "default_cache"]

#: Age in seconds up to which a snapshot may be returned while another thread makes a new one.
_OLD = 60.0

#: Seconds after a failed refresh until the next one.
_RETRY_S = 5.0


class Store:
    """A results folder and the cache of its points. Several processes may share both.

    The cache is a folder outside the results, with parquet files of the points and a manifest in SQLite. It is derived
    from the result files alone, so it may be deleted at any time.
    """

    def __init__(
        self,
        root: Path,
        repo: Path,
        cache: Path,
        patience: float,
        thresholds: Path | None,
        branches: Sequence[str],
    ) -> None:
        self.root = root
        self.cache = cache
        self._repo = repo
        self._branches = branches
        self._patience = patience
        self._thresholds = thresholds
        self._rules: tuple[Same, ...] = ()
        self._parts = cache / "parts"
        self._manifest = cache / "manifest.sqlite"
        self._checks = PartChecks()
        self._reader = Reader(cache / "spill", self._checks)
        self._lock = threading.Lock()
        self._looked = 0.0
        #: Why the last refresh failed, and the time of that refresh.
        self.trouble = Trouble()
        self._tried = 0.0
        self._snapshot: Results | None = None
        self._loaded_state: tuple[Any, ...] | None = None
        self._loaded_parts: tuple[Path, ...] = ()
        #: The ``identity`` of the cache that the last refresh used.
        self._folder = 0

    @classmethod
    def open(
        cls,
        results: Path,
        repo: Path | None = None,
        cache: Path | None = None,
        patience: float = 2.0,
        thresholds: Path | None = None,
        branches: Sequence[str] = (),
    ) -> Store:
        """Return the store of a results folder without reading a file. The folder need not exist yet.

        Args:
            results: asv's results folder.
            repo: a folder in the git repository that gives the order of commits; ``results`` by default.
            cache: folder for the cache; by default a folder in the user's cache folder, named after ``results``.
            patience: seconds for which ``current`` returns the same snapshot and does not look at the files.
            thresholds: the file whose rules ``[[same]]`` join what was renamed; ``None`` joins nothing.
            branches: the tracked branches of the repository, see ``lockstep.history.line``; () for its default branch.

        Raises:
            StoreError: the cache would lie inside the results, or DuckDB cannot read its path.
        """
        root = results.absolute()
        chosen = (cache or default_cache(root)).absolute() / f"layout-{code_digest()}"
        if set(str(chosen)) & set("*?["):
            raise StoreError(
                f"DuckDB would read {chosen.parent} as a pattern: choose a cache folder without *, ? and [ in its path"
            )
        if chosen.resolve().is_relative_to(root.resolve()):
            raise StoreError(f"the cache {chosen.parent} would lie inside the results folder: choose another folder")
        return cls(root, repo or root, chosen, patience, thresholds, branches)

    def refresh(self) -> Refreshed:
        """Update the cache for files that are new, changed (path, mtime, size) or deleted.

        If another process is refreshing the cache, wait for it.

        Raises:
            StoreError: the cache cannot be written, or a process that reads files was killed.
        """
        with self._lock:
            return self._refresh(wait=True)

    def current(self) -> Results:
        """Return a snapshot of the results that is at most ``patience`` seconds old.

        While one thread refreshes the cache, other threads get the previous snapshot. If the cache is damaged or gone,
        they wait until it is made again. While the cache cannot be refreshed, for the reason in ``trouble``, the
        previous snapshot stays.

        Raises:
            StoreError: see ``refresh``; there is no previous snapshot, or parts that it needs are gone.
        """
        snapshot, age = self._snapshot, time.monotonic() - self._looked
        waits = age < self._patience or (self.trouble.text and time.monotonic() - self._tried < _RETRY_S)
        if snapshot is not None and waits and not self._checks.failed:
            return snapshot
        # Do not return an old snapshot, because parts that it needs may have been deleted.
        old = snapshot is None or age > _OLD or self._checks.failed
        if not self._lock.acquire(blocking=old) and snapshot is not None:
            return snapshot
        try:
            looked = self._snapshot is not None and time.monotonic() - self._looked < self._patience
            if not looked or self._checks.failed:
                self._refresh(wait=self._snapshot is None)
                self.trouble.end()
        except StoreError as error:
            if self._snapshot is None or self._checks.failed:
                raise
            self._tried = time.monotonic()
            self.trouble.begin(f"results are not up to date, because {error}")
        finally:
            self._lock.release()
        assert self._snapshot is not None
        return self._snapshot

    def _refresh(self, wait: bool) -> Refreshed:
        began = time.perf_counter()
        # While parts are missing, do not use what another process has made again so far: it would look as if results
        # had been deleted.
        self._checks.failed |= not self._whole()
        wait = wait or self._checks.failed
        current = scan(self.root)
        try:
            try:
                changed, gone, points = self._update(current, wait)
            except (DamagedCache, sqlite3.DatabaseError, OSError) as error:
                if isinstance(error, DamagedCache) or (is_damage(error) and not refused_by_disk(error, self.cache)):
                    move_aside(self.cache, self._folder, str(error))
                elif self._parts.exists():  # if not, somebody deleted the cache meanwhile
                    raise
                changed, gone, points = self._update(current, wait=True)
        except (sqlite3.DatabaseError, OSError) as error:
            reason = refused_by_disk(error, self.cache) or f"{error}: choose another folder"
            raise StoreError(f"the cache {self.cache} cannot be used: {reason}") from error
        except BrokenProcessPool as error:
            raise StoreError(
                "a process that read result files was killed, perhaps for lack of memory: free memory and try again"
            ) from error
        self._looked = time.monotonic()
        self._checks.failed = not self._whole()
        sweep_caches(self.cache)
        assert self._snapshot is not None
        problems, notes = len(self._snapshot.problems), len(self._snapshot.notes)
        return Refreshed(len(current.files), changed, gone, points, problems, notes, time.perf_counter() - began)

    def _whole(self) -> bool:
        """Return whether the cache of the present snapshot still exists, and its parts were not written again."""
        return self._snapshot is None or (self._manifest.exists() and not self._checks.changed(self._loaded_parts))

    def _update(self, current: Scan, wait: bool) -> tuple[int, int, int]:
        """Read the files that changed since the last refresh, remove deleted files from the cache, and load it.

        Return the numbers of changed files, of deleted files and of points read.

        Raises:
            DamagedCache: a file of the cache is damaged or missing.
        """
        self.cache.mkdir(parents=True, exist_ok=True)
        read = 0, 0, 0
        with only_one(lock_of(self.cache), wait) as alone:
            self._folder = identity(self.cache)
            if alone:
                read = self._read_files(current)
            loaded = self._loaded(current, alone)
        if loaded:
            self._snapshot, self._loaded_parts, self._loaded_state = loaded
        return read

    def _read_files(self, current: Scan) -> tuple[int, int, int]:
        if self._parts.exists() and not self._manifest.exists():
            raise DamagedCache(f"{self._manifest.name} is missing")
        catalog = Catalog(self._manifest)
        catalog.verify()
        self._parts.mkdir(exist_ok=True)
        with catalog.reading() as reading:
            known, first_run, table = reading.files(), reading.next_run(), reading.stored_text("table")
            for part in reading.parts():
                self._checks.verify(self._parts / part.name)
        changed = {path: stamp for path, stamp in current.files.items() if known.get(path) != stamp}
        gone = known.keys() - current.files.keys()
        if table != str(current.tables):
            self._read_tables(catalog, current)
        if gone:
            catalog.forget(gone)
        points = 0
        for intake in read_all(batches(self.root, self._parts, changed, first_run)):
            catalog.take(intake)
            points += sum(run.points for run in intake.runs)
        self._merge(catalog)
        self._order(catalog)
        with catalog.reading() as reading:
            counting = reading.parts()
        sweep(self._parts, counting)
        catalog.seal()
        return len(changed), len(gone), points

    def _read_tables(self, catalog: Catalog, current: Scan) -> None:
        entries, faults = read_tables(self.root, current.tables)
        if faults:  # perhaps asv is writing the table
            with catalog.reading() as reading:
                entries = json.loads(reading.stored_text("benchmarks") or "{}") | entries
        texts = {"benchmarks": json.dumps(entries), "table_problems": json.dumps(faults)}
        catalog.say({"table": str(current.tables)} | texts)

    def _merge(self, catalog: Catalog) -> None:
        with catalog.reading() as reading:
            chosen = mergeable(reading.parts(), reading.live_rows())
            runs = reading.runs() if chosen else []
        for merged_parts in chosen:
            names = {part.name for part in merged_parts}
            catalog.merge(
                merged_parts, merge_parts(self._parts, merged_parts, (run.id for run in runs if run.part in names))
            )

    def _order(self, catalog: Catalog) -> None:
        """Ask git for the order of commits if the commits or the repository's history changed."""
        with catalog.reading() as reading:
            dates, before = reading.commits(), reading.stored_text("history")
        repository = [str(self._repo.absolute()), repository_state(self._repo, self._branches), *self._branches]
        inputs = [*repository, *sorted(map(str, dates.items()))]
        state = blake2b("\n".join(inputs).encode(), digest_size=16).hexdigest()
        if state != before:
            catalog.set_history(state, find_line(dates, self._repo, self._branches))

    def _read_rules(self) -> tuple[Same, ...]:
        """Read the rules that join what was renamed. While a server runs, a wrong file leaves the rules as they are.

        Raises:
            ThresholdsError: the file is wrong, and there is no snapshot yet.
        """
        if self._thresholds is not None:
            try:
                self._rules = read_thresholds(self._thresholds).same
            except ThresholdsError:
                if self._snapshot is None:
                    raise
        return self._rules

    def _loaded(self, current: Scan, alone: bool) -> tuple[Results, tuple[Path, ...], tuple[Any, ...]] | None:
        """Return a new snapshot, its parts and a state that tells when to load again; ``None`` if nothing changed.

        The manifest is verified after it was read if no other process writes (``alone``).
        """
        strays = current.problems
        if aside := moved_aside(self.cache):
            strays = (*strays, Problem(aside, _DAMAGED, weight="note"))
        catalog = Catalog(self._manifest)
        with catalog.reading() as reading:
            state = (reading.stored_text("generation"), strays, self._read_rules())
            # A manifest that another process is making again has no order of commits yet. It holds too few results.
            complete = self._snapshot is None or reading.stored_text("history")
            if state == self._loaded_state or not complete:
                return None
            try:
                with catalog.verified() if alone else nullcontext():
                    contents = with_versions(load(self.root, self._parts, reading, strays, self._rules), self._reader)
            except ValueError as error:
                # A text of it was damaged before its checksum was stored.
                raise DamagedCache(f"{self._manifest.name} cannot be read: {error}") from error
        parts = tuple(path for paths in contents.parts.values() for path in paths)
        return Results(contents, self._reader), parts, state


_DAMAGED = "this cache was damaged and made again from the result files: if it happens again, check the disk"
