"""Keep a columnar cache of a results folder up to date, and give snapshots of it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from lockstep.history.benchmarks_file import read_tables
from lockstep.history.cache_folder import (
    DamagedCache,
    Stamp,
    StoreError,
    code_digest,
    default_cache,
    identity,
    lock_of,
    move_aside,
    moved_aside,
    stamp_of,
    sweep_caches,
    unusable,
)
from lockstep.history.cache_manifest import Manifest, read_manifest
from lockstep.history.ingest import batches, read_all
from lockstep.history.line import find_line, repository_state
from lockstep.history.parquet import PartChecks, merge_parts, mergeable, sweep
from lockstep.history.reader import Reader
from lockstep.history.scan import Scan, scan
from lockstep.history.snapshot import Results
from lockstep.history.validation import Problem
from lockstep.processes.only_one import only_one
from lockstep.processes.trouble import Trouble

__all__ = ["Store", "StoreError", "default_cache"]

#: Age in seconds up to which a snapshot may be returned while another thread makes a new one.
_OLD = 60.0

#: Seconds after which what was read so far is saved, because this process may be killed.
_SAVE_S = 1.0

#: Multiple of ``patience`` after which every file is looked at, although no folder has changed.
_EVERY_FILE = 30.0

#: Seconds after a failed refresh until the next one.
_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a refresh of the store found and read.

    Attributes:
        files: number of result files in the folder.
        changed: number of files that were read because they are new or changed.
        gone: number of files that were known and no longer exist.
        points: number of points in the changed files.
        problems: number of problems in all files.
        notes: number of accepted differences from asv's format, in all files.
    """

    files: int
    changed: int
    gone: int
    points: int
    problems: int
    notes: int
    seconds: float


class Store:
    """A results folder and the cache of its points. Several processes may share both.

    The cache is a folder outside the results, with parquet files of the points and a manifest. It is derived
    from the result files alone, so it may be deleted at any time.
    """

    def __init__(
        self,
        root: Path,
        repo: Path,
        cache: Path,
        patience: float,
        branches: Sequence[str],
    ) -> None:
        self.root = root
        self.cache = cache
        self._repo = repo
        self._branches = branches
        self._patience = patience
        self._parts = cache / "parts"
        self._manifest = cache / "manifest.json"
        self._checks = PartChecks()
        self._reader = Reader(cache / "spill", self._checks)
        self._lock = threading.Lock()
        self._looked = self._looked_at_files = 0.0
        #: The stamps of folders and files at the last look at every file. A change of one makes the next look due.
        self._stamps: Mapping[Path, Stamp | None] = {}
        #: Why the last refresh failed, and the time of that refresh.
        self.trouble = Trouble()
        self._tried = 0.0
        self._snapshot: Results | None = None
        #: What the snapshot was made from: the manifest, and problems of the folder.
        self._loaded: tuple[Manifest, tuple[Problem, ...]] | None = None
        #: The manifest that was read last, and the ``stamp_of`` its file.
        self._known: tuple[Stamp, Manifest] | None = None
        #: The ``identity`` of the cache that the last refresh used.
        self._folder = 0

    @classmethod
    def open(
        cls,
        results: Path,
        repo: Path | None = None,
        cache: Path | None = None,
        patience: float = 2.0,
        branches: Sequence[str] = (),
    ) -> Store:
        """Return the store of a results folder without reading a file. The folder need not exist yet.

        Args:
            results: asv's results folder.
            repo: a folder in the git repository that gives the order of commits; ``results`` by default.
            cache: folder for the cache; by default a folder in the user's cache folder, named after ``results``.
            patience: seconds for which ``current`` returns the same snapshot and does not look at the files.
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
        return cls(root, repo or root, chosen, patience, branches)

    def refresh(self) -> Refreshed:
        """Update the cache for files that are new, changed (path, mtime, size) or deleted.

        If another process is refreshing the cache, wait for it.

        Raise ``StoreError`` if the cache cannot be written, or a process that reads files was killed.
        """
        with self._lock:
            return self._refresh(wait=True)

    def current(self) -> Results:
        """Return a snapshot of the results that is at most ``patience`` seconds old.

        A file that is written in place long after its folder changed may take ``_EVERY_FILE`` times as long to show.

        While one thread refreshes the cache, other threads get the previous snapshot. If the cache is damaged or gone,
        they wait until it is made again. While the cache cannot be refreshed, for the reason in ``trouble``, the
        previous snapshot stays.

        Raise ``StoreError`` as ``refresh`` does, and if there is no previous snapshot or parts that it needs are gone.
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
                if self._unchanged():
                    self._looked = time.monotonic()
                else:
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

    def _unchanged(self) -> bool:
        """Return whether folders and the cache are as they were at the last look at every file."""
        recent = time.monotonic() - self._looked_at_files < _EVERY_FILE * self._patience
        current = bool(self._stamps) and not self._checks.failed and not self.trouble.text
        return recent and current and self._whole() and all(stamp_of(path) == of for path, of in self._stamps.items())

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
            except DamagedCache as error:
                move_aside(self.cache, self._folder, str(error))
                changed, gone, points = self._update(current, wait=True)
            except OSError:
                if self._parts.exists():  # if not, somebody deleted the cache meanwhile
                    raise
                changed, gone, points = self._update(current, wait=True)
        except OSError as error:
            raise unusable(self.cache, error) from error
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
        if self._loaded is None:
            return True
        return self._manifest.exists() and not self._checks.changed(map(self._parts.joinpath, self._loaded[0].parts))

    def _update(self, current: Scan, wait: bool) -> tuple[int, int, int]:
        """Read the files that changed since the last refresh, remove deleted files from the cache, and load it.

        Return the numbers of changed files, of deleted files and of points read.

        Raise ``DamagedCache`` if a file of the cache is damaged or missing.
        """
        self.cache.mkdir(parents=True, exist_ok=True)
        read = 0, 0, 0
        self._stamps, self._looked_at_files = {}, time.monotonic()
        with only_one(lock_of(self.cache), wait=wait) as alone:
            self._folder = identity(self.cache)
            if alone:
                read = self._read_files(current)
            manifest = self._read_manifest(alone)
        # A manifest that another process is making again has no order of commits yet. It holds too few results.
        if manifest.line_state or self._snapshot is None:
            self._load(manifest, current)
        if alone and self._known and current.settled:
            self._stamps = {**current.folders, self._manifest: self._known[0]}
        return read

    def _read_manifest(self, alone: bool) -> Manifest:
        """Return the manifest; an empty one for a new cache, also while another process (not ``alone``) makes it."""
        stamp = stamp_of(self._manifest)
        if stamp is None:
            if alone and self._parts.exists():
                raise DamagedCache(f"{self._manifest.name} is missing")
            return Manifest()
        if self._known is None or self._known[0] != stamp:
            self._known = stamp, read_manifest(self._manifest)
        return self._known[1]

    def _read_files(self, current: Scan) -> tuple[int, int, int]:
        before = manifest = self._read_manifest(alone=True)
        if not self._parts.exists():  # so that parts without a manifest are damage
            manifest.write(self._manifest)
        self._parts.mkdir(exist_ok=True)
        for part in manifest.parts:
            self._checks.verify(self._parts / part)
        changed = {path: stamp for path, stamp in current.files.items() if manifest.files.get(path) != stamp}
        gone = manifest.files.keys() - current.files.keys()
        if manifest.tables != current.tables:
            manifest = self._with_tables(manifest, current)
        if gone:
            manifest = manifest.without(gone)
        points, saved = 0, time.monotonic()
        for batch in read_all(batches(self.root, self._parts, changed, manifest.next_run)):
            manifest = manifest.with_batch(batch)
            if time.monotonic() - saved > _SAVE_S:
                manifest.write(self._manifest)
                saved = time.monotonic()
            points += sum(run.points for run in batch.runs.values())
        manifest = self._ordered(self._merged(manifest))
        if manifest is not before:
            manifest.write(self._manifest)
            if stamp := stamp_of(self._manifest):
                self._known = stamp, manifest
        sweep(self._parts, manifest.parts)
        return len(changed), len(gone), points

    def _with_tables(self, manifest: Manifest, current: Scan) -> Manifest:
        entries, faults = read_tables(self.root, current.tables)
        # After a fault keep the known entries, because asv may be writing the table.
        kept = {**manifest.benchmarks, **entries} if faults else entries
        problems = {**manifest.without(manifest.tables).problems, **faults}
        return replace(manifest, tables=current.tables, benchmarks=kept, problems=problems)

    def _merged(self, manifest: Manifest) -> Manifest:
        live = Counter[str]()
        for run in manifest.runs.values():
            live[run.part] += run.points
        for old in mergeable(list(manifest.parts.values()), live):
            names = {part.name for part in old}
            ids = [run.id for run in manifest.runs.values() if run.part in names]
            manifest = manifest.merged(old, merge_parts(self._parts, old, ids))
        return manifest

    def _ordered(self, manifest: Manifest) -> Manifest:
        """Ask git for the order of commits if the commits or the repository's history changed."""
        dates = manifest.commits
        repository = [str(self._repo.absolute()), repository_state(self._repo, self._branches), *self._branches]
        inputs = [*repository, *sorted(map(str, dates.items()))]
        state = blake2b("\n".join(inputs).encode(), digest_size=16).hexdigest()
        if state == manifest.line_state:
            return manifest
        return replace(manifest, line=find_line(dates, self._repo, self._branches), line_state=state)

    def _load(self, manifest: Manifest, current: Scan) -> None:
        """Make a new snapshot, unless nothing changed."""
        strays = current.problems
        if aside := moved_aside(self.cache):
            strays = (*strays, Problem(aside, _DAMAGED, weight="note"))
        if self._loaded is None or self._loaded[0] is not manifest or self._loaded[1] != strays:
            self._snapshot = Results(self._reader, self.root, self._parts, manifest, strays)
            self._loaded = manifest, strays


_DAMAGED = "this cache was damaged and made again from the result files: if it happens again, check the disk"
