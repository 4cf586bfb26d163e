"""Open the results of an asv project: where its repository is, and which branches it tracks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.processes.git import Git

if TYPE_CHECKING:
    from lockstep.history.store import Store


def repository_of(conf: Any | None, results: Path) -> Path:
    """Return a folder in the commits' git repository: the local one of asv's configuration, else the results."""
    # asv clones a repository with an address into a folder with the project's name.
    named = [Path(text) for text in (conf.repo, conf.project) if text] if conf else []
    local = (folder for folder in named if folder.is_dir() and Git(folder).try_line("rev-parse", "--git-dir"))
    return next(local, results)


def open_project(conf: Any | None, results: Path, repo: Path, cache: Path | None = None) -> Store:
    """Open the store of results with the branches that asv's configuration tracks, without reading results.

    Args:
        conf: asv's configuration; ``None`` if the results have none.
        repo: a folder in the commits' git repository, see ``repository_of``.
        cache: folder for the store's cache; by default in the user's cache folder.

    Raises:
        lockstep.history.store.StoreError: the cache folder is inside the results folder.
    """
    from lockstep.history.store import Store  # imported here, because the import takes half a second

    branches = tuple(filter(None, conf.branches)) if conf else ()
    return Store.open(results, repo, cache, branches=branches)
