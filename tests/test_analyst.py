"""The alerts follow the results by themselves, in a process of its own, and say if that fails."""

import datetime

import pytest
from history import DAY_MS, START_MS, Here, commits_of, write_history

from dashboard.alerts.database import Database
from dashboard.alerts.store import AlertStore
from dashboard.analyst import Analyst
from dashboard.results.store import Store


@pytest.fixture
def store(tmp_path):
    hashes = commits_of(tmp_path / "repo", 10)
    root = tmp_path / "repo" / "results"
    write_history(root, "h200", hashes, lambda n: Here(slower=1.08 if n >= 6 else 1.0))
    return Store.open(root, cache=tmp_path / "cache", patience=0.0)


def test_new_results_are_analysed_once_and_the_alert_is_there(tmp_path, store):
    state = str(tmp_path / "alerts.sqlite")
    alerts = AlertStore(Database(state))
    analyst = Analyst(["--results", str(store.root), "--cache", str(tmp_path / "cache")], state)
    results = store.current()
    analyst.look(results)
    assert analyst.busy
    analyst.wait(60)
    assert analyst.trouble == ""
    [one] = alerts.alerts(family="linear")
    assert one.alert.topic == "slower"
    assert one.alert.since == START_MS + 6 * DAY_MS
    assert one.opened_at <= datetime.datetime.now(datetime.UTC).timestamp() * 1000
    analyst.look(results)
    assert not analyst.busy


def test_an_analysis_that_fails_says_why(tmp_path, store):
    thresholds = tmp_path / "thresholds.toml"
    thresholds.write_text("[default]\nmin_efect = 1\n")
    options = ["--results", str(store.root), "--cache", str(tmp_path / "cache"), "--thresholds", str(thresholds)]
    analyst = Analyst(options, str(tmp_path / "alerts.sqlite"))
    analyst.look(store.current())
    analyst.wait(60)
    assert "min_efect" in analyst.trouble
