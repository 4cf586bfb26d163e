"""Numbers that asv did not measure, in asv's result files."""

import json
import math

import pytest
from asv.results import Results

from lockstep.asv.write_results import Result, write_results

COMMIT = "a" * 40


def benchmark(name, *values):
    return {"name": name, "version": "1", "params": [[*values]] if values else [], "unit": "seconds"}


def written(folder, *found):
    write_results(folder, {"machine": "box", "gpu": "H200"}, COMMIT, 5, "tool", found, 7)
    return Results.load(str(folder / "box" / f"{COMMIT[:8]}-tool.json"))


def test_asv_reads_values_failures_and_intervals(tmp_path):
    one = benchmark("suite.time", "1", "2", "3")
    precise = {"ci_99_a": 1.23456789, "ci_99_b": 3.0}
    results = written(tmp_path, (one, [Result(2.0, precise), Result(None), Result(math.nan)]))
    assert results.get_result_value("suite.time", one["params"]) == [2.0, None, pytest.approx(math.nan, nan_ok=True)]
    [stats, _, _] = results.get_result_stats("suite.time", one["params"])
    assert {name: stats[name] for name in precise} == precise, "asv rounds to five digits"
    assert results.params == {
        "machine": "box",
        "gpu": "H200",
        **dict.fromkeys(("arch", "cpu", "num_cpu", "os", "ram"), ""),
    }
    assert json.loads((tmp_path / "box/machine.json").read_text())["machine"] == "box"
    assert [*json.loads((tmp_path / "benchmarks.json").read_text())] == ["suite.time", "version"]


def test_results_of_other_benchmarks_stay(tmp_path):
    written(tmp_path, (benchmark("a"), [Result.of_samples([1.0, 2.0, 3.0])]), (benchmark("b"), [Result(1.0)]))
    results = written(tmp_path, (benchmark("b"), []), (benchmark("c"), [Result(4.0)]))
    assert [*results.get_all_result_keys()] == ["a", "c"], "of b there is nothing any more"
    assert results.get_result_samples("a", []) == [[1.0, 2.0, 3.0]]
    assert results.get_result_value("a", []) == [2.0]
