"""What was not read is counted where people look, and listed by ``lockstep ingest``."""

import json
import shutil

import pytest
from served import words
from test_ingest_command import ingest as ingest  # its fixture
from trees import COMMIT, MACHINE, open_store, record, write_measurement

from dashboard.address import OverviewAddress
from dashboard.pages import overview
from lockstep.history.problem_tally import tally

SAID = "13 of 15 files were not read: the file is not JSON (12), the file is not an asv result of version 1 or 2 (1)"


@pytest.fixture
def broken(tmp_path):
    """Fifteen files, of which two can be read; in one of those a benchmark cannot, and one has another name."""
    root = tmp_path / "results"
    path = write_measurement(root, [record()], proof=False)
    data = json.loads(path.read_text())
    for number in range(12):
        (path.parent / f"{number:08x}-existing.json").write_text("{" * (number + 1))
    (path.parent / "ffffffff-existing.json").write_text('{"version": 3}')
    data["commit_hash"] = "f" * 40
    data["results"]["a.time_it"] = "fast"
    (path.parent / "tonight-existing.json").write_text(json.dumps(data))
    return root


def test_problems_and_notes_are_counted_by_their_reason(broken):
    found = tally(open_store(broken).current())
    assert list(found.sentences()) == [
        f"{SAID}; `lockstep ingest` lists them",
        "1 part of the results was not read: in a benchmark, the entry is not a list of columns (1)",
    ]
    assert found.as_json() == {
        "files": 15,
        "files_not_read": 13,
        "kinds": [
            {"weight": "file", "reason": "the file is not JSON", "count": 12},
            {"weight": "file", "reason": "the file is not an asv result of version 1 or 2", "count": 1},
            {"weight": "part", "reason": "in a benchmark, the entry is not a list of columns", "count": 1},
            {"weight": "note", "reason": "the file is not named after its commit, as asv names its files", "count": 1},
        ],
    }


def test_where_everything_was_read_nothing_is_said(tmp_path):
    write_measurement(tmp_path / "results", [record()])
    assert list(tally(open_store(tmp_path / "results").current()).sentences()) == []


def test_ingest_counts_and_lists(ingest, broken):
    status, said = ingest()
    lines = said.splitlines()
    assert status == 1
    assert SAID in lines
    assert "1 note: the file is not named after its commit, as asv names its files (read; --json lists them)" in lines
    assert sum(line.startswith(f"{MACHINE}/0000000") for line in lines) == 12
    told = json.loads(ingest("--json")[1])
    assert (told["counts"]["files_not_read"], len(told["problems"])) == (13, 14)
    assert [one["path"] for one in told["notes"]] == [f"{MACHINE}/tonight-existing.json"]


def test_notes_alone_are_no_bad_news(ingest, broken):
    shutil.rmtree(broken)
    write_measurement(broken, [record()]).rename(broken / MACHINE / f"night-{COMMIT[:8]}-existing.json")
    (broken / MACHINE / f"{COMMIT[:8]}-existing.provenance.jsonl").unlink()
    status, said = ingest()
    assert (status, "1 note: " in said) == (0, True)


def test_the_overview_counts(broken):
    text = words(overview.layout(open_store(broken).current(), OverviewAddress()))
    assert SAID in text
    assert f"{MACHINE}/00000000-existing.json" in text
