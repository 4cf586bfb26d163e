"""The verbs, as they are typed: changes, alerts and the page of the published site."""

import json
import random
import re
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from alerting import Service
from exact import code, write_exact_history
from history import Here, commits_of, write_history
from trees import DATE, record, write_measurement
from verb import run_verb

LENGTH, AT = 30, 20
CONFIG = {
    "version": 1,
    "project": "toy",
    "repo": ".",
    "branches": ["main"],
    "results_dir": "results",
    "html_dir": "html",
    "plugins": [".lockstep.asv", ".dashboard.snapshot"],
    "environment_type": "lockstep",
    "lockstep": {"packages": ["kernels"]},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A repository with the history of two machines; on one of them a kernel becomes slower."""
    root = tmp_path_factory.mktemp("verbs") / "repo"
    commits = commits_of(root, LENGTH)
    (root / "asv.conf.json").write_text(json.dumps(CONFIG))
    write_history(root / "results", "h200", commits, lambda n: Here(slower=1.05 if n >= AT else 1.0))
    write_history(root / "results", "b200", commits, lambda n: Here())
    return root, commits


@pytest.fixture
def run(project, tmp_path, monkeypatch, capsys):
    """Runs a command line in the project, with a state of the test's own: exit status and what was printed."""
    root, _ = project
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(root.parent / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("LOCKSTEP_STATE", "LOCKSTEP_URL", "LOCKSTEP_NOTIFY"):
        monkeypatch.delenv(name, raising=False)

    def command(*words):
        status = run_verb(*words)
        told = capsys.readouterr()
        return status, told.out + told.err

    return command


def test_changes_lists_what_became_slower_and_why(run, project):
    _, commits = project
    status, printed = run("changes")
    assert status == 1
    row = rf"\+(4\.9|5\.\d) %.*linear\.triton M=1,K=64 cold.*h200.*{commits[AT][:8]}.*own commit: nothing"
    assert re.search(row, printed)
    assert "3 changes in 12 series: 3 slower, 0 faster" in printed
    assert "measured at" not in printed


@pytest.mark.parametrize("verb", [("changes",), ("alerts", "list"), ("alerts", "list", "--no-analysis")])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--machine", "h20"), "--machine h20: this machine has no results; did you mean h200?"),
        (("--family", "linaer"), "--family linaer: this family has no results; did you mean linear?"),
        (("--family", "kda", "--machine", "b200"), "--family kda: this family has no results on b200; there is linear"),
        (("--results", "resluts"), "--results resluts: there is no such folder"),
        (("--repo", "nope"), "--repo nope: there is no such folder"),
    ],
)
def test_an_unknown_name_is_wrong_usage(run, verb, options, said):
    status, printed = run(*verb, *options)
    assert (status, said in printed) == (4, True), printed


@pytest.mark.parametrize("verb", [("changes",), ("alerts", "list"), ("ingest",), ("alerts", "list", "--no-list")])
def test_a_folder_without_results_is_not_a_history_without_changes(run, tmp_path, monkeypatch, verb):
    """One that is there may be empty, before the first run; one that is not there is a mistake."""
    (tmp_path / "empty").mkdir()
    status, printed = run(*verb, "--results", str(tmp_path / "empty"))
    judges = verb not in (("ingest",), ("alerts", "list", "--no-list"))
    assert status == (3 if judges else 0), printed
    assert ("holds no results: `lockstep run` makes them" in printed) is judges
    monkeypatch.chdir(tmp_path)
    status, printed = run(*verb)
    assert (status, "there are no results: no folder results" in printed) == (4, True), printed


@pytest.mark.parametrize(
    "words", [("show", 20 * "9"), ("ack", "0"), ("reopen", "-1"), ("show", "1.5"), ("notify", "--again", 20 * "9")]
)
def test_a_number_that_no_alert_can_have_is_wrong_usage(run, words):
    assert run("alerts", *words)[0] == 4
    assert run("bisect", 20 * "9")[0] == 4


def test_changes_reports_too_few_commits(run, project, tmp_path):
    _, commits = project
    for name, length in (("five", 5), ("six", 6)):
        write_history(tmp_path / name, "h200", commits[:length], lambda n: Here(slower=1.05 if n >= 3 else 1.0))
    status, printed = run("changes", "--results", str(tmp_path / "five"), "--repo", ".")
    assert (status, printed.splitlines()[-1]) == (
        0, "too few measured commits for a change, which needs 3 on either side: h200 (5)"
    )  # fmt: skip
    status, printed = run("changes", "--results", str(tmp_path / "six"), "--repo", ".")
    assert (status, printed.splitlines()[-1]) == (1, "3 changes in 6 series: 3 slower, 0 faster")


def test_changes_names_a_step_of_the_newest_two_commits_without_an_alarm(run, project, tmp_path):
    _, commits = project
    newest = {AT: 1.05, AT + 1: 1.05}
    write_history(tmp_path / "two", "h200", commits[: AT + 2], lambda n: Here(slower=newest.get(n, 1.0)))
    status, printed = run("changes", "--results", str(tmp_path / "two"), "--repo", ".")
    assert (status, printed.splitlines()[-1]) == (0, "3 changes in 6 series: 3 slower, 0 faster; 3 of them unconfirmed")
    assert printed.count("unconfirmed, own commit") == 3
    assert run("alerts", "list", "--results", str(tmp_path / "two"), "--repo", ".", "--no-list")[0] == 0
    write_history(tmp_path / "three", "h200", commits[: AT + 3], lambda n: Here(slower=newest.get(n, 1.0)))
    status, printed = run("changes", "--results", str(tmp_path / "three"), "--repo", ".")
    assert (status, printed.splitlines()[-1]) == (0, "0 changes in 6 series: 0 slower, 0 faster")
    assert "none is known without 3 timed commits on either side; `lockstep gate --base OLD" in printed


def test_changes_counts_a_series_once_whatever_its_versions(run, tmp_path):
    """A new version of the benchmark begins another history of the same series; the pages count one."""
    for place in range(8):
        rows = [record(case=case, version=f"ruler{place // 4}") for case in ("M=1,K=64", "M=8,K=64")]
        write_measurement(tmp_path / "results", rows, commit=f"{place + 1:08x}" * 5, date=DATE + place * 86_400_000)
    status, printed = run("changes", "--results", str(tmp_path / "results"))
    assert (status, printed.splitlines()[-2]) == (0, "0 changes in 2 series: 0 slower, 0 faster")


def test_changes_counts_the_series_that_were_asked_for(run):
    assert "3 changes in 6 series" in run("changes", "--machine", "h200")[1]
    assert "0 changes in 6 series" in run("changes", "--machine", "b200", "--family", "linear")[1]


def test_changes_in_json_and_filtered(run, project):
    _, commits = project
    status, printed = run("changes", "--json", "--machine", "h200", "--since", commits[AT][:9])
    told = json.loads(printed)["changes"]
    assert (status, len(told)) == (1, 3)
    assert {(one["machine"], one["cause"]["kind"]) for one in told} == {("h200", "own commit")}
    # A series may place it within two commits; the range that all share names the one.
    assert all(commits[AT] in one["commits"] and len(one["commits"]) <= 2 for one in told)
    assert [commits[AT]] in [one["commits"] for one in told]
    others = (
        ["--machine", "b200"],
        ["--family", "linear", "--machine", "b200"],
        ["--since", "2999-01-01"],
        ["--since", commits[AT + 1]],
    )
    for filtered in others:
        status, printed = run("changes", "--json", *filtered)
        assert (status, json.loads(printed)["changes"]) == (0, [])
    status, printed = run("changes", "--since", "yesterday")
    assert status == 4
    assert "write a day (2026-11-21) or a commit" in printed


def test_an_alert_is_followed_from_new_to_closed(run, project):
    _, commits = project
    status, printed = run("alerts", "list")
    assert status == 1
    row = rf"new .*linear on h200 slower by [45]\.\d % in {commits[AT][:8]}: .* and 2 more .*own commit"
    assert re.search(row, printed)
    assert run("alerts", "list", "--machine", "b200")[0] == 0

    assert run("alerts", "ack", "1", "--by", "ada", "--because", "looking") == (0, "alert 1 is acknowledged\n")
    assert run("alerts", "mute", "1", "--by", "ada", "--until", "2999-01-31")[0] == 4, "it needs a reason"
    assert run("alerts", "mute", "1", "--by", "ada", "--until", "2999-01-31", "--because", "known")[0] == 0
    status, printed = run("alerts", "list")
    assert (status, "and 1 muted; --all lists it" in printed) == (0, True)
    assert "muted; --all" not in run("alerts", "list", "--all")[1]
    assert run("alerts", "new-baseline", "1", "--by", "bo", "--because", "exact rounding")[0] == 0
    assert "resolved (new baseline)" in run("alerts", "list", "--all")[1]
    assert "bo: new baseline: exact rounding" in run("alerts", "show", "1")[1]
    assert run("alerts", "reopen", "1", "--by", "bo")[0] == 0
    assert run("alerts", "no-change", "1", "--by", "bo", "--because", "the machine was rebooted")[0] == 0
    assert "resolved (no change)" in run("alerts", "list", "--all")[1]
    assert run("alerts", "reopen", "1", "--by", "bo")[0] == 0

    _, printed = run("alerts", "show", "1")
    lines = printed.splitlines()
    assert lines[0].startswith("alert 1, reopened: linear on h200 slower")
    assert f"since: commit {commits[AT][:12]}" in lines
    ends = f"--base {commits[AT - 1][:12]} --head {commits[AT][:12]}"
    [command] = [line for line in lines if line.startswith("next: measure it again: ")]
    assert command.startswith(f"next: measure it again: lockstep gate {ends} --family linear --case ")
    log = [re.sub(r"^\S+ \S+ ", "", line) for line in lines[-7:]]
    assert log == [
        "lockstep: opened: nothing that is recorded differs but the commits in the range (not recorded: machine code)",
        "ada: acknowledged: looking",
        "ada: muted: until 2999-01-31: known",
        "bo: new baseline: exact rounding",
        "bo: reopened",
        "bo: no change: the machine was rebooted",
        "bo: reopened",
    ]
    shown = json.loads(run("alerts", "show", "1", "--json")[1])
    assert (shown["state"], shown["suspects"], len(shown["log"])) == ("reopened", [commits[AT]], 7)
    assert command.endswith(shown["reproduce"])
    assert run("alerts", "show", "9")[0] == 4


def test_the_list_has_what_is_probably_not_the_code_apart_and_is_no_bad_news(run, tmp_path):
    commits = commits_of(tmp_path / "repo", LENGTH)
    upgraded = {"driver": "590.2"}
    write_history(
        tmp_path / "results", "h200", commits, lambda n: Here(slower=1.05, host=upgraded) if n >= AT else Here()
    )
    options = ("--results", str(tmp_path / "results"), "--repo", str(tmp_path / "repo"), "--state", str(tmp_path / "s"))
    status, printed = run("alerts", "list", *options)
    assert status == 0
    assert printed.startswith("probably not the code: 1\n")
    assert "the toolchain is the probable cause" in printed


def test_notify_sends_once(run, monkeypatch):
    with Service() as service:
        monkeypatch.setenv("LOCKSTEP_NOTIFY", service.url)
        monkeypatch.setenv("LOCKSTEP_URL", "https://bench.example.org")
        service.answer = lambda handler: handler.connection.close()
        status, printed = run("alerts", "notify")
        assert (status, "it may not have arrived" in printed) == (1, True)
        told = len(service.got)
        assert "https://bench.example.org/alert/" in service.got[-1]["message"]
        assert run("alerts", "notify")[0] == 0
        assert len(service.got) == told


def test_an_error_is_one_line(run, tmp_path, monkeypatch):
    assert "there is no alert 3" in run("alerts", "ack", "3")[1]
    status, printed = run("alerts", "list", "--state", "mysql://ada:secret@host/x")
    assert status == 3
    assert "secret" not in printed
    monkeypatch.setenv("LOCKSTEP_NOTIFY", "nonsense://token")
    status, printed = run("alerts", "notify")
    assert status == 4
    assert "LOCKSTEP_NOTIFY is not an address" in printed
    assert "token" not in printed
    wrong = tmp_path / "thresholds.toml"
    wrong.write_text("[default]\nmin_effect = 5\n")
    status, printed = run("changes", "--thresholds", str(wrong))
    assert status == 4
    assert "min_effect is 5" in printed


def test_a_foreign_project_is_sent_to_asvs_own_bisection(run, project, tmp_path):
    root, commits = project
    run("alerts", "list")
    config = tmp_path / "asv.conf.json"
    other = {"environment_type": "virtualenv", "plugins": [], "results_dir": str(root / "results")}
    config.write_text(json.dumps(CONFIG | other))
    state = next((tmp_path / "data").rglob("alerts.sqlite"))
    status, printed = run("bisect", "1", "--config", str(config), "--state", str(state))
    assert status == 4
    assert f"asv find {commits[AT - 1][:12]}..{commits[AT][:12]}" in printed


def test_an_exact_quantity_is_compiled_where_a_time_is_bisected(run, project, tmp_path):
    root, commits = project
    results = tmp_path / "results"
    write_exact_history(results, commits, lambda n: code(registers=128, launches=2 if n < AT else 9))
    config = tmp_path / "asv.conf.json"
    config.write_text(json.dumps(CONFIG | {"repo": str(root), "results_dir": str(results)}))
    status, printed = run("changes", "--exact", "--config", str(config))
    assert status == 1, printed
    status, printed = run("alerts", "list", "--json", "--config", str(config))
    [opened] = [one for one in json.loads(printed) if one["members"]]
    status, printed = run("bisect", str(opened["id"]), "--config", str(config))
    assert status == 4
    assert f"lockstep code diff {commits[AT - 1][:8]} {commits[AT][:8]} shows the change" in printed


def test_the_published_site_has_the_alerts(project, tmp_path, run):
    root, commits = project
    status, _ = run("publish", "--no-pull")
    assert status == 0
    assert 'href="alerts.atom"' in (root / "html" / "index.html").read_text()
    alerts = {one["topic"]: one for one in json.loads((root / "html" / "alerts.json").read_text())}
    assert alerts["slower"]["commits"] == [commits[AT]]
    entries = ElementTree.parse(root / "html" / "alerts.atom").findall("{http://www.w3.org/2005/Atom}entry")
    assert len(entries) == 3  # the slowdown, and two machines that have been silent since


def test_the_command_starts_fast_without_what_it_does_not_need():
    heavy = "lockstep.history.store", "sqlalchemy", "apprise", "duckdb", "torch", "dash", "plotly", "scipy"
    code = (
        "import sys; from importlib.metadata import entry_points\n"
        "for verb in entry_points(group='lockstep.commands'):\n"
        "    if verb.name in ('changes', 'alerts', 'bisect'): verb.load()\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_changes_reports_unread_files(run, project, tmp_path):
    _, commits = project
    write_history(tmp_path / "some", "h200", commits[:6], lambda n: Here())
    (tmp_path / "some" / "h200" / "deadbeef-lockstep.json").write_text("{")
    options = ("--results", str(tmp_path / "some"), "--repo", ".")
    status, printed = run("changes", *options)
    said = "1 of 7 files was not read: the file is not JSON (1); `lockstep ingest` lists them"
    assert (status, printed.splitlines()[-1]) == (0, said)
    counted = json.loads(run("changes", "--json", *options)[1])["problems"]
    assert (counted["files"], counted["files_not_read"]) == (7, 1)
    for path in (tmp_path / "some" / "h200").glob("*-lockstep.json"):
        path.write_text("{")
    status, printed = run("changes", *options)
    assert (status, "7 of 7 files were not read: the file is not JSON (7)" in printed) == (3, True)


def test_a_check_that_changed_leaves_the_noise_of_other_series_known(run, tmp_path):
    commits = commits_of(tmp_path / "repo", LENGTH)
    draw = random.Random(5)
    for n, commit in enumerate(commits):
        slower = (1.2 if n >= AT else 1.0) * draw.gauss(1, 0.005)
        baseline = record(variant="torch", speedup=None, baseline="torch", deterministic=True)
        speedup = replace(record().speedup, value=1.9 / slower, low=1.89 / slower, high=1.91 / slower)
        changed = record(baseline="torch", speedup=speedup, deterministic=n < AT)
        write_measurement(tmp_path / "repo" / "results", [baseline, changed], commit=commit, date=DATE + n)
    words = ("changes", "--json", "--results", str(tmp_path / "repo" / "results"), "--cache", str(tmp_path / "cache"))
    noise = {one["quantity"]: one["noise"] for one in json.loads(run(*words)[1])["changes"]}
    assert noise.keys() == {"speedup", "deterministic"}
    assert 0.003 < noise["speedup"]["scale"] < 0.01
    assert noise["deterministic"] is None


def test_changes_lists_exact_quantities_only_where_asked(run, tmp_path):
    repo = tmp_path / "repo"
    commits = commits_of(repo, 8)
    write_exact_history(repo / "results", commits, lambda n: code(registers=128 if n < 4 else 160))
    words = ("changes", "--results", str(repo / "results"), "--repo", str(repo))
    status, printed = run(*words)
    assert status == 0
    assert "1 change of an exact quantity is not listed: --exact lists them after the times" in printed
    assert "registers" not in printed
    status, printed = run(*words, "--exact")
    assert status == 1
    assert re.search(r"2020-\d\d-\d\d .*128 → 160.*registers", printed)


def test_changes_since_a_name_of_git(run, project):
    root, _ = project
    subprocess.run(["git", "-C", root, "tag", "-f", "v1", f"HEAD~{LENGTH - 1 - AT}"], check=True, capture_output=True)
    assert "3 changes in 12 series" in run("changes", "--since", "v1")[1]
    assert "0 changes in 12 series" in run("changes", "--since", "HEAD")[1]
    status, _ = run("changes", "--since=--output=x")
    assert status == 4
