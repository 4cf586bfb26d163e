"""Keep a columnar cache of a results folder up to date, and give snapshots of it."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

from platformdirs import user_cache_path

from lockstep.history.benchmarks_file import as_text, read_benchmarks
from lockstep.history.cache_catalog import MADE_BY, Catalog
from lockstep.history.code_digest import code_digest
from lockstep.history.commit_order import order_commits, repository_state
from lockstep.history.ingest import batches, read_all
from lockstep.history.parquet import merge_parts, mergeable, sweep
from lockstep.history.problems import Problem, Refreshed
from lockstep.history.reader import Reader, StoreError
from lockstep.history.scan import Scan, probably_unchanged, scan
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_contents import load
from lockstep.history.validation import Unreadable

__all__ = ["Store", "StoreError", "default_cache"]

#: Seconds after which a cache in use is marked as used again, and seconds without use after which it is deleted.
_USED, _UNUSED = 86_400.0, 7 * 86_400.0

#: Age in seconds up to which a snapshot may be returned while another thread makes a new one.
_OLD = 60.0

#: Number of files above which the faster ``probably_unchanged`` replaces some scans. A scan of 8,000 files takes 50 ms
#: of CPU time.
_MANY = 1000


class Store:
    """A results folder and the cache of its points. Several processes may share both.

    The cache is a folder outside the results, with parquet files of the points and a manifest in SQLite. It is derived
    from the result files alone, so it may be deleted at any time.
    """

    def __init__(self, root: Path, repo: Path, cache: Path, patience: float) -> None:
        self.root = root
        self.cache = cache
        self._repo = repo
        self._patience = patience
        self._parts = cache / "parts"
        self._reader = Reader(cache / "spill")
        self._lock = threading.Lock()
        self._looked = 0.0
        #: The last scan whose files were all read, and the time of that scan.
        self._seen: Scan | None = None
        self._scanned = 0.0
        self._strays: tuple[Problem, ...] = ()
        self._snapshot: Results | None = None
        self._loaded_state: tuple[str, tuple[Problem, ...]] | None = None

    @classmethod
    def open(cls, results: Path, repo: Path | None = None, cache: Path | None = None, patience: float = 2.0) -> Store:
        """Return the store of a results folder without reading a file. The folder need not exist yet.

        Args:
            results: asv's results folder.
            repo: a folder in the git repository that gives the order of commits; ``results`` by default.
            cache: folder for the cache; by default a folder in the user's cache folder, named after ``results``.
            patience: seconds for which ``current`` returns the same snapshot and does not look at the files.

        Raises:
            StoreError: the cache would lie inside the results, or DuckDB cannot read its path.
        """
        root = results.absolute()
        chosen = (cache or default_cache(root)).absolute() / f"layout-{code_digest(*MADE_BY)}"
        if set(str(chosen)) & set("*?["):
            raise StoreError(
                f"DuckDB would read {chosen.parent} as a pattern: choose a cache folder without *, ? and [ in its path"
            )
        if chosen.resolve().is_relative_to(root.resolve()):
            raise StoreError(f"the cache {chosen.parent} would lie inside the results folder: choose another folder")
        return cls(root, repo or root, chosen, patience)

    def refresh(self, wait: bool = True) -> Refreshed:
        """Update the cache for files that are new, changed (path, mtime, size) or deleted.

        Args:
            wait: whether to wait for another process that is refreshing the cache. If not, the cache is used as far as
                that process has updated it.

        Raises:
            StoreError: the cache cannot be written, or a process that reads files was killed.
        """
        with self._lock:
            return self._refresh(wait)

    def current(self) -> Results:
        """Return a snapshot of the results that is at most ``patience`` seconds old.

        While one thread refreshes the cache, other threads get the previous snapshot.

        Raises:
            StoreError: see ``refresh``.
        """
        snapshot, age = self._snapshot, time.monotonic() - self._looked
        if snapshot is not None and age < self._patience:
            return snapshot
        # Do not return an old snapshot, because parts that it needs may have been deleted.
        old = snapshot is None or age > _OLD
        if not self._lock.acquire(blocking=old) and snapshot is not None:
            return snapshot
        try:
            if self._snapshot is None or time.monotonic() - self._looked >= self._patience:
                self._refresh(wait=self._snapshot is None, glance=True)
            assert self._snapshot is not None
            return self._snapshot
        finally:
            self._lock.release()

    def _refresh(self, wait: bool, glance: bool = False) -> Refreshed:
        began = time.perf_counter()
        settled = self._settled() if glance else None
        current = settled or self._scan()
        changed, gone, points = 0, 0, 0
        try:
            if settled is None:
                changed, gone, points = self._update(current, wait)
            self._load()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise StoreError(f"the cache {self.cache} cannot be used ({error}): choose another folder") from error
            # A damaged manifest may be deleted: everything in it is derived from the files.
            shutil.rmtree(self.cache, ignore_errors=True)
            changed, gone, points = self._update(current, wait)
            self._load()
        except OSError as error:
            raise StoreError(f"the cache {self.cache} cannot be written ({error}): choose another folder") from error
        except BrokenProcessPool as error:
            raise StoreError(
                "a process that read result files was killed, perhaps for lack of memory: free memory and try again"
            ) from error
        self._looked = time.monotonic()
        self._sweep_caches()
        assert self._snapshot is not None
        problems, notes = len(self._snapshot.problems), len(self._snapshot.notes)
        return Refreshed(len(current.files), changed, gone, points, problems, notes, time.perf_counter() - began)

    def _settled(self) -> Scan | None:
        """Return the last scan if it is recent, found many files, and is still valid by ``probably_unchanged``."""
        previous, young = self._seen, time.monotonic() - self._scanned < _OLD
        large = previous is not None and len(previous.files) > _MANY
        return previous if previous and large and young and probably_unchanged(self.root, previous) else None

    def _scan(self) -> Scan:
        self._seen, self._scanned = None, time.monotonic()
        current = scan(self.root)
        self._strays = current.problems
        return current

    def _update(self, current: Scan, wait: bool) -> tuple[int, int, int]:
        """Read the files that changed since the last refresh, and remove deleted files from the cache.

        Return the numbers of changed files, of deleted files and of points read.
        """
        self._parts.mkdir(parents=True, exist_ok=True)
        catalog = Catalog(self.cache / "manifest.sqlite")
        with _only_one(self.cache / "lock", wait) as alone:
            if not alone:
                return 0, 0, 0
            self._mend(catalog)
            with catalog.reading() as reading:
                known, first_run, table = reading.files(), reading.next_run(), reading.stored_text("table")
            changed = {path: stamp for path, stamp in current.files.items() if known.get(path) != stamp}
            gone = known.keys() - current.files.keys()
            if table != str(current.table):
                self._read_table(catalog, current)
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
            self._seen = current
            return len(changed), len(gone), points

    def _mend(self, catalog: Catalog) -> None:
        """Remove missing and damaged parts from the manifest, so that their result files are read again."""
        with catalog.reading() as reading:
            parts = reading.parts()
        for part in parts:
            path = self._parts / part.name
            if not path.exists() or path.stat().st_size != part.size:
                catalog.drop_part(part)

    def _read_table(self, catalog: Catalog, current: Scan) -> None:
        texts = {"table": str(current.table), "benchmarks": "", "table_problem": ""}
        try:
            if any(current.table):
                texts["benchmarks"] = as_text(read_benchmarks(self.root / "benchmarks.json"))
        except (Unreadable, OSError) as error:
            texts["table_problem"] = getattr(error, "strerror", None) or str(error)
        catalog.say(texts)

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
        inputs = [str(self._repo.absolute()), repository_state(self._repo), *sorted(map(str, dates.items()))]
        state = blake2b("\n".join(inputs).encode(), digest_size=16).hexdigest()
        if state != before:
            catalog.set_history(state, ((commit.hash, commit.subject) for commit in order_commits(dates, self._repo)))

    def _sweep_caches(self) -> None:
        """Mark this cache as used, and delete caches of other code versions that were not used for a long time."""
        with suppress(OSError):
            if time.time() - self.cache.stat().st_mtime > _USED:
                os.utime(self.cache)
            for folder in self.cache.parent.glob("layout-*"):
                if folder != self.cache and time.time() - folder.stat().st_mtime > _UNUSED:
                    shutil.rmtree(folder, ignore_errors=True)

    def _load(self) -> None:
        catalog = Catalog(self.cache / "manifest.sqlite")
        with catalog.reading() as reading:
            state = (reading.stored_text("generation"), self._strays)
            if state != self._loaded_state:
                self._snapshot = Results(load(self.root, self._parts, reading, self._strays), self._reader)
                self._loaded_state = state


def default_cache(root: Path) -> Path:
    """Return the default location of a results folder's cache."""
    digest = blake2b(str(root.resolve()).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    return user_cache_path("lockstep") / f"results-{digest}"


@contextmanager
def _only_one(path: Path, wait: bool) -> Iterator[bool]:
    """Hold a lock on a file during a block. Yield whether this process got the lock.

    Only one process at a time can hold the lock. If the process is killed, the system releases the lock.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
