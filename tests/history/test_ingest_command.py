"""``lockstep ingest`` says what was read and what was wrong, to people and to machines."""

import json
from argparse import ArgumentParser

import pytest
from trees import COMMIT, MACHINE, record, write_measurement
from verb import run_verb

from lockstep.commands.ingest import Ingest


@pytest.fixture
def ingest(tmp_path, monkeypatch, capsys):
    """Run the verb in a folder; gives its exit status and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        parser = ArgumentParser()
        Ingest.setup_arguments(parser.add_subparsers())
        args = parser.parse_args(["ingest", *arguments])
        args.config = None
        status = args.func(args)
        return status, capsys.readouterr().out

    return run


def test_what_was_read_is_told_as_json(ingest, tmp_path):
    write_measurement(tmp_path / "results", [record()])
    status, said = ingest("--json")
    told = json.loads(said)
    assert status == 0
    assert (told["files"], told["changed"], told["points"], told["problems"]) == (1, 1, 2, [])
    assert told["cache"].startswith(str(tmp_path / "cache" / "lockstep"))
    assert told["machines"] == [
        {"machine": MACHINE, "commits": 1, "apart": 0, "series": 2, "newest": "2026-09-21", "clocks": "locked@1500"}
    ]
    assert json.loads(ingest("--json")[1])["changed"] == 0


def test_problems_are_told_one_a_line_and_are_the_exit_status(ingest, tmp_path):
    write_measurement(tmp_path / "results", [record()], machine="[red]m")
    broken = write_measurement(tmp_path / "results", [record()])
    broken.write_text("<html>")
    status, said = ingest()
    assert status == 1
    lines = said.splitlines()
    assert lines[0].startswith("2 of 2 files read, 2 numbers, in ")
    assert any(line.startswith("[red]m ") for line in lines)
    assert lines[-1].startswith(f"{MACHINE}/{COMMIT[:8]}-existing.json: the file is not JSON")


def test_the_folder_is_the_configured_one(ingest, tmp_path):
    write_measurement(tmp_path / "elsewhere", [record()])
    (tmp_path / "asv.conf.json").write_text('{"version": 1, "repo": ".", "results_dir": "elsewhere"}')
    assert json.loads(ingest("--json")[1])["results"] == str(tmp_path / "elsewhere")


def test_a_cache_that_cannot_be_is_an_infrastructure_error(ingest, tmp_path):
    write_measurement(tmp_path / "results", [record()])
    assert run_verb("ingest", "--cache", "results/cache") == 3
    (tmp_path / "file").write_text("")
    assert run_verb("ingest", "--cache", "file") == 3
