"""Exact quantities beside each other: any change has a verdict, also one from zero, which has no ratio."""

import pytest
from compared import each
from exact import KEY, code, write_exact_history
from history import commits_of

from lockstep.compare.series_status import statuses
from lockstep.compare.two_sides import Side, compare
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds

MACHINE = "sm_90-compiled"


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    root = tmp_path_factory.mktemp("exact") / "repo"
    commits = commits_of(root, 2)
    plan = [code(registers=128, launches=2), code(registers=129, spills=512, launches=1)]
    write_exact_history(root / "results", commits, plan.__getitem__)
    return Store.open(root / "results", cache=root.parent / "cache").current(), commits


def test_two_commits_are_compared_without_statistics(history):
    results, commits = history
    sides = [Side(MACHINE, commit) for commit in commits]
    found = compare(results, *sides, "latency", Thresholds())
    verdicts = {pair.suite: (pair.verdict, pair.base, pair.head, pair.unit) for pair in found}
    assert verdicts["linear.registers"] == ("slower", 128, 129, "registers"), "less than the threshold of times"
    assert verdicts["linear.spills"] == ("slower", 0, 512, "B")
    assert verdicts["linear.launches"] == ("faster", 2, 1, "launches")
    assert verdicts["linear.kept"] == ("same", 0, 0, "bytes")
    assert {pair.head_variant for pair in found} == {KEY.variant}


def test_the_overview_needs_no_detector(history):
    results, _ = history
    stood = statuses(results, MACHINE, results.commits(MACHINE)[0], None, Thresholds())
    found = {one.row.suite: one for one in each(stood)}
    assert (found["linear.spills"].verdict, found["linear.spills"].worse) == ("slower", None)
    assert (found["linear.launches"].verdict, found["linear.kept"].verdict) == ("faster", "same")
    assert found["linear.registers"].beyond_noise
