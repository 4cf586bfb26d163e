"""Analyse a results store, and write the findings for the dashboard's pages."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from lockstep.alerts.analysis.analyse import AnalysisResult, analyse_results
from lockstep.alerts.analysis.cache_files import AnalysisCache, key_of, write_whole
from lockstep.alerts.analysis.findings_files import write_changes
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.model import FoundChange
from lockstep.history.part_checks import DamagedPart
from lockstep.history.snapshot import Results
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds


def analyse_store(
    store: Store, thresholds: Thresholds, repo: Path, packages: Sequence[str] = ()
) -> tuple[Results, AnalysisResult]:
    """Analyse all new results in a store, and write the findings for the dashboard's pages.

    If a part of the store is damaged, it is made again and the analysis starts again, once.

    Args:
        repo: a folder in the git repository whose commits are measured.
        packages: folders of the packages under test, relative to the repository's root.
    """
    try:
        return _analyse_store(store, thresholds, repo, packages)
    except DamagedPart:
        return _analyse_store(store, thresholds, repo, packages)


def _analyse_store(
    store: Store, thresholds: Thresholds, repo: Path, packages: Sequence[str]
) -> tuple[Results, AnalysisResult]:
    results, cache = store.current(), AnalysisCache(store.cache)
    now = datetime.datetime.now(datetime.UTC)
    result = analyse_results(results, thresholds, Ranges(repo, packages), now, cache)
    publish(result, results, cache, key_of(results, thresholds, repo, tuple(packages)))
    return results, result


def publish(result: AnalysisResult, results: Results, cache: AnalysisCache, key: str) -> None:
    """Write the files from which the dashboard's pages read the changes of each machine.

    Args:
        result: the analysis of all machines, made with the same ``cache``.
        key: see ``lockstep.alerts.analysis.cache_files.key_of``.
    """
    findings: dict[str, list[FoundChange]] = defaultdict(list)
    for change in result.changes:
        findings[change.series.machine].append(change)
    for machine in results.machines:
        write_changes(cache.changes(machine, key), findings[machine])
    write_whole(cache.done(key), lambda file: file.write(b""))
    cache.sweep(key, results.machines)
