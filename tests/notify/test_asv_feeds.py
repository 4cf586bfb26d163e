"""The published feeds tell of the same changes as the commands: those on the line of the tracked branch."""

import json
import re
from pathlib import Path

from asv.config import Config
from measured_repository import Repository

from dashboard.snapshot import Snapshot


def test_the_feeds_know_the_repository_and_the_branches_of_the_configuration(tmp_path, monkeypatch):
    repository = Repository(tmp_path / "repo", tmp_path / "results")
    for _ in range(8):
        repository.commit("fast", 1.0)
    repository.git("branch", "experiment")
    for _ in range(4):
        repository.commit("fast", 1.0)
    slow = repository.commit("slow", 1.3)
    for _ in range(8):
        repository.commit("slow already", 1.3)
    repository.switch("experiment")
    for _ in range(6):
        repository.commit("experiment", 2.0)
    (tmp_path / "html").mkdir()
    index = tmp_path / "html" / "index.html"
    index.write_text("<head></head>")
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    conf = {"version": 1, "project": "toy", "repo": "repo", "branches": ["main"], "html_dir": "html"}
    Snapshot.publish(Config.from_json(conf), None, None, None, None)
    feed = (tmp_path / "html" / "alerts.atom").read_text()
    assert re.findall("since: .*", feed) == [f"since: commit {slow[:12]}"]
    assert "alerts.atom" in index.read_text()
    alerts = json.loads((tmp_path / "html" / "alerts.json").read_text())
    assert [alert["commits"] for alert in alerts if alert["topic"] == "slower"] == [[slow]]


def test_one_function_opens_the_store_for_every_command_and_page():
    """A store that is opened elsewhere would not know the repository, the branches or the rules."""
    root = Path(__file__).parents[2]
    sources = [path for folder in ("lockstep", "dashboard") for path in (root / folder).rglob("*.py")]
    assert [path.name for path in sources if "return Store.open(" in path.read_text()] == ["asv_project.py"]
    assert [path.name for path in sources if "= Store.open(" in path.read_text()] == ["__init__.py"]  # the docstring
