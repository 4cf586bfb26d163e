"""The alerts follow the results by themselves, in a process of its own, and say if that fails."""

import datetime
import fcntl

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
    analyst = Analyst(["--results", str(store.root), "--cache", str(tmp_path / "cache")], state, tmp_path / "turn")
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
    analyst = Analyst(options, str(tmp_path / "alerts.sqlite"), tmp_path / "turn")
    analyst.look(store.current())
    analyst.wait(60)
    assert "min_efect" in analyst.trouble


def test_two_analysts_take_turns(tmp_path, store):
    turn = tmp_path / "turn"
    options = ["--results", str(store.root), "--cache", str(tmp_path / "cache")]
    analyst = Analyst(options, str(tmp_path / "alerts.sqlite"), turn)
    with turn.open("w") as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        analyst.look(store.current())
        analyst.wait(0.5)
        assert analyst.busy
        assert not (tmp_path / "alerts.sqlite").exists()
    analyst.wait(60)
    assert (analyst.busy, analyst.trouble) == (False, "")
