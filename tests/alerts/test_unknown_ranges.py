"""Nobody is blamed where git does not know the commits between two measured ones; everybody is shown the two ends."""

import json
import re
import subprocess

import pytest
from alerting import alerts, series, step
from history import Here, commits_of, write_foreign, write_history
from verb import run_verb

from dashboard.address import SeriesAddress
from dashboard.charts.marks import marks
from dashboard.pages.alert import body
from dashboard.pages.overview_answer import MOST_NEWS, news
from dashboard.pages.series import changes
from dashboard.pages.series_data import view
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.text import asv_find_command
from lockstep.history.store import Store
from lockstep.notify.feed import atom
from lockstep.notify.message import alert_message

#: Every tenth of these is measured, and the last 61 are slow: the culprit is one of ten.
LENGTH, EVERY, SLOW = 120, 10, 60
PACKAGES = {"version": 1, "project": "toy", "repo": ".", "environment_type": "lockstep"}


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    root = tmp_path_factory.mktemp("origin") / "repo"
    return root, commits_of(root, LENGTH, touch=lambda n: n % 3 == 0)


def measure(folder, commits):
    """Results of a machine below the folder, and a configuration that names the packages."""
    write_history(folder / "results", "h200", commits, lambda n: Here(slower=1.05 if n >= SLOW else 1.0), every=EVERY)
    conf = PACKAGES | {"results_dir": "results", "plugins": [".lockstep.asv"], "lockstep": {"packages": ["kernels"]}}
    (folder / "asv.conf.json").write_text(json.dumps(conf))


def git(folder, *arguments):
    subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a command line in a folder: what it printed."""
    for name in ("DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.delenv("LOCKSTEP_STATE", raising=False)
    status = []

    def command(folder, *words):
        monkeypatch.chdir(folder)
        state = () if words[0] == "changes" else ("--state", tmp_path / "alerts.sqlite")
        status[:] = [run_verb(*words, *state)]
        told = capsys.readouterr()
        return told.out + told.err

    command.status = status
    return command


@pytest.fixture(params=["shallow", "no repository", "missing"])
def abroad(request, origin, tmp_path):
    """A folder with results whose commits git does not know, why, and what the folder's alerts say to do."""
    root, commits = origin
    folder = tmp_path / "folder"
    if request.param == "shallow":
        git(tmp_path, "clone", "-q", "--depth=1", f"file://{root}", folder)
    else:
        folder.mkdir()
    if request.param == "missing":
        git(folder, "init", "-q")
        who = ("-c", "user.name=T", "-c", "user.email=t@example.org")
        git(folder, *who, "commit", "-q", "--allow-empty", "-m", "Other")
    measure(folder, commits)
    remedy = {"shallow": "git fetch --unshallow", "no repository": "--repo FOLDER", "missing": "`git fetch`"}
    reason = "unplaced" if request.param == "shallow" else request.param
    return folder, reason, remedy[request.param]


def test_every_command_page_and_message_shows_the_two_ends(abroad, origin, run, tmp_path):
    (folder, reason, remedy), (_, commits) = abroad, origin
    before, after = commits[SLOW - EVERY], commits[SLOW]
    ends = f"{before[:8]}..{after[:8]}"

    listed = run(folder, "alerts", "list")
    assert f"in {ends}: " in listed
    assert "unknown range" in listed
    shown = run(folder, "alerts", "show", "1")
    assert "why: unknown range: no commit can be named, as " in shown
    assert f"since: {before[:12]}..{after[:12]}, in the order of their dates, and the commits in between" in shown
    assert re.search("why: unknown range: no commit can be named, as .*dates give", shown)
    assert remedy in shown
    assert "own commit" not in shown
    assert "lockstep bisect" not in shown
    assert ends in run(folder, "changes")
    for text in (listed, shown):
        assert f"commit {after[:8]}" not in text

    found = json.loads(run(folder, "changes", "--json"))["changes"]
    assert [(one["before"], one["after"], one["commits"], one["unknown"]) for one in found] == [
        (before, after, [], reason)
    ] * 3
    assert not [one for change in found for one in change["cause"]["evidence"] if one["what"] == "commit"]
    [alert] = [one for one in json.loads(run(folder, "alerts", "list", "--json")) if one["topic"] == "slower"]
    assert (alert["before"], alert["after"], alert["commits"], alert["suspects"]) == (before, after, [], [])
    assert (alert["unknown"], alert["range"]) == (reason, ends)

    database = Database(tmp_path / "alerts.sqlite")
    one, open_alerts = AlertStore(database).alert(1), AlertStore(database).open_on("h200", MOST_NEWS)
    database.close()
    message = alert_message(one, "https://bench.example.org")
    for text in (f"{message.title}\n{message.body}", atom([one])):
        assert ends in text
        assert "the commits in between are unknown" in text
        assert "own commit" not in text
    assert f"\nnext: measure it again: lockstep gate --base {before[:12]} --head {after[:12]} --family " in message.body
    repo = folder if (folder / ".git").is_dir() else folder / "results"
    store = Store.open(folder / "results", repo)
    results = store.current()
    card = str(news(open_alerts, "h200", 0))
    assert ends in card
    assert f"/commit/{after}" not in card
    page = str(body(one, results, "light"))
    assert "the commits in between are unknown" in page
    assert remedy in page
    assert "Measured commits" in page
    assert "in the range" not in page
    assert "lockstep bisect" not in page
    findings = Findings(store.cache, repo, ("kernels",), folder / "thresholds.toml")
    found = findings.of_machine(results, "h200").changes
    assert {(change.exact, change.range, change.unknown) for change in found} == {(False, ends, reason)}
    commits_here = results.commits("h200")
    place = {commit.hash: at for at, commit in enumerate(commits_here)}
    [mark] = marks([("triton", found[0])], commits_here, place, "light")
    assert f"in {ends}" in str(mark)
    address = SeriesAddress("h200", "linear", "triton", "M=1,K=64", "cold")
    line = str(changes(view(results, address, findings.of_machine(results, "h200"))))
    assert f"bc={before}&hm=h200&hc={after}" in line
    assert "/commit/" not in line


def test_history_that_is_fetched_makes_the_range_known(origin, tmp_path, run):
    root, commits = origin
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{root}", folder)
    measure(folder, commits)
    run(folder, "alerts", "list")
    run(folder, "alerts", "ack", "1", "--by", "ada", "--because", "looking")
    for depth in ("--depth=65", "--unshallow"):
        git(folder, "fetch", "-q", depth)
        shown = run(folder, "alerts", "list"), run(folder, "alerts", "show", "1")
        unknown = depth != "--unshallow"
        assert ("the commits in between are unknown" in shown[1]) == unknown
        assert "acknowledged" in shown[0]
        assert shown[0].count("linear on h200") == 1
    few = commits[SLOW - EVERY][:12], commits[SLOW][:12]
    assert f"since: one of 10 commits, of which 4 touch the packages under test: {few[0]}..{few[1]}" in shown[1]
    assert "next: find the commit: lockstep bisect 1" in shown[1]
    assert "ada: acknowledged: looking" in shown[1]


def test_a_full_clone_and_a_shallow_one_that_holds_the_range_say_the_same(origin, tmp_path, run):
    root, commits = origin
    said = []
    for depth in ("--depth=71", "--depth=119", "--no-single-branch"):
        folder = tmp_path / depth
        git(tmp_path, "clone", "-q", depth, f"file://{root}", folder)
        measure(folder, commits)
        said.append(json.loads(run(folder, "changes", "--json"))["changes"])
    assert said[0] == said[1] == said[2]
    assert said[0][0]["commits"] == commits[SLOW - EVERY + 1 : SLOW + 1]


#: None: results alone, as somebody publishes them.
CONFIGS = [None, "lockstep"]


def measure_plain(folder, commits, environment):
    """Results of another project's plain asv benchmark below the folder, and its configuration."""
    write_foreign(
        folder / "results",
        "lab",
        commits[::EVERY],
        lambda n: 1.2e-3 if n * EVERY >= SLOW else 1e-3,
        requirements=lambda n: {"numpy": "2"},
    )
    if environment:
        conf = {"version": 1, "project": "toy", "repo": ".", "environment_type": environment, "results_dir": "results"}
        (folder / "asv.conf.json").write_text(json.dumps(conf))


@pytest.mark.parametrize("environment", CONFIGS)
def test_a_plain_asv_project_gets_a_command_that_its_asv_can_run(origin, tmp_path, run, environment):
    root, commits = origin
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "-q", f"file://{root}", folder)
    measure_plain(folder, commits, environment)
    run(folder, "alerts", "list")
    command = f"asv find {commits[SLOW - EVERY][:12]}..{commits[SLOW][:12]} sorting.TimeSort.time_sort"
    assert f"next: find the commit: {command}" in run(folder, "alerts", "show", "1")
    said = run(folder, "bisect", "1")
    assert (run.status, said.count(command)) == ([4], 1), said
    database = Database(tmp_path / "alerts.sqlite")
    one = AlertStore(database).alert(1)
    database.close()
    page = str(body(one, Store.open(folder / "results").current(), "light"))
    assert command in page
    assert "lockstep bisect" not in page


def test_a_commit_that_became_faster_is_searched_for_a_decrease():
    name = series(variant="time_sort", l2="", quantity="seconds")
    slower, faster = (alerts(step(8, 11, by=by, name=name))[0] for by in (0.2, -0.2))
    assert "--invert" not in asv_find_command(slower)
    assert asv_find_command(faster).startswith("asv find --invert ")


@pytest.mark.parametrize("environment", CONFIGS)
def test_bisect_says_that_the_clone_is_shallow_before_anything_else(origin, tmp_path, run, environment):
    root, commits = origin
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{root}", folder)
    measure_plain(folder, commits, environment)
    run(folder, "alerts", "list")
    said = run(folder, "bisect", "1")
    assert run.status == [3], said
    assert "`git fetch --unshallow` completes the clone" in said
    assert "asv find" not in said
    assert "asv.conf" not in said


def test_bisect_says_that_the_clone_is_shallow_before_it_looks_for_suites(origin, tmp_path, run):
    """The series is of a suite of Lockstep, and the clone has neither the suite nor, at first, a configuration."""
    root, commits = origin
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{root}", folder)
    measure(folder, commits)
    run(folder, "alerts", "list")
    conf = (folder / "asv.conf.json").read_bytes()
    (folder / "asv.conf.json").unlink()
    for _ in range(2):
        said = run(folder, "bisect", "1")
        assert run.status == [3], said
        assert "`git fetch --unshallow` completes the clone" in said
        (folder / "asv.conf.json").write_bytes(conf)
