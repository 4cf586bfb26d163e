"""What is wrong with a command line or a file is said in one line, before anything is measured."""

import json
import logging
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent

import pytest
from project import KERNELS, SUITE
from verb import run_verb

import tools.__main__  # noqa: F401 — makes its verbs known
from lockstep.commands import cli
from lockstep.processes.end_with_parent import pool

CONFIG = {"version": 1, "project": "toy", "repo": ".", "benchmark_dir": "suites", "lockstep": {"packages": ["k"]}}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a command line in a folder with a configuration: exit status and what was said."""
    (tmp_path / "asv.conf.json").write_text(json.dumps(CONFIG))
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "__init__.py").touch()
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def command(*words):
        status = run_verb(*words)
        told = capsys.readouterr()
        return status, told.out + told.err

    return command


@pytest.mark.parametrize("words", [(), ("run",), ("code", "diff"), ("gate",)])
def test_both_versions_are_told(run, words):
    assert run(*words, "--version") == (0, f"lockstep {version('kernel-lockstep')} (asv {version('asv')})\n")


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        (("evaluate", "--history", "nope"), "evaluate"),
        (("--verbose", "gate", "--nope"), "gate"),
        (("code", "diff", "HEAD", "--nope"), "code diff"),
        (("alerts", "list", "--nope"), "alerts list"),
    ],
)
def test_an_unknown_option_prints_the_usage_of_its_verb(run, words, verb):
    status, said = run(*words)
    assert status == 4
    assert said.startswith(f"usage: lockstep {verb} [-h]")
    assert f"lockstep {verb}: error: unrecognized arguments: --" in said


@pytest.mark.parametrize(("asked", "loads"), [("clocks", "False"), ("changes", "True"), ("--config=x", "True")])
def test_a_verb_that_is_not_asked_for_is_not_loaded(asked, loads):
    """Whoever gates waits for no dashboard; what comes before a verb may hide it."""
    program = """
import sys
from lockstep.commands.cli import main
sys.argv = ["lockstep", sys.argv[1], "--version"]
try:
    main()
except SystemExit:
    print("lockstep.commands.changes" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program, asked], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == loads


@pytest.mark.parametrize("verb", ["gate", "measure", "check"])
def test_a_folder_without_a_configuration_is_named_and_what_to_do(run, tmp_path, verb):
    (tmp_path / "asv.conf.json").unlink()
    status, said = run(verb, *(["x"] if verb == "measure" else []))
    assert status == 4
    assert "go to the folder that has asv.conf.json, or name the file with --config" in said


@pytest.mark.parametrize(
    "words",
    [
        ("alerts", "list", "--json", "--machine", "nope"),
        ("alerts", "show", "7", "--json"),
        ("bisect", "7", "--json"),
        ("changes", "--json", "--since", "2026-13-45"),
        ("changes", "--json"),
        ("code", "diff", "nope", "--json"),
        ("ingest", "--json", "--results", "nope"),
        ("measure", "x", "--json"),
        ("measure", "--script", "nope.py", "--json"),
        ("plan", "nope", "--json"),
        ("export", "pytorch-hud"),
        ("import", "nope.json"),
        ("merge", "nope"),
        ("gate", "--base", "nope"),
        ("show", "nope"),
        ("find", "HEAD~1..HEAD", "nope"),
        ("run", "--quick", "nope..HEAD"),
        ("compare", "HEAD~1", "HEAD"),
        ("publish",),
    ],
    ids=" ".join,
)
def test_standard_output_holds_no_error(run, tmp_path, capsys, words):
    """A program that reads the answer, such as jq, must not read an error as one."""
    subprocess.run(["git", "init", "-q", "-b", "main", tmp_path], check=True)
    assert run_verb(*words) in (1, 3, 4)
    told = capsys.readouterr()
    assert told.err.strip()
    progress = "· Creating", "· Discovering", "· 0 result files changed"
    assert not [line for line in told.out.splitlines() if not line.startswith((*progress, "[]"))]


def test_a_librarys_warning_is_printed_with_its_values(run, monkeypatch, capsys):
    """asv's console prints a message's pattern: "results are not up to date: %s"."""

    def warn(_):
        logging.getLogger("library").warning("%d of %s", 3, "7")
        return {}

    monkeypatch.setattr(cli, "check_config", warn)
    run_verb("changes")
    told = capsys.readouterr()
    assert not told.out
    assert told.err.startswith("· 3 of 7\n")


def test_a_folder_without_suites_is_named(run):
    status, said = run("measure", "x")
    assert (status, "no family 'x': the folder of suites (benchmark_dir in asv.conf.json) holds no suite" in said) == (
        4,
        True,
    ), said


@pytest.mark.parametrize("number", ["-5", "x", "0", "999999999999999999999"])
def test_a_number_that_no_alert_has(run, number):
    status, said = run("alerts", "show", number)
    assert (status, f"{number!r} is not the number of an alert" in said) == (4, True), said


def test_a_configuration_without_an_environment_is_named(run, tmp_path):
    subprocess.run(["git", "init", "-q", "-b", "main", tmp_path], check=True)
    status, said = run("check")
    assert (status, 'asv.conf.json needs "environment_type": "lockstep"' in said) == (4, True), said


def test_a_repository_without_commits_is_named(run, tmp_path):
    subprocess.run(["git", "init", "-q", "-b", "main", tmp_path], check=True)
    ours = {"environment_type": "lockstep", "plugins": [".lockstep.asv"]}
    (tmp_path / "asv.conf.json").write_text(json.dumps(CONFIG | ours))
    (tmp_path / "suites" / "broken.py").write_text("def f(:\n")
    status, said = run("check")
    assert (status, 'a branch that "branches" of asv.conf.json names has a commit' in said) == (4, True), said


@pytest.mark.parametrize("words", [("clocks", "status"), ("gate",), ("measure", "x"), ("show",)])
@pytest.mark.parametrize("error", [KeyError("x"), AttributeError("y"), RecursionError("z"), AssertionError()])
def test_an_error_that_nobody_expected_is_no_verdict(run, monkeypatch, words, error):
    """Python's own status for a traceback is 1, which means slower."""

    def fail(path):
        raise error

    monkeypatch.setattr(cli, "check_config", fail)
    status, said = run(*words)
    assert status == 3
    assert f"unexpected {type(error).__name__}" in said
    assert "Traceback" not in said
    assert "Traceback" in run(*words, "--verbose")[1]


def test_a_killed_child_is_told_with_what_to_do(run, monkeypatch):
    def work(path):
        with pool(1) as workers:
            workers.submit(os._exit, 9).result()

    monkeypatch.setattr(cli, "check_config", work)
    status, said = run("measure", "x")
    assert (status, "a child process was killed, perhaps for lack of memory" in said) == (3, True)


def test_a_verb_that_cannot_be_loaded_is_no_verdict(run, monkeypatch, caplog):
    class Broken:
        def select(self, name):
            return [self]

        def load(self):
            raise ImportError("no module named dash")

    monkeypatch.setattr(cli, "entry_points", lambda group: Broken())
    status, _ = run("dashboard")
    assert status == 3
    # asv's console, which would print it, is not set up yet; Python's logging prints an error nevertheless.
    assert "unexpected ImportError: no module named dash" in caplog.text


def test_a_suite_that_ends_the_process_is_no_pass(run, tmp_path):
    (tmp_path / "suites" / "ends.py").write_text("import lockstep, sys\nsys.exit(0)\n")
    status, said = run("gate")
    assert status == 4
    assert "suite module suites.ends cannot be imported: SystemExit: 0" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lockstep": [1]}, '"lockstep" must be an object'),
        ({"lockstep": {"packages": "k"}}, '"lockstep.packages" must be a list'),
        ({"lockstep": {"package": ["k"]}}, "\"lockstep\" has no key 'package'"),
        ({"version": "1"}, '"version" must be 1'),
        ({"results_dir": 7}, '"results_dir" must be a folder'),
        ({"benchmark_dir": None}, '"benchmark_dir" must be a folder'),
        ({"plugins": {}}, '"plugins" must be a list'),
        ({"default_benchmark_timeout": "60"}, '"default_benchmark_timeout" must be a number'),
        ({"repo": ""}, '"repo" must be a folder'),
    ],
)
@pytest.mark.parametrize("words", [("changes",), ("gate",), ("show",)])
def test_a_value_of_the_wrong_type_is_named(run, tmp_path, words, change, said):
    (tmp_path / "asv.conf.json").write_text(json.dumps(CONFIG | change))
    status, told = run(*words)
    assert status == 4
    assert said in told


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("enviroment_type", "it has no effect; did you mean 'environment_type'?"),
        ("result_dir", "it has no effect; did you mean 'results_dir'?"),
        ("colour", "'colour': it has no effect\n"),
    ],
)
def test_check_names_a_key_that_nobody_reads(run, tmp_path, key, said):
    (tmp_path / "asv.conf.json").write_text(json.dumps(CONFIG | {key: "x", "build_cache_size": 1}))
    told = run("check")[1]
    assert f"asv.conf.json: neither asv nor Lockstep knows the key '{key}': " in told
    assert said in told
    assert told.count("neither asv nor Lockstep") == 1
    assert "neither asv" not in run("changes")[1]


def test_check_names_several_keys_in_one_order(run, tmp_path):
    keys = [f"key_{letter}" for letter in "hgfedcba"]
    (tmp_path / "asv.conf.json").write_text(json.dumps(CONFIG | dict.fromkeys(keys, "x")))
    assert re.findall(r"knows the key '(\w+)'", run("check")[1]) == sorted(keys)


def test_check_names_suites_that_import_torch_at_their_top(run, tmp_path):
    settings = {"environment_type": "lockstep", "plugins": [".lockstep.asv"], "lockstep": {"packages": ["toy"]}}
    (tmp_path / "asv.conf.json").write_text(json.dumps(CONFIG | settings | {"benchmark_dir": "speeds"}))
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "product.py").write_text(dedent(KERNELS))
    (tmp_path / "speeds").mkdir()
    (tmp_path / "speeds" / "__init__.py").touch()
    (tmp_path / "speeds" / "quick.py").write_text(dedent(SUITE))
    (tmp_path / "speeds" / "slow.py").write_text(f"from torch import nn\n{dedent(SUITE)}".replace("Product(", "Other("))
    told = run("check")[1]
    assert f"{tmp_path}/speeds/slow.py imports torch at its top, which takes seconds in each process" in told
    assert told.count(" at its top") == 1


@pytest.mark.parametrize("text", ["[]", "7", "null", "[" * 100_000])
def test_a_configuration_that_is_no_object(run, tmp_path, text):
    (tmp_path / "asv.conf.json").write_text(text)
    assert run("changes")[0] == 4


def test_a_configuration_that_is_not_there(run):
    status, said = run("changes", "--config", "other.json")
    assert status == 4
    assert "does not exist" in said


@pytest.mark.parametrize("words", [("changes",), ("gate",), ("ingest", "--config", "asv.conf.json")])
def test_a_configuration_that_is_no_json(run, tmp_path, words):
    (tmp_path / "asv.conf.json").write_text("{ nothing")
    status, said = run(*words)
    assert status == 4
    assert "asv.conf.json is not JSON" in said


@pytest.mark.parametrize("words", [("changes",), ("alerts", "list"), ("ingest",)])
def test_a_configuration_that_asv_refuses_is_no_bad_news(run, tmp_path, words):
    (tmp_path / "asv.conf.json").write_text(json.dumps(CONFIG | {"version": 99}))
    status, said = run(*words)
    assert status == 4
    assert "newer" in said


@pytest.mark.parametrize(
    "words",
    [
        ("gate", "--json", "none/gate.json"),
        ("gate", "--markdown", "none/gate.md"),
        ("code", "diff", "HEAD", "--markdown", "none/code.md"),
        ("noise", "--json", "none/noise.json"),
    ],
)
def test_a_folder_that_is_missing_is_said_before_anything_runs(run, words):
    status, said = run(*words)
    assert status == 4
    assert "does not exist" in said


def test_a_file_that_cannot_be_read(run, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("tools.scoreboard.command.machines_of", refuse)
    status, said = run("scoreboard")
    assert status == 3
    assert "Permission denied: 'results'" in said


def test_noise_of_no_run(run):
    assert run("noise", "--runs", "0")[0] == 4


def test_changes_since_a_day_that_is_none(run):
    status, said = run("changes", "--since", "2026-13-45")
    assert status == 4
    assert "2026-13-45" in said


def test_thresholds_that_are_not_there(run):
    status, said = run("changes", "--thresholds", "other.toml")
    assert status == 4
    assert "no such file" in said


def ingested(folder, stdout):
    """Run ``lockstep ingest --json`` in a process whose standard output is this file."""
    (folder / "results").mkdir()
    return subprocess.run(
        [sys.executable, "-c", "from lockstep.commands.cli import main; main()", "ingest", "--json"],
        cwd=folder,
        env=os.environ | {"XDG_CACHE_HOME": str(folder / "cache")},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_reader_that_goes_away_gets_no_traceback(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    done = ingested(tmp_path, writing)
    os.close(writing)
    assert done.returncode == 128 + 13
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_output_that_cannot_be_written_is_no_verdict(tmp_path):
    """Status 1 is the gate's verdict "slower", and Python's own status for an error that nobody handles."""
    with Path("/dev/full").open("w") as full:
        done = ingested(tmp_path, full)
    assert (done.returncode, done.stderr) == (3, "· the output cannot be written: No space left on device\n")
