"""Without a disk to write to or without its database, the dashboard goes on with what it knows, and says so once."""

import contextlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from alerting import COMMITS, alerts, postgres, step
from history import Here, write_history
from prometheus_client.parser import text_string_to_metric_families
from served import call, place

from dashboard.server.app import create_app
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.model import AnalysisResult
from lockstep.alerts.pages_service import AlertService
from lockstep.history.store import Store, StoreError

OVERVIEW = ["h200", "all", "all", "time", None, None]


@contextlib.contextmanager
def small_disk(folder):
    """Mount a file system of 24 MB at a folder. Skips where that is not allowed."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Try again at each request what failed, not after some seconds."""
    monkeypatch.setattr("lockstep.history.store._RETRY_S", 0.0)
    monkeypatch.setattr("lockstep.alerts.pages_service._RETRY_S", 0.0)


def fill(disk):
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 65536)
    with contextlib.suppress(OSError), (disk / "more").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 512)


def new_results(here, number):
    """A result file that the cache does not hold yet."""
    write_history(here.root, f"new{number}", here.commits, lambda n: Here())


def shown(client):
    """What readers and programs get: words of the overview, metrics by name, and the health."""
    answer = call(client, "overview-said.children", OVERVIEW)
    assert answer.status_code == 200, answer.text
    metrics = client.get("/metrics")
    assert metrics.status_code == 200
    families = {one.name: one for one in text_string_to_metric_families(metrics.text)}
    health = client.get("/healthz")
    return answer.json["response"], families, (health.status_code, health.json)


def degraded(families):
    return {sample.labels["part"] for sample in families["lockstep_degraded"].samples if sample.value}


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_without_a_disk_to_write_to_the_results_in_memory_are_shown(tmp_path, capfd, how):
    with small_disk(tmp_path / "disk") as disk:
        planted = place(tmp_path / "planted")
        store = Store.open(planted.root, cache=disk / "cache", patience=0.0)
        shutil.copy(tmp_path / "planted" / "alerts.sqlite", disk / "alerts.sqlite")
        service = AlertService(AlertStore(Database(disk / "alerts.sqlite")))
        client = create_app(store, service).server.test_client()
        before, families, (status, health) = shown(client)
        assert (degraded(families), status, health["status"]) == (set(), 200, "ok")
        capfd.readouterr()
        if how == "full":
            fill(disk)
        else:
            service.alerts.database.close()  # with a file open to write, only the kernel makes a disk read-only
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        new_results(planted, 1)
        for _ in range(10):
            after, families, (status, health) = shown(client)
        assert after["overview-cards"] == before["overview-cards"]
        assert "results" in degraded(families)
        assert families["lockstep_machine_commits"].samples
        assert (status, health["status"], health["machines"]) == (200, "degraded", 3)
        assert f"its disk is {how}" in health["trouble"]["results"]
        assert f"its disk is {how}" in client.get("/_live").json["trouble"]
        lines = capfd.readouterr().err.splitlines()
        assert [line for line in lines if "results are not up to date" in line] == [lines[0]]
        assert len(lines) <= 2, lines  # the alert database is on the same disk
        with pytest.raises(StoreError, match=f"its disk is {how}"):
            Store.open(planted.root, cache=disk / "other").current()
        if how == "full":
            (disk / "filler").unlink()
        else:
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        _, families, (status, health) = shown(client)
        assert (degraded(families), health) == (set(), {"status": "ok", "machines": 4})
        assert "no longer true: results are not up to date" in capfd.readouterr().err


def test_without_its_database_the_last_alerts_are_shown(tmp_path, capfd):
    planted = place(tmp_path / "planted")
    # Not below pytest's folder, which only its owner may enter.
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as server:
        Path(folder).chmod(0o755)
        url = server.enter_context(postgres(Path(folder) / "pg"))
        stored = AlertStore(Database(url))
        service = AlertService(stored)
        client = create_app(planted.store, service).server.test_client()
        stored.sync(AnalysisResult(alerts(step(10)), {"h200": COMMITS}))
        before, families, (_, health) = shown(client)
        assert health["status"] == "ok"
        known = families["lockstep_alerts"].samples
        assert known
        capfd.readouterr()
        server.close()
        for _ in range(10):
            after, families, (status, health) = shown(client)
        assert after["overview-cards"] == before["overview-cards"]
        assert (degraded(families), families["lockstep_alerts"].samples) == ({"alerts"}, known)
        assert (status, health["status"]) == (200, "degraded")
        assert health["trouble"]["alerts"].startswith(
            "Alerts are not up to date, because the alert database at postgres"
        )
        answer = client.get("/api/v1/alerts")
        assert (answer.status_code, "cannot be used" in answer.json["error"]) == (503, True)
        assert client.get("/alert/1").status_code == 200
        [line] = capfd.readouterr().err.splitlines()
        assert line.startswith("lockstep: alerts are not up to date")
