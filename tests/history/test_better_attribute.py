"""The attribute ``better`` of a benchmark function, as asv's own discovery writes it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from lockstep.history.benchmarks_file import benchmark, read_benchmarks

SUITE = """
def track_function():
    return 1.0

track_function.unit = "widgets"
track_function.better = "higher"


class Suite:
    unit = "score (higher is better)"

    def track_method(self):
        return 1.0

    track_method.better = "lower"

    def track_by_unit(self):
        return 1.0

    def track_wrong(self):
        return 1.0

    track_wrong.better = "upwards"
    track_wrong.unit = "widgets"

    def time_to_failure(self):
        pass

    time_to_failure.better = "higher"

    def time_usual(self):
        pass
"""


@pytest.fixture(scope="module")
def directions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suite")
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "__init__.py").write_text("")
    (folder / "benchmarks" / "tracked.py").write_text(SUITE)
    code = (
        "import sys; from asv_runner import discovery; discovery.list_benchmarks(sys.argv[1], open(sys.argv[2], 'w'))"
    )
    found = folder / "found.json"
    subprocess.run([sys.executable, "-c", code, folder / "benchmarks", found], check=True)
    table = {entry["name"]: entry for entry in json.loads(found.read_text())}
    (folder / "benchmarks.json").write_text(json.dumps(table))
    entries = read_benchmarks(folder / "benchmarks.json")
    return {name.rpartition(".")[2]: benchmark(name, entry).better for name, entry in entries.items()}


def test_a_function_or_method_states_its_direction(directions):
    assert directions == {
        "track_function": "higher",
        "track_method": "lower",
        "track_by_unit": "higher",
        "track_wrong": "neither",
        "time_to_failure": "higher",
        "time_usual": "lower",
    }
