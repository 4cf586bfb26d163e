"""The alerts follow the results by themselves, in a process of its own, and say if that fails."""

import datetime
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from history import DAY_MS, START_MS, Here, commits_of, write_history

from lockstep.alerts.analysis.runner import AnalysisRunner, AnalysisStatus, read_status, write_status
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.history.store import Store


@pytest.fixture
def store(tmp_path):
    hashes = commits_of(tmp_path / "repo", 10)
    root = tmp_path / "repo" / "results"
    write_history(root, "h200", hashes, lambda n: Here(slower=1.08 if n >= 6 else 1.0))
    return Store.open(root, cache=tmp_path / "cache", patience=0.0)


def test_new_results_are_analysed_once_the_alert_is_there_and_all_processes_know(tmp_path, store):
    state = str(tmp_path / "alerts.sqlite")
    alerts = AlertStore(Database(state))
    options = ["--results", str(store.root), "--cache", str(tmp_path / "cache")]
    runner, other = (AnalysisRunner(options, state, tmp_path / "turn") for _ in range(2))
    results = store.current()
    runner.request_analysis(results)
    assert runner.busy
    runner.wait(60)
    assert (runner.status.failing, runner.status.text) == (False, "")
    [one] = alerts.alerts(family="linear")
    assert one.alert.topic == "slower"
    assert one.alert.since == START_MS + 6 * DAY_MS
    assert one.opened_at <= datetime.datetime.now(datetime.UTC).timestamp() * 1000
    assert other.status == runner.status
    assert other.status.succeeded
    for one in (runner, other):
        one.request_analysis(results)
        assert not one.busy


#: A runner in a process of its own, as a worker of the server has one.
WORKER = """
import sys, time
from pathlib import Path
from lockstep.alerts.analysis.runner import AnalysisRunner
from lockstep.history.store import Store
store = Store.open(Path(sys.argv[1]), cache=Path(sys.argv[2]), patience=0.0)
runner = AnalysisRunner(["--results", sys.argv[1], "--cache", sys.argv[2]], sys.argv[3], Path(sys.argv[4]))
runner.request_analysis(store.current())
time.sleep(1000)
"""


def analysing(token: str, argument: bytes = b"") -> list[int]:
    """Processes that were started with this variable, and what they started: their environment says so."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            alive = (path / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
            if alive and f"TEST_TOKEN={token}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found += [int(path.name)] if argument in (path / "cmdline").read_bytes() else []
        except OSError:
            continue  # it ended meanwhile
    return sorted(found)


@pytest.mark.parametrize("who", [pytest.param("the worker", marks=pytest.mark.thorough), "the analysis"])
def test_a_killed_analysis_leaves_nothing_and_is_done_again(tmp_path, store, who):
    cache, state, turn = tmp_path / "cache", tmp_path / "alerts.sqlite", tmp_path / "turn"
    arguments = [sys.executable, "-c", WORKER, str(store.root), str(cache), str(state), str(turn)]
    token = str(tmp_path)
    worker = subprocess.Popen(arguments, env={**os.environ, "TEST_TOKEN": token})
    until = time.monotonic() + 60
    while not (children := analysing(token, b"--no-list")) and time.monotonic() < until:
        time.sleep(0.01)
    runner = AnalysisRunner(["--results", str(store.root), "--cache", str(cache)], str(state), turn)
    if who == "the analysis":
        # Its guard leads no group.
        os.kill(next(pid for pid in children if os.getpgid(pid) == pid), signal.SIGKILL)
        while not runner.status.failures and time.monotonic() < until:
            time.sleep(0.02)
        assert "killed by SIGKILL" in runner.status.reason
    worker.kill()
    worker.wait()
    while analysing(token) and time.monotonic() < until:
        time.sleep(0.02)
    assert analysing(token) == []
    with turn.open("w") as free:
        fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert runner.status.failures == (1 if who == "the analysis" else 0)
    while not runner.status.succeeded and time.monotonic() < until:
        runner.request_analysis(store.current())
        runner.wait(60)
        time.sleep(0.1)
    assert (runner.status.failing, runner.status.text) == (False, "")
    assert len(AlertStore(Database(str(state))).alerts(family="linear")) == 1


def test_a_failure_gives_its_reason_and_one_before_the_clock_was_set_back_does_not_delay_the_next_analysis(
    tmp_path, store, monkeypatch
):
    thresholds, now = tmp_path / "thresholds.toml", time.time
    thresholds.write_text("[default]\nmin_efect = 1\n")
    options = ["--results", str(store.root), "--cache", str(tmp_path / "cache"), "--thresholds", str(thresholds)]
    runner, results = AnalysisRunner(options, str(tmp_path / "alerts.sqlite"), tmp_path / "turn"), store.current()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now() + 86_400)
        runner.request_analysis(results)
        runner.wait(60)
    assert runner.status.failing
    assert runner.status.failures == 1
    assert "min_efect" in runner.status.reason
    assert "min_efect" in runner.status.text
    thresholds.write_text("")
    runner.request_analysis(results)
    runner.wait(60)
    assert not runner.status.failing


def test_an_old_or_damaged_status_is_reported(tmp_path):
    path = tmp_path / "status"
    assert read_status(path) == AnalysisStatus()
    write_status(path, AnalysisStatus().succeed("x"))
    assert read_status(path).text == ""
    now = time.time()
    write_status(path, AnalysisStatus(now - 8000, now - 8000, "x"))
    assert read_status(path).text.startswith("No analysis has run for over 2 hours. The findings shown are of 20")
    path.write_text("[1]")
    assert read_status(path) == AnalysisStatus()


def test_two_runners_take_turns(tmp_path, store):
    turn = tmp_path / "turn"
    options = ["--results", str(store.root), "--cache", str(tmp_path / "cache")]
    runner = AnalysisRunner(options, str(tmp_path / "alerts.sqlite"), turn)
    with turn.open("w") as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        runner.request_analysis(store.current())
        runner.wait(0.5)
        assert runner.busy
        assert not (tmp_path / "alerts.sqlite").exists()
    runner.wait(60)
    assert (runner.busy, runner.status.text) == (False, "")


def test_new_thresholds_are_judged_by_at_once(tmp_path, store):
    thresholds = tmp_path / "thresholds.toml"
    options = ["--results", str(store.root), "--cache", str(tmp_path / "cache"), "--thresholds", str(thresholds)]
    thresholds.write_text("")
    runner = AnalysisRunner(options, str(tmp_path / "alerts.sqlite"), tmp_path / "turn", thresholds)
    runner.request_analysis(store.current())
    runner.wait(60)
    runner.request_analysis(store.current())
    assert not runner.busy
    thresholds.write_text("[default]\nmin_effect = 0.5\n")
    runner.request_analysis(store.current())
    runner.wait(60)
    [one] = AlertStore(Database(tmp_path / "alerts.sqlite")).alerts(family="linear")
    assert (one.state, one.ending) == ("resolved", "withdrawn")
