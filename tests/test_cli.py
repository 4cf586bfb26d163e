"""What is wrong with a command line or a file is said in one line, before anything is measured."""

import json
import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from lockstep import cli

CONFIG = {"version": 1, "project": "toy", "repo": ".", "benchmark_dir": "suites", "lockstep": {"packages": ["k"]}}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a command line in a folder with a configuration: exit status and what was said."""
    (tmp_path / "asv.conf.json").write_text(json.dumps(CONFIG))
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["lockstep", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        told = capsys.readouterr()
        return ended.value.code, told.out + told.err

    return command


@pytest.mark.parametrize("words", [(), ("run",), ("code", "diff"), ("gate",)])
def test_both_versions_are_told(run, words):
    assert run(*words, "--version") == (0, f"lockstep {version('kernel-lockstep')} (asv {version('asv')})\n")


@pytest.mark.parametrize(("asked", "loads"), [("clocks", "False"), ("changes", "True"), ("--config=x", "True")])
def test_a_verb_that_is_not_asked_for_is_not_loaded(asked, loads):
    """Whoever gates waits for no dashboard; what comes before a verb may hide it."""
    program = """
import sys
from lockstep.cli import main
sys.argv = ["lockstep", sys.argv[1], "--version"]
try:
    main()
except SystemExit:
    print("dashboard" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program, asked], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == loads


def test_a_configuration_that_is_not_there(run):
    status, said = run("changes", "--config", "other.json")
    assert status == 4
    assert "no configuration" in said


@pytest.mark.parametrize("words", [("changes",), ("gate",), ("ingest", "--config", "asv.conf.json")])
def test_a_configuration_that_is_no_json(run, tmp_path, words):
    (tmp_path / "asv.conf.json").write_text("{ nothing")
    status, said = run(*words)
    assert status == 4
    assert "asv.conf.json is no JSON" in said


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
    assert "there is no folder" in said


def test_a_file_that_cannot_be_read(run, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("lockstep.commands.scoreboard.machines_of", refuse)
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


def test_a_reader_that_goes_away_gets_no_traceback(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", "from lockstep.cli import main; main()", "ingest", "--json"],
        cwd=tmp_path,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    assert done.returncode == 128 + 13
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
