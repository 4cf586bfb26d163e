"""The table of docs/exit-statuses.md: each of its cells has a test, here or where the verb is tested."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from project import make_project
from trees import COMMIT, MACHINE, record, write_measurement
from verb import run_verb

import tools.__main__  # noqa: F401 — makes its verbs known

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "exit-statuses.md"

#: (verb, status) to the test elsewhere that shows it.
ELSEWHERE = {
    ("measure", 2): "test_run.py::test_measure_names_what_never_returns_and_measures_the_rest",
    ("measure", 3): "test_run.py::test_measure_that_measures_nothing_says_so",
    ("measure", 4): "test_run.py::test_unknown_names_are_answered_with_the_known_ones",
    ("run", 2): "test_run.py::test_broken_kernels_are_told_apart_and_everything_else_is_measured",
    ("run", 4): "test_run.py::test_unknown_names_are_answered_with_the_known_ones",
    ("gate", 1): "test_gate_report.py::test_the_worst_decides",
    ("gate", 2): "test_gate.py::test_a_head_that_does_not_import_fails_and_names_the_reason",
    ("gate", 3): "test_gate.py::test_nothing_judged_is_no_pass_and_says_why",
    ("gate", 4): "test_gate.py::test_wrong_words_are_usage_and_name_what_there_is",
    ("referee", 1): "test_loop.py::test_exit_statuses_of_the_referee",
    ("referee", 2): "test_loop.py::test_exit_statuses_of_the_referee",
    ("referee", 3): "test_loop.py::test_exit_statuses_of_the_referee",
    ("referee", 4): "test_loop.py::test_wrong_words_are_usage_and_say_what_is_missing",
    ("code show", 4): "test_machine_code.py::test_wrong_usage_is_named",
    ("code doctor", 1): "test_machine_code.py::test_the_doctor_ends_with_1_if_something_stops_a_trace",
    ("code doctor", 4): "test_machine_code.py::test_wrong_usage_is_named",
    ("code diff", 1): "test_machine_code.py::test_the_verb_tells_a_change_and_its_exit_code_if_asked",
    ("code diff", 3): "test_gate.py::test_a_family_that_neither_version_has_is_no_pass",
    ("code diff", 4): "test_machine_code.py::test_wrong_usage_is_named",
    ("code history", 3): "test_code_history.py::test_a_commit_that_cannot_be_traced_is_told_and_the_others_are_written",
    ("code history", 4): "test_code_history.py::test_a_range_that_git_does_not_know_is_named",
    ("noise", 4): "test_run.py::test_unknown_names_are_answered_with_the_known_ones",
    ("tune", 3): "test_tune.py::test_the_budget_ends_between_cases",
    ("tune", 4): "test_tune.py::test_a_wrong_name_is_told_before_anything_runs",
    ("clocks status", 1): "test_clocks.py::test_lock_left_by_a_killed_process_is_named_and_cleaned",
    ("clocks lock", 1): "test_clocks.py::test_cli_refusals_exit_with_1_and_say_what_to_do",
    ("clocks reset", 1): "test_clocks.py::test_cli_refusals_exit_with_1_and_say_what_to_do",
    ("clocks status", 3): "test_clocks.py::test_cli_without_gpu_exits_with_3",
    ("clocks lock", 3): "test_clocks.py::test_cli_without_gpu_exits_with_3",
    ("clocks reset", 3): "test_clocks.py::test_cli_without_gpu_exits_with_3",
    ("clocks reset", 4): "test_clocks.py::test_cli_wants_to_know_which_of_several_gpus",
    ("pictures", 3): "test_pictures.py::test_without_chromium_there_is_no_picture",
    ("pictures", 4): "test_pictures.py::test_results_without_the_recorded_machine_are_a_mistake",
    ("scoreboard", 4): "test_scoreboard.py::test_the_verb_makes_and_refuses",
    ("changes", 1): "test_alert_commands.py::test_changes_lists_what_became_slower_and_why",
    ("changes", 3): "test_alert_commands.py::test_a_folder_without_results_is_not_a_history_without_changes",
    ("changes", 4): "test_alert_commands.py::test_an_unknown_name_is_wrong_usage",
    ("alerts list", 1): "test_alert_commands.py::test_an_alert_is_followed_from_new_to_closed",
    ("alerts list", 3): "test_alert_commands.py::test_a_folder_without_results_is_not_a_history_without_changes",
    ("alerts list", 4): "test_alert_commands.py::test_an_unknown_name_is_wrong_usage",
    ("alerts show", 4): "test_alert_commands.py::test_a_number_that_no_alert_can_have_is_wrong_usage",
    ("alerts notify", 1): "test_alert_commands.py::test_notify_sends_once",
    ("plan", 4): "test_plan.py::test_the_verb_plans_a_history",
    **dict.fromkeys(
        [("merge", status) for status in (1, 3, 4)], "test_merge.py::test_the_verb_ends_with_the_status_of_its_table"
    ),
    ("adopt", 3): "test_adopt.py::test_a_script_without_a_call_that_can_be_written_leaves_no_file",
    ("adopt", 4): "test_adopt.py::test_what_is_written_runs_as_written",
    ("export", 3): "test_import.py::test_what_cannot_be_exported_is_named",
    ("export", 4): "test_import.py::test_what_cannot_be_exported_is_named",
    ("import", 1): "test_import.py::test_what_cannot_be_read_is_named_and_the_rest_is_imported",
    ("import", 3): "test_import.py::test_a_folder_that_cannot_be_written_is_no_success",
    ("import", 4): "test_import.py::test_a_machine_or_commit_that_is_missing_is_asked_for",
    **dict.fromkeys(
        [("explain", status) for status in (1, 2, 3)],
        "test_gate_report.py::test_a_report_that_is_read_again_says_the_same_and_ends_with_the_same_status",
    ),
    ("explain", 4): "test_gate_report.py::test_a_file_that_is_no_report_is_a_mistake",
    ("bisect", 1): "test_bisection.py::test_the_verb_does_not_believe_a_good_end_that_is_slow_here",
    ("bisect", 3): "test_bisection.py::test_the_verb_measures_nothing_where_the_range_is_not_known",
    ("bisect", 4): "test_alert_commands.py::test_a_number_that_no_alert_can_have_is_wrong_usage",
    ("ingest", 1): "test_ingest_command.py::test_problems_are_told_one_a_line_and_are_the_exit_status",
    ("ingest", 4): "test_alert_commands.py::test_a_folder_without_results_is_not_a_history_without_changes",
}

#: asv's own verdict, which takes minutes to make.
NOT_OURS = {("continuous", 1)}

HERE = {
    ("run", 3),
    ("code show", 3),
    ("code doctor", 3),
    ("noise", 2),
    ("noise", 3),
    ("profile", 3),
    ("profile", 4),
    ("clocks lock", 4),
    ("scoreboard", 3),
    ("evaluate", 4),
    *((f"alerts {action}" if action == "show" else action, 3) for action in ("show", "ack", "mute", "resolve")),
    ("reopen", 3),
    *((action, 4) for action in ("ack", "mute", "resolve", "reopen")),
    ("alerts notify", 3),
    ("alerts notify", 4),
    ("ingest", 3),
    ("dashboard", 3),
    ("dashboard", 4),
    ("continuous", 4),
    # One row, shown by some of its verbs.
    *((verb, status) for verb in ("find", "show", "compare", "publish") for status in (3, 4)),
}


def cells():
    """(verb, status) of the table's second part; a row may be about several verbs."""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        columns = [one.strip() for one in line.strip("|").split("|")]
        if line.startswith("| `") and len(columns) == 5:
            for verb in re.findall("`([^`]+)`", columns[0]):
                yield from ((verb, status) for status, text in enumerate(columns[1:], 1) if text)


def test_each_cell_of_the_table_has_a_test():
    named = set(cells())
    assert {verb for verb, _ in named} >= {"measure", "gate", "changes", "ingest", "show"}
    assert named - set(ELSEWHERE) - HERE - NOT_OURS == set()
    assert (set(ELSEWHERE) | HERE) - named == set()
    for test in ELSEWHERE.values():
        file, name = test.split("::")
        [path] = (ROOT / "tests").rglob(file)
        assert f"def {name}(" in path.read_text(encoding="utf-8"), test


def test_each_verb_stands_in_the_table():
    done = subprocess.run([sys.executable, "-m", "lockstep", "--help"], capture_output=True, text=True, cwd=ROOT)
    [listed] = re.findall(r"^  \{([a-z,-]+)\}", done.stdout, re.MULTILINE)
    told = {verb.split()[0] for verb, _ in cells()}
    # "and the rest": asv's verbs that take no name of ours.
    rest = {"help", "check", "gh-pages", "machine", "preview", "quickstart", "rm", "setup", "update"}
    assert set(listed.split(",")) - rest <= told | {"alerts", "code", "clocks"}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return make_project(tmp_path_factory.mktemp("exits") / "project")


@pytest.fixture
def run(project, tmp_path, monkeypatch, capsys):
    """Runs a command line in the project: exit status and what was said."""
    monkeypatch.chdir(project.root)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in ("CACHE", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.setenv("HOME", str(tmp_path))
    (project.root / "results").mkdir(exist_ok=True)

    def command(*words):
        for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
            monkeypatch.delitem(sys.modules, name)
        status = run_verb(*words)
        told = capsys.readouterr()
        assert "Traceback" not in told.out + told.err
        return status, told.out + told.err

    return command


def test_a_run_without_torch(project):
    broken = project.root.parent / "broken"
    broken.mkdir()
    (broken / "torch.py").write_text("raise ImportError('torch is broken')\n")
    path = os.pathsep.join([str(broken), str(ROOT)])
    process = project.popen("run", "HEAD^!", PYTHONPATH=path)
    shown, _ = process.communicate(timeout=100)
    assert (process.returncode, "torch is broken" in shown) == (3, True), shown


def test_a_tree_without_the_family_has_no_code_to_show(run):
    for action in ("show", "doctor"):
        status, said = run("code", action, "HEAD~1")
        assert (status, "HEAD~1 has no family product" in said) == (3, True), said


def test_noise_tells_failures_and_a_process_that_does_not_start(tmp_path):
    project = make_project(tmp_path / "project")
    kernels = (project.root / "toy" / "product.py").read_text()
    project.write("toy/product.py", kernels.replace('"twice": twice', '"twice": lambda x: 1 / 0'))
    done = project.lockstep("noise", "--runs", "1", "--series", "1", "--quick")
    assert (done.returncode, "ZeroDivisionError" in done.stdout) == (2, True), done.stdout
    project.write("toy/product.py", kernels.replace('"twice": twice', '"twice": lambda x: __import__("os").abort()'))
    done = project.lockstep("noise", "--runs", "1", "--series", "1", "--quick")
    assert (done.returncode, "killed by SIGABRT" in done.stdout) == (2, True), done.stdout
    suite = (project.root / "benchmarks" / "product.py").read_text()
    project.write("benchmarks/product.py", f"import sys\nassert not sys.argv[0].endswith('worker.py')\n{suite}")
    done = project.lockstep("noise", "--runs", "1")
    assert (done.returncode, "does not start" in done.stdout) == (3, True), done.stdout


def test_profile_needs_names_and_a_gpu(run):
    status, said = run("profile", "product")
    assert (status, "name a variant of product: lockstep profile product VARIANT CASE; its variants are" in said) == (
        4,
        True,
    ), said
    assert run("profile", "product", "plain", "M=7")[0] == 4
    assert run("profile", "product", "plain", "M=2,K=1024,N=512", "--limit", "nan")[0] == 4
    status, said = run("profile", "product", "plain", "M=2,K=1024,N=512")
    assert (status, "There is no GPU" in said) == (3, True)


def test_a_clock_that_is_none(run):
    assert run("clocks", "lock", "fast")[0] == 4


def test_a_page_that_cannot_be_written(run, tmp_path):
    status, said = run("scoreboard", "--config", ROOT / "asv.conf.json", "--output", tmp_path / "none" / "page.md")
    assert (status, "No such file or directory" in said) == (3, True)


@pytest.mark.parametrize(
    "options", [("--recorded", "none"), ("--series", "0"), ("--seeds", "-1"), ("--processes", "0")]
)
def test_evaluate_of_nothing(run, options):
    assert run("evaluate", *options)[0] == 4


ACTIONS = [
    ("show", "1"),
    ("ack", "1"),
    ("mute", "1", "--until", "2999-01-01", "--because", "x"),
    ("resolve", "1"),
    ("reopen", "1"),
]


@pytest.mark.parametrize("action", ACTIONS, ids=lambda words: words[0])
def test_an_alert_that_is_not_there_and_a_state_that_cannot_be_used(run, tmp_path, action):
    status, said = run("alerts", *action)
    assert (status, "alert 1" in said) == (4, True), said
    assert run("alerts", *action, "--state", tmp_path)[0] == 3


def test_notify_without_a_state_or_an_address(run, tmp_path, monkeypatch):
    assert run("alerts", "notify", "--state", tmp_path)[0] == 3
    monkeypatch.setenv("LOCKSTEP_NOTIFY", "no-address")
    assert run("alerts", "notify")[0] == 4


def test_a_store_that_would_lie_among_the_results(run):
    assert run("ingest", "--cache", "results/cache")[0] == 3


def test_a_dashboard_that_has_nothing_or_nowhere_to_serve(run, monkeypatch):
    assert run("dashboard", "--results", "nope")[0] == 4
    assert run("dashboard", "--thresholds", "nope")[0] == 4
    assert run("dashboard", "--workers", "0")[0] == 4
    status, said = run("dashboard", "--host", "no.host.invalid")
    assert (status, "no.host.invalid port 8050: " in said, "Unknown error" in said) == (4, True, False), said
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run("dashboard", "--port", taken.getsockname()[1])[0] == 4

    listeners = []

    def fail(app, listener, *_):
        listeners.append(listener)
        raise RuntimeError("so")

    monkeypatch.setattr("dashboard.server.serve.serve", fail)
    status, said = run("dashboard", "--port", "0")
    assert (status, "unexpected RuntimeError: so" in said) == (3, True)
    assert [listener.fileno() for listener in listeners] == [-1]  # closed


@pytest.mark.parametrize(
    "words",
    [
        ("show", "--machine", "nope"),
        ("run", ""),
        ("compare", "HEAD", "nope"),
        ("continuous", "nope", "HEAD", "--machine", "x"),
        ("find", "nope..HEAD", "product.latency"),
        ("find", "HEAD..HEAD", "product.latency"),
        ("publish", "nope..HEAD", "--no-pull"),
    ],
)
def test_asvs_own_verbs_call_a_mistake_one(run, words):
    (Path.home() / ".asv-machine.json").write_text(
        json.dumps({"version": 1, "x": {"machine": "x", "os": "", "arch": "", "cpu": "", "num_cpu": "", "ram": ""}})
    )
    status, said = run(*words)
    assert status == 4, said


def test_show_of_a_name_that_has_no_results(run, tmp_path):
    results = tmp_path / "results"
    write_measurement(results, [record()])
    (results / MACHINE / "machine.json").write_text(json.dumps({"machine": MACHINE, "version": 1}))
    benchmark = {"name": "linear.latency", "params": [], "param_names": [], "version": "ruler1", "unit": "seconds"}
    (results / "benchmarks.json").write_text(json.dumps({"linear.latency": benchmark, "version": 2}))
    config = json.loads((Path.cwd() / "asv.conf.json").read_text()) | {"results_dir": str(results)}
    Path("other.json").write_text(json.dumps(config))
    assert run("show", "--config", "other.json", COMMIT[:8])[0] == 0
    for word in ("nope", "HEAD"):
        status, said = run("show", "--config", "other.json", word)
        assert (status, f"there are no results of {word}" in said) == (4, True), said
    status, said = run("show", "--config", "other.json", "--bench", "nope")
    assert (status, "no benchmark of the results matches nope" in said) == (4, True), said


@pytest.mark.parametrize("words", [("compare", "HEAD", "HEAD"), ("publish",)])
def test_asvs_own_verbs_with_files_that_cannot_be_read(run, project, monkeypatch, words):
    monkeypatch.setattr("asv.util.check_output", _refuse)
    monkeypatch.setattr("asv.results.iter_results", _refuse)
    status, said = run(*words)
    assert (status, "Permission denied" in said) == (3, True), said


def _refuse(*_, **__):
    raise PermissionError(13, "Permission denied")
