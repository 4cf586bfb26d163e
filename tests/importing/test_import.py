"""Real files of other tools become asv results, with the numbers that the tools print.

``nvbench.json`` is part of ``python/scripts/test_ref.json`` of NVIDIA/nvbench at 66212f1d (Apache-2.0), and ``data.js``
part of the history of invokermain/engin (MIT). ``hud_rows.json`` is ``json-each-row.json`` of the tests of the HUD's
own uploader (pytorch/test-infra at 236d9a16, BSD). pytest-benchmark 5.3.1 and Google benchmark 1.9.5 wrote the others.
"""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from verb import run_verb

from lockstep.history.store import Store
from lockstep.importing.read_file import UnreadableFile, read_file

FILES = Path(__file__).parent / "files"


@pytest.fixture
def repo(tmp_path):
    """A repository with one commit."""
    subprocess.run(["git", "init", "-q", tmp_path / "repo"], check=True)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    command = ["git", *identity, "commit", "-q", "--allow-empty", "-m", "First"]
    subprocess.run(command, cwd=tmp_path / "repo", check=True)
    return tmp_path / "repo"


def run(repo, *arguments, verb="import"):
    """Run the verb and return its exit status."""
    return run_verb(verb, "--results", repo.parent / "results", "--repo", repo, *arguments)


def imported(repo, *arguments, status=0):
    """Import files, and return the numbers of the store by machine, benchmark and case."""
    assert run(repo, *arguments) == status
    store = Store.open(repo.parent / "results", cache=repo.parent / "cache")
    snapshot = store.current()
    assert [problem.what for problem in snapshot.problems] == []
    return {
        (trend.series.machine, trend.series.benchmark, trend.series.axis("case")): trend
        for machine in snapshot.machines
        for trend in snapshot.trends(snapshot.series(machine=machine))
    }


def values(trends):
    return {key: trend.value.tolist() for key, trend in trends.items()}


def test_the_medians_of_pytest_benchmark(repo):
    trends = imported(repo, FILES / "pytest_benchmark.json")
    # Printed in ns: 214.2500, 880.9999 and 841.0003.
    shown = {(key[1], key[2]): f"{value[-1] * 1e9:.4f}" for key, value in values(trends).items()}
    assert shown == {
        ("test_sum.test_sum", "n=10"): "214.2500",
        ("test_sum.test_sum", "n=100"): "880.9999",
        ("test_sum.test_sort", ""): "841.0003",
    }
    [sort] = [trend for key, trend in trends.items() if key[1] == "test_sum.test_sort"]
    assert (sort.benchmark.unit, sort.benchmark.better, sort.series.machine) == ("seconds", "lower", "runner")
    assert sort.low[0] < sort.value[0] < sort.high[0], "20 samples give an interval"
    assert sort.repeat.tolist() == [20]


def test_the_medians_and_failures_of_google_benchmark(repo):
    trends = imported(repo, FILES / "google_benchmark.json")
    shown = {(key[1], key[2]): f"{value[-1] * 1e9:.0f}" for key, value in values(trends).items() if "time" in key[1]}
    assert shown == {
        ("sum_million.real_time", "8"): "3652",
        ("sum_million.real_time", "64"): "5946",
        ("sum_million.cpu_time", "8"): "443",
        ("sum_million.cpu_time", "64"): "933",
        ("skipped.real_time", ""): "nan",
    }
    rate = trends["runner", "sum_million.items_per_second", "8"]
    assert f"{rate.value[0] / 1e6:.4f}M" == "18.0459M"
    assert (rate.benchmark.unit, rate.benchmark.better) == ("items/s", "higher")
    assert trends["runner", "skipped.real_time", ""].state.tolist() == [2], "failed, not skipped"


def test_a_file_of_google_benchmark_that_holds_aggregates_only_has_the_same_medians(repo, tmp_path, capfd):
    content = json.loads((FILES / "google_benchmark.json").read_text())
    content["benchmarks"] = [entry for entry in content["benchmarks"] if entry["run_type"] == "aggregate"]
    (tmp_path / "aggregates.json").write_text(json.dumps(content))
    trends = imported(repo, tmp_path / "aggregates.json")
    assert f"{trends['runner', 'sum_million.real_time', '8'].value[0] * 1e9:.0f}" == "3652"
    content["benchmarks"] = [entry for entry in content["benchmarks"] if entry["aggregate_name"] == "cv"]
    (tmp_path / "nothing.json").write_text(json.dumps(content))
    assert run(repo, tmp_path / "nothing.json") == 1
    assert "the file holds no number that can be imported" in "".join(capfd.readouterr())


def test_the_means_of_nvbench_and_their_noise(repo):
    trends = imported(repo, FILES / "nvbench.json")
    # Printed by nvbench_compare.py, with the noise (standard deviation) in percent.
    printed = {"": ("1003.472 us", "0.06%"), "Duration=0.0001": ("103.030 us", "0.48%")}
    for case, expected in printed.items():
        name = "single_float64_axis.gpu" if case else "simple.gpu"
        trend = trends["Quadro-GV100", name, case]
        deviation = (trend.high[0] - trend.low[0]) / 2 / 2.5758 * np.sqrt(trend.repeat[0])
        assert (f"{trend.value[0] * 1e6:.3f} us", f"{deviation / trend.value[0]:.2%}") == expected
    assert ("Quadro-GP100", "simple.gpu", "") in trends


def test_the_interval_of_a_few_noisy_samples_of_nvbench_is_not_below_zero(repo, tmp_path):
    content = json.loads((FILES / "nvbench.json").read_text())
    for summary in content["benchmarks"][0]["states"][0]["summaries"]:
        [stated] = [field for field in summary["data"] if field["name"] == "value"]
        if summary["tag"] in ("nv/cold/sample_size", "nv/cold/time/gpu/stdev/relative"):
            stated["value"] = "3" if summary["tag"].endswith("size") else "0.9"
    (tmp_path / "noisy.json").write_text(json.dumps(content))
    trend = imported(repo, tmp_path / "noisy.json")["Quadro-GV100", "simple.gpu", ""]
    assert (f"{trend.value[0]:.4f}", trend.repeat[0]) == ("0.0010", 3)
    assert np.isnan([trend.low[0], trend.high[0], trend.error[0]]).all()


def test_the_samples_that_nvbench_writes_beside_its_file(repo, tmp_path):
    content = json.loads((FILES / "nvbench.json").read_text())
    samples = {"filename": "samples.bin", "size": "3"}
    fields = [{"name": name, "type": "string", "value": value} for name, value in samples.items()]
    content["benchmarks"][0]["states"][0]["summaries"].append(
        {"tag": "nv/json/bin:nv/cold/sample_times", "data": fields}
    )
    path = tmp_path / "with_samples.json"
    path.write_text(json.dumps(content))
    np.array([1e-3, 2e-3, 4e-3], dtype="<f4").tofile(tmp_path / "samples.bin")
    trend = imported(repo, path)["Quadro-GV100", "simple.gpu", ""]
    assert trend.value.tolist() == pytest.approx([2e-3]), "the median"
    assert trend.repeat.tolist() == [3]
    np.array([1e-3], dtype="<f4").tofile(tmp_path / "samples.bin")
    with pytest.raises(UnreadableFile, match=r"samples\.bin holds 1 samples instead of 3"):
        read_file(path)


def test_the_history_of_github_action_benchmark(repo):
    trends = imported(repo, "--machine", "ci", FILES / "data.js")
    assert len(trends) == 3
    trend = trends["ci", "Benchmark.tests.benchmarks.test_benchmarks.test_bench_assembler", ""]
    assert trend.value.tolist() == [2387.098514542651, 2384.262482644114], "by date"
    assert (trend.benchmark.unit, trend.benchmark.better) == ("iter/sec", "higher")


@pytest.mark.parametrize(("tool", "better"), [("customSmallerIsBetter", "lower"), ("customBiggerIsBetter", "higher")])
def test_the_output_for_github_action_benchmark_needs_its_direction(repo, tmp_path, capfd, tool, better):
    """In the layout of ``test/data/extract/customSmallerIsBetter_output2.json`` (a number as range) and of
    ``customBiggerIsBetter_output.json`` (a text) of benchmark-action/github-action-benchmark, and of the benches of
    varun-sundar-rabindranath/gha-bench-test (a text as value)."""
    benches = [
        {"name": "No probe / tokens.per.s", "unit": "tokens/s", "value": 90.5, "range": 0.5},
        {"name": "Free", "unit": "MB", "value": "150", "range": "3", "extra": "Anything"},
    ]
    (tmp_path / "output.json").write_text(json.dumps(benches))
    assert run(repo, tmp_path / "output.json", "--machine", "ci") == 1
    assert (
        "output.json states no better direction: name it with --format customSmallerIsBetter or customBiggerIsBetter"
        in capfd.readouterr().err
    )
    trends = imported(repo, tmp_path / "output.json", "--machine", "ci", "--format", tool)
    assert {trend.benchmark.better for trend in trends.values()} == {better}
    assert sorted(trend.value[0] for trend in trends.values()) == [90.5, 150.0]
    assert {key[1] for key in trends} == {"Benchmark.No probe . tokens_per_s", "Benchmark.Free"}


def test_the_wall_times_of_hyperfine(repo, tmp_path, capfd):
    """In the layout of ``hyperfine.json`` of zeroows/1brc, and of dandavison/misc, whose older one has no exit codes.

    The fields that may be missing are those of ``BenchmarkResult`` in sharkdp/hyperfine.
    """
    spread = {"mean": 0.4, "stddev": 0.1, "user": 0.2, "system": 0.1, "min": 0.3, "max": 0.5}
    results = [
        {"command": "./build/solve --size 8", "median": 0.35, "times": [0.5, 0.35, 0.3], "exit_codes": [0, 0, 0]},
        {"command": "sleep 0.4", "median": 0.4, "times": [0.4], "stddev": None, "parameters": {"time": "0.4"}},
        {"command": "sleep 1", "median": 1.1},
    ]
    (tmp_path / "hyperfine.json").write_text(json.dumps({"results": [spread | result for result in results]}))
    trends = imported(repo, tmp_path / "hyperfine.json", "--machine", "ci")
    assert {key[1:]: trend.value.tolist() for key, trend in trends.items()} == {
        ("hyperfine.__build_solve --size 8", ""): [0.35],
        ("hyperfine.sleep 0_4", "time=0.4"): [0.4],
        ("hyperfine.sleep 1", ""): [1.1],
    }
    assert {(trend.benchmark.unit, trend.benchmark.better) for trend in trends.values()} == {("seconds", "lower")}
    assert run(repo, tmp_path / "hyperfine.json") == 4
    assert "does not name the machine" in "".join(capfd.readouterr())


def test_the_metrics_of_pytorchs_hud(repo, tmp_path):
    # In the layout of pytorch's benchmarks/dynamo/pr_time_benchmarks.
    metric = {"name": "compile_time_instruction_count", "benchmark_values": [3.0, 1.0, 2.0]}
    model = {"name": "sum_floordiv_regression", "type": "sum_floordiv"}
    path = tmp_path / "hud.json"
    path.write_text(json.dumps([{"benchmark": {"name": "pr_time_benchmarks"}, "model": model, "metric": metric}]))
    [(key, trend)] = imported(repo, path, "--machine", "runner").items()
    assert key[1:] == (
        "pr_time_benchmarks.compile_time_instruction_count",
        "model=sum_floordiv_regression,type=sum_floordiv",
    )
    assert (trend.value.tolist(), trend.benchmark.better) == ([2.0], "neither")


def test_a_file_of_pytorchs_hud_may_hold_a_row_a_line(repo, tmp_path, capfd):
    trends = imported(repo, FILES / "hud_rows.json", "--machine", "runner")
    assert {key[2]: trend.value.tolist() for key, trend in trends.items()} == {
        "model=add_loop_eager,type=add_loop,backend=eager": [3086359081],
        "model=add_loop_eager_dynamic,type=add_loop,backend=eager": [5712213247],
        "model=add_loop_inductor_dynamic_gpu,type=add_loop,backend=inductor": [40859830085],
    }
    (tmp_path / "cut.json").write_text((FILES / "hud_rows.json").read_text()[:600])  # in the middle of a row
    assert run(repo, tmp_path / "cut.json", "--machine", "runner") == 1
    assert "cut.json cannot be read" in capfd.readouterr().err


def test_what_is_exported_for_the_hud_is_imported_with_the_same_numbers(repo, tmp_path, capsys):
    before = imported(repo, FILES / "google_benchmark.json")
    capsys.readouterr()
    assert run(repo, "pytorch-hud", "--cache", repo.parent / "cache", verb="export") == 0
    (tmp_path / "hud.json").write_text(capsys.readouterr().out)
    shutil.rmtree(repo.parent / "results")
    after = imported(repo, tmp_path / "hud.json")
    numbers = sorted(trend.value[0] for trend in before.values() if not np.isnan(trend.value[0]))
    assert sorted(trend.value[0] for trend in after.values()) == numbers
    assert {key[0] for key in after} == {"runner"}


def test_a_file_for_github_action_benchmark_has_one_direction(repo, capsys):
    imported(repo, FILES / "google_benchmark.json")
    capsys.readouterr()
    assert run(repo, "customSmallerIsBetter", "--cache", repo.parent / "cache", verb="export") == 0
    times = json.loads(capsys.readouterr().out)
    assert {bench["unit"] for bench in times} == {"seconds"}
    assert [bench["value"] for bench in times if bench["name"] == "sum_million.cpu_time case=8"] == pytest.approx(
        [443.3144448e-9]
    )
    assert run(repo, "customBiggerIsBetter", "--cache", repo.parent / "cache", verb="export") == 0
    assert {bench["unit"] for bench in json.loads(capsys.readouterr().out)} == {"items/s"}


def test_what_cannot_be_exported_is_named(repo, capfd):
    (repo.parent / "results").mkdir()
    assert run(repo, "pytorch-hud", "--cache", repo.parent / "cache", verb="export") == 3
    imported(repo, FILES / "nvbench.json")
    assert run(repo, "pytorch-hud", "--cache", repo.parent / "cache", verb="export") == 4
    assert "name one of Quadro-GP100, Quadro-GV100" in "".join(capfd.readouterr())
    wrong = ("--machine", "Quadro-GP100", "--commit", "00000000")
    assert run(repo, "pytorch-hud", "--cache", repo.parent / "cache", *wrong, verb="export") == 4
    assert "0 measured commits of Quadro-GP100 begin with it" in "".join(capfd.readouterr())


def test_importing_again_changes_nothing_and_another_tool_keeps_the_first(repo):
    before = values(imported(repo, FILES / "nvbench.json"))
    files = {path: path.read_bytes() for path in (repo.parent / "results").rglob("*.json")}
    imported(repo, FILES / "nvbench.json")
    assert {path: path.read_bytes() for path in files} == files
    assert before.items() <= values(imported(repo, FILES / "google_benchmark.json")).items()


def test_what_cannot_be_read_is_named_and_the_rest_is_imported(repo, tmp_path, capfd):
    shutil.copy(FILES / "google_benchmark.json", tmp_path / "half.json")
    text = (tmp_path / "half.json").read_text()
    (tmp_path / "half.json").write_text(text[: len(text) // 2])
    (tmp_path / "other.json").write_text('{"some": "thing"}')
    (tmp_path / "asv.json").write_text('{"results": {"bench.time_sum": [[0.5], []]}, "version": 2}')
    (tmp_path / "lacks.json").write_text('{"benchmarks": [{"name": "x"}], "context": {}}')
    broken = [tmp_path / name for name in ("half.json", "other.json", "asv.json", "lacks.json", "gone.json")]
    assert imported(repo, *broken, FILES / "pytest_benchmark.json", status=1)
    shown = "".join(capfd.readouterr())
    assert "half.json cannot be read" in shown
    assert "other.json is not a file of pytest-benchmark or nvbench" in shown
    assert "asv.json is not a file of pytest-benchmark or nvbench" in shown
    assert "lacks.json is not a whole file of google-benchmark: no 'time_unit'" in shown
    assert "gone.json cannot be read: No such file or directory\n" in shown


def test_a_folder_that_cannot_be_written_is_no_success(repo, capfd):
    (repo.parent / "results").mkdir()
    (repo.parent / "results" / "runner").write_text("a file where the machine's folder should be")
    assert run(repo, FILES / "pytest_benchmark.json") == 3
    assert "runner" in "".join(capfd.readouterr())


def test_a_machine_or_commit_that_is_missing_is_asked_for(repo, capfd):
    assert run(repo, FILES / "data.js") == 4
    assert "name it with --machine" in "".join(capfd.readouterr())
    assert run(repo, FILES / "data.js", "--machine", "ci", "--commit", "deadbeef") == 4
    assert "no commit deadbeef" in "".join(capfd.readouterr())
