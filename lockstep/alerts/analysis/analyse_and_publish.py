"""Analyse a results store, and publish the findings for the dashboard's pages."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from lockstep.alerts.analysis.analyse import AnalysisResult, analyse_results
from lockstep.alerts.analysis.analysis_file import AnalysisFile
from lockstep.alerts.analysis.stored_analysis import publish
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.history.cache_folder import DamagedCache, only_one
from lockstep.history.snapshot import Results
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds


def analyse_store(
    store: Store, thresholds: Thresholds, repo: Path, packages: Sequence[str] = ()
) -> tuple[Results, AnalysisResult]:
    """Analyse all new results in a store, and publish the findings for the dashboard's pages.

    One process analyses at a time. If the cache is damaged, it is made again and the analysis starts again, once.

    Args:
        repo: a folder in the git repository whose commits are measured.
        packages: folders of the packages under test, relative to the repository's root.

    Raises:
        StoreError: the cache cannot be written.
    """
    try:
        return _analyse_store(store, thresholds, repo, packages)
    except DamagedCache:
        return _analyse_store(store, thresholds, repo, packages)


def _analyse_store(
    store: Store, thresholds: Thresholds, repo: Path, packages: Sequence[str]
) -> tuple[Results, AnalysisResult]:
    results, file = store.current(), AnalysisFile(store.cache)
    with only_one(store.cache / "analyses.lock", wait=True):
        now = datetime.datetime.now(datetime.UTC)
        result = analyse_results(results, thresholds, Ranges(repo, packages), now, file)
        publish(file, key_of(results, thresholds, repo, tuple(packages)))
    return results, result


def key_of(results: Results, thresholds: Thresholds, repo: Path, packages: tuple[str, ...]) -> str:
    """Return a digest that changes whenever the findings may change: of results, thresholds, repository and packages.

    The current day also affects the alerts, but is not part of the digest.
    """
    states = [f"{machine} {results.state(machine)}" for machine in results.machines]
    order = [commit.hash for commit in results.commits()]
    texts = [*states, *order, repr(thresholds), str(repo.resolve()), *packages]
    return blake2b("\n".join(texts).encode("utf-8", "surrogateescape"), digest_size=10).hexdigest()
