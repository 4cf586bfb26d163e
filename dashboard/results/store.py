"""The store: a columnar cache that is kept in step with a results folder."""

from __future__ import annotations

from pathlib import Path

from dashboard.results.model import Refreshed
from dashboard.results.picture import Results


class Store:
    """A results folder and its cache; several processes may share both.

    The cache is a folder of its own, never inside the results: parquet parts for each machine and an SQLite
    manifest. Everything in it follows from the files, so it may be deleted at any time.
    """

    @classmethod
    def open(cls, results: Path, repo: Path | None = None, cache: Path | None = None, patience: float = 2.0) -> Store:
        """The store of a results folder, which need not exist yet. Reads nothing.

        Args:
            results: asv's results folder.
            repo: a folder in the git repository that tells the order of commits; ``results`` by default.
            cache: folder for the cache; by default one in the user's cache folder, named after ``results``.
            patience: seconds for which ``current`` believes what it saw.
        """
        raise NotImplementedError

    def refresh(self, wait: bool = True) -> Refreshed:
        """Bring the cache in step with the files: those that are new, changed (path, mtime, size) or gone.

        Args:
            wait: for another process that is refreshing; without it, what that one has finished is taken.
        """
        raise NotImplementedError

    def current(self) -> Results:
        """The picture, refreshed if it is older than ``patience``. While one thread refreshes, others get the last."""
        raise NotImplementedError
