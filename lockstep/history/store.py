"""Keep a columnar cache of a results folder up to date, and give snapshots of it."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from hashlib import blake2b
from pathlib import Path
from typing import Any

from lockstep.history.benchmark_tables import TABLE, gather
from lockstep.history.cache_catalog import Catalog, Part, is_damage
from lockstep.history.cache_folder import code_digest, default_cache, only_one, sweep_caches
from lockstep.history.ingest import batches, read_all
from lockstep.history.line import find_line, repository_state
from lockstep.history.parquet import merge_parts, mergeable, sweep
from lockstep.history.part_checks import DAMAGED, DamagedPart, PartChecks, Stamp, StoreError, move_aside, stamp_of
from lockstep.history.problems import Problem, Refreshed
from lockstep.history.reader import Reader
from lockstep.history.scan import Scan, scan
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
        self._strays: tuple[Problem, ...] = ()
        self._snapshot: Results | None = None
        self._loaded_state: tuple[Any, ...] | None = None
        self._loaded_parts: tuple[Path, ...] = ()
        #: Stamps of the manifest and of its checksum when the checksum was last verified or stored.
        self._sealed: tuple[Stamp | None, ...] = ()

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

        While one thread refreshes the cache, other threads get the previous snapshot. If parts of that snapshot are
        damaged or missing, they wait until the parts are made again. While the cache cannot be refreshed, for the
        reason in ``trouble``, the previous snapshot stays.

        Raises:
            StoreError: see ``refresh``; there is no previous snapshot, or parts that it needs are gone.
        """
        snapshot, age = self._snapshot, time.monotonic() - self._looked
        if snapshot is not None and age < self._patience and not self._checks.failed:
            return snapshot
        if snapshot is not None and self.trouble.text and time.monotonic() - self._tried < _RETRY_S:
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
        if not self._whole():
            self._checks.failed = True
        # While parts are missing, do not use what another process has made again so far: it would look as if results
        # had been deleted.
        wait = wait or self._checks.failed
        current = scan(self.root)
        self._strays = current.problems
        try:
            try:
                changed, gone, points = self._update(current, wait)
                self._load()
            except (sqlite3.DatabaseError, OSError) as error:
                damage = error if isinstance(error, sqlite3.DatabaseError) and is_damage(error) else None
                deleted = not self._parts.exists()  # by somebody, meanwhile
                if damage is None and not deleted:
                    raise
                changed, gone, points = self._update(current, wait=True, damage=damage)
                self._load()
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
        """Return whether the manifest and the parts of the present snapshot still exist and were not written again."""
        loaded = self._snapshot is not None
        return not loaded or (self._manifest.exists() and not self._checks.changed(self._loaded_parts))

    def _update(self, current: Scan, wait: bool, damage: sqlite3.DatabaseError | None = None) -> tuple[int, int, int]:
        """Read the files that changed since the last refresh, and remove deleted files from the cache.

        ``damage`` is the error of a damaged manifest. Return the numbers of changed files, of deleted files and of
        points read.
        """
        self._parts.mkdir(parents=True, exist_ok=True)
        with only_one(self.cache / "lock", wait) as alone:
            if not alone:
                return 0, 0, 0
            catalog = self._verified_catalog(damage)
            with catalog.reading() as reading:
                known, first_run, table = reading.files(), reading.next_run(), reading.stored_text("table")
                lost = [part for part in reading.parts() if self._is_lost(part)]
                lost_names = {part.name for part in lost}
                for path in [run.path for run in reading.runs() if run.part in lost_names] if lost else []:
                    known[path] = _LOST
            changed = {path: stamp for path, stamp in current.files.items() if known.get(path) != stamp}
            gone = known.keys() - current.files.keys()
            if table != str(current.tables):
                self._read_table(catalog, current)
            if gone:
                catalog.forget(gone)
            points = 0
            for intake in read_all(batches(self.root, self._parts, changed, first_run)):
                catalog.take(intake)
                points += sum(run.points for run in intake.runs)
            # Only now, so that other processes do not take the files of these parts for deleted.
            for part in lost:
                catalog.drop_part(part)
                if (self._parts / part.name).with_suffix(DAMAGED).exists():
                    catalog.report(_damaged(part.name))
            self._merge(catalog)
            self._order(catalog)
            with catalog.reading() as reading:
                counting = reading.parts()
            sweep(self._parts, counting)
            catalog.seal()
            self._sealed = self._seal_stamps()
            return len(changed), len(gone), points

    def _verified_catalog(self, damage: sqlite3.DatabaseError | None) -> Catalog:
        """Return the manifest, or a new one if it is damaged. Call this while no other process writes.

        ``damage`` is an error that reading the manifest gave. Another process may have made a new manifest since then.
        """
        reason = str(damage or "its checksum is wrong")
        try:
            catalog = Catalog(self._manifest)
            if damage is None and self._sealed == self._seal_stamps():
                return catalog
            sealed = catalog.sealed()
            if sealed or (sealed is None and damage is None):
                return catalog
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            reason = str(error)
        move_aside(self._manifest, reason)
        for path in self.cache.glob("manifest.sqlite-*"):
            path.unlink()
        catalog = Catalog(self._manifest)
        catalog.report(_damaged(self._manifest.name))
        return catalog

    def _seal_stamps(self) -> tuple[Stamp | None, ...]:
        return stamp_of(self._manifest), stamp_of(self._manifest.with_suffix(".crc32"))

    def _is_lost(self, part: Part) -> bool:
        """Return whether a part is missing or damaged. A content that nothing has written to since is not read."""
        path = self._parts / part.name
        stamp = stamp_of(path)
        if stamp is not None and stamp[1] != part.size:
            move_aside(path, f"it has {stamp[1]} bytes instead of {part.size}")
            return True
        try:
            if self._checks.changed([path]):
                self._checks.verify(path)
        except DamagedPart:
            return True
        return False

    def _read_table(self, catalog: Catalog, current: Scan) -> None:
        entries, faults = gather(self.root, current.tables, self.cache.parent / TABLE)
        catalog.say({"table": str(current.tables), "benchmarks": entries, "table_problems": json.dumps(faults)})

    def _merge(self, catalog: Catalog) -> None:
        with catalog.reading() as reading:
            chosen = mergeable(reading.parts(), reading.live_rows())
            runs = reading.runs() if chosen else []
        for merged_parts in chosen:
            try:
                for part in merged_parts:
                    self._checks.verify(self._parts / part.name)
            except DamagedPart:
                continue  # The next refresh makes the part again.
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

    def _load(self) -> None:
        with Catalog(self._manifest).reading() as reading:
            state = (reading.stored_text("generation"), self._strays, self._read_rules())
            # A manifest that another process is making again has no order of commits yet. It holds too few results.
            complete = self._snapshot is None or reading.stored_text("history")
            if state != self._loaded_state and complete:
                contents = load(self.root, self._parts, reading, self._strays, self._rules)
                contents = with_versions(contents, self._reader)
                self._snapshot = Results(contents, self._reader)
                self._loaded_parts = tuple(path for paths in contents.parts.values() for path in paths)
                self._loaded_state = state


#: Stamp of a file whose points are lost. No file has it, so the file is read again.
_LOST = (-1, -1, -1, -1)


def _damaged(name: str) -> Problem:
    what = (
        "this file of the cache was damaged and made again from the result files: if it happens again, check the disk"
    )
    return Problem(name, what, weight="note")
