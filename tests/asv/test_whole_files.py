"""Result files are replaced as a whole, so a run that is killed leaves no part of one, with every verb."""

import json
import re
from pathlib import Path

from asv import util
from exact import code, write_exact_history


def test_exact_results_are_not_written_in_place(tmp_path, monkeypatch):
    in_place = []
    monkeypatch.setattr(util, "write_json", lambda path, *rest, **options: in_place.append(path))
    write_exact_history(tmp_path, ["a" * 40], lambda number: code())
    [result] = (tmp_path / "sm_90-compiled").glob("aaaaaaaa-*.json")
    assert json.loads(result.read_text())["commit_hash"] == "a" * 40
    assert not in_place


def test_only_one_module_names_asvs_own_writer():
    modules = (Path(__file__).parents[2] / "lockstep").rglob("*.py")
    named = re.compile(r"from asv\.util import .*write_json|util\.write_json")
    assert [path.name for path in modules if named.search(path.read_text())] == ["whole_files.py"]
