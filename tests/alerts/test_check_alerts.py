"""What checks say, from records to alerts: in its own quantity alone, apart from times, with and without a cache."""

import datetime

import pytest
from history import DAY_MS, START_MS, commits_of
from trees import MACHINE, record, write_measurement

from lockstep.alerts.analysis.analyse import analyse_results
from lockstep.alerts.analysis.analysis_file import AnalysisFile
from lockstep.alerts.analysis.latest_findings import MachineFindings
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.database.alert_row import from_json, to_json
from lockstep.alerts.text import headline
from lockstep.compare.series_status import checks_of
from lockstep.history.model import SeriesKey
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds

LENGTH, CASE = 14, "M=8,K=64"
NOW = datetime.datetime.fromtimestamp((START_MS + LENGTH * DAY_MS) / 1000, datetime.UTC)


def records(n):
    """Run 3 has odd inputs; "sums" loses a bit from run 6 on; "atomics" differs from itself from run 9 on."""
    inputs = 1.66e-3 * (1.3 if n == 3 else 1.0 + 0.01 * (n % 3))
    errors = {"torch": 1.0, "sums": 1.0 if n < 6 else 2.5, "atomics": 1.0}
    return [
        record(
            variant=name,
            case=CASE,
            l2=l2,
            baseline="torch",
            speedup=None if name == "torch" else record().speedup,
            check_error=inputs * factor,
            deterministic=not (name == "atomics" and n >= 9 and n != 11),
        )
        for name, factor in errors.items()
        for l2 in ("cold", "warm")
    ]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("checks") / "repo"
    return root, commits_of(root, LENGTH)


def found(root, commits, cache):
    """Analyse the results of these commits, which are written first."""
    for n, commit in enumerate(commits):
        if not list((root / "results" / MACHINE).glob(f"{commit[:8]}-*")):
            write_measurement(root / "results", records(n), commit=commit, date=START_MS + n * DAY_MS)
    results = Store.open(root / "results", cache=root.parent / "cache", patience=0.0).current()
    ranges = Ranges(root, ("kernels",))
    return results, analyse_results(results, Thresholds(), ranges, NOW, cache)


@pytest.fixture(scope="module")
def analysed(tree):
    root, commits = tree
    cache = AnalysisFile(root.parent / "found")
    for end in (4, 7, 10):
        found(root, commits[:end], cache)
    results, last = found(root, commits, cache)
    return results, commits, last, cache


def test_each_change_is_found_at_its_commit_in_its_own_quantity(analysed):
    _, commits, last, _ = analysed
    changes = {(one.series.variant, one.series.quantity, one.after) for one in last.changes}
    assert changes == {("sums", "error", commits[6]), ("atomics", "deterministic", commits[9])}
    assert len(last.changes) == 2, "the cache states of a case share a check"
    assert {one.suppressed for one in last.changes} == {""}


def test_an_analysis_commit_by_commit_finds_what_one_of_all_finds(analysed, tmp_path, tree):
    _, _, last, _ = analysed
    root, commits = tree
    _, whole = found(root, commits, AnalysisFile(tmp_path))
    assert (whole.changes, whole.alerts) == (last.changes, last.alerts)


def test_an_alert_is_apart_from_times_and_says_how_to_measure(analysed):
    _, commits, last, _ = analysed
    headlines = {headline(one) for one in last.alerts}
    assert headlines == {
        f"linear on {MACHINE} worse in {commits[6][:8]}: linear.sums {CASE} cold error 1.69e-03 → 4.15e-03 (+145.1 %)",
        f"linear on {MACHINE} worse in {commits[9][:8]}: linear.atomics {CASE} cold deterministic 1 → 0",
    }
    assert all(from_json(to_json(one)) == one for one in last.alerts)


def test_pages_of_all_cache_states_find_the_changes(analysed):
    results, _, _, cache = analysed
    findings = MachineFindings(cache, results, MACHINE, Thresholds())
    for l2 in ("cold", "warm"):
        [one] = checks_of(SeriesKey(MACHINE, "linear", "sums", CASE, l2), findings)
        assert (one.series.quantity, one.old) == ("error", pytest.approx(1.66e-3 * 1.02))
