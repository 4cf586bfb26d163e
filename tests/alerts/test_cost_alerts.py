"""Costs from results on disk to alerts: a planted change is found in its own quantity and in no other."""

import datetime

import pytest
from history import CASES, DAY_MS, START_MS, VARIANT, Here, commits_of, write_history

from lockstep.alerts.analysis.analyse import analyse_results
from lockstep.alerts.analysis.analysis_file import AnalysisFile
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.text import headline
from lockstep.history.store import Store
from lockstep.record.quantity import COSTS
from lockstep.suite.thresholds import Pattern, Rule, Thresholds

LENGTH, PLANTED = 30, 18
MACHINE = "h200"
NOW = datetime.datetime.fromtimestamp((START_MS + LENGTH * DAY_MS) / 1000, datetime.UTC)


def analysed(root, planted, length=LENGTH, thresholds=None):
    commits = commits_of(root / "repo", LENGTH)
    write_history(root / "repo" / "results", MACHINE, commits[:length], planted)
    return commits, found_in(root, thresholds)


def found_in(root, thresholds=None):
    results = Store.open(root / "repo" / "results", cache=root / "cache").current()
    cache, ranges = AnalysisFile(root / "found"), Ranges(root / "repo", ("kernels",))
    return analyse_results(results, thresholds or Thresholds(), ranges, NOW, cache)


def plan(slower):
    """All costs are measured at every commit; one becomes slower."""
    return lambda number: Here(costs=dict.fromkeys(COSTS, 1.0) | ({slower: 1.2} if number >= PLANTED else {}))


@pytest.mark.parametrize("name", COSTS)
def test_a_planted_change_is_found_in_its_own_quantity_alone(tmp_path, name):
    commits, found = analysed(tmp_path, plan(name))
    reported = [one for one in found.changes if not one.suppressed]
    # A variant is followed by its ratio to the baseline where there is one.
    quantity = COSTS[name][-1]
    assert {(one.series.quantity, one.series.variant) for one in reported} == {(quantity, VARIANT)}
    assert {one.series.case for one in reported} == set(CASES)
    assert {one.after for one in reported} == {commits[PLANTED]}
    assert all(0.1 < one.size < 0.3 for one in reported)
    if name == "compile":  # `changes` alone lists it
        assert found.alerts == ()
        return
    [alert] = found.alerts
    assert f"cold {quantity.replace('_', ' ')}" in headline(alert)
    assert ("slower" if name != "energy" else "worse") in headline(alert)


def test_a_threshold_of_a_quantity_keeps_its_changes_alone_quiet(tmp_path):
    both = lambda number: Here(  # noqa: E731
        costs={"host": 1.1, "behind": 1.1} if number >= PLANTED else {"host": 1.0, "behind": 1.0}
    )
    quiet = Thresholds(rules=(Rule(Pattern(quantity="host"), min_effect=0.2),))
    _, found = analysed(tmp_path, both, thresholds=quiet)
    reported = {(one.series.quantity, one.suppressed) for one in found.changes if one.size > 0.05}
    assert reported == {("host", "small"), ("behind_speedup", "")}


def test_commits_that_come_later_continue_the_analysis(tmp_path):
    commits, before = analysed(tmp_path, plan("host"), PLANTED)
    assert [one for one in before.changes if not one.suppressed] == []
    write_history(tmp_path / "repo" / "results", MACHINE, commits, plan("host"))
    after = found_in(tmp_path)
    [alert] = after.alerts
    assert alert.commits == (commits[PLANTED],)
    again = AnalysisFile(tmp_path / "anew")
    results = Store.open(tmp_path / "repo" / "results", cache=tmp_path / "cache").current()
    whole = analyse_results(results, Thresholds(), Ranges(tmp_path / "repo", ("kernels",)), NOW, again)
    assert [(one.series, one.version, one.after) for one in whole.changes] == [
        (one.series, one.version, one.after) for one in after.changes
    ]


def test_a_cost_that_is_no_longer_measured_has_vanished(tmp_path):
    _, found = analysed(tmp_path, lambda number: Here(costs={"host": 1.0} if number < PLANTED else {}))
    [alert] = found.alerts
    assert alert.topic == "vanished"
    assert "linear.torch M=1,K=64 host" in alert.text


def test_the_hosts_time_and_the_compilers_are_told_apart_from_the_gpus(tmp_path):
    slower = {"host": 1.3, "behind": 1.1, "compile": 1.5}

    def planted(number):
        after = number >= PLANTED
        return Here(costs=slower if after else dict.fromkeys(slower, 1.0), slower=1.1 if after else 1.0)

    _, found = analysed(tmp_path, planted)
    told = [{member.series.quantity for member in alert.members} for alert in found.alerts]
    assert sorted(told, key=sorted) == [{"behind_speedup", "speedup"}, {"host"}]
    assert "compile" in {change.series.quantity for change in found.changes}
    store = AlertStore(Database(tmp_path / "alerts.sqlite"))
    assert len(store.sync(found).opened) == 2
    assert store.sync(found_in(tmp_path)).opened == ()
