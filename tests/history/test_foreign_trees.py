"""Another project's results, written by asv itself: every type of benchmark, parameters of any type."""

import itertools
import json
import math
import os
import subprocess
import sys
import textwrap

import pytest
from asv.results import iter_results
from trees import open_store

from lockstep.history import display_names as names

BENCHMARKS = """
    import collections


    class Sorting:
        params = ([10, 200], ["list", "nan", "1", "it's"], [None, 0.5])
        param_names = ["size", "kind", "share"]

        def setup(self, size, kind, share):
            if kind == "nan" and share is None:
                raise NotImplementedError("no such data")
            self.data = list(range(size, 0, -1))

        def time_sorted(self, size, kind, share):
            sorted(self.data)


    def track_ratio(container):
        if container is dict:
            raise RuntimeError("broken")
        return -0.25 if container is list else 0


    track_ratio.params = [list, dict, collections.OrderedDict]
    track_ratio.unit = "widgets/s"


    def track_infinite():
        return float("inf")


    def mem_list():
        return [0] * 1000


    def peakmem_list():
        return [0] * 1000


    def time_nothing():
        pass


    time_nothing.repeat = 3
    time_nothing.number = 7
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A repository of two commits, whose benchmarks asv ran at both; gives its folder and the commits."""
    root = tmp_path_factory.mktemp("foreign")
    environment = os.environ | {"HOME": str(root / "home"), "PYTHONWARNINGS": "ignore"}

    def do(*command):
        return subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True, text=True).stdout

    def git(*arguments):
        names = ["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false"]
        return do("git", *names, *arguments).strip()

    config = {"version": 1, "project": "tiny", "repo": ".", "branches": ["main"], "environment_type": "existing"}
    (root / "asv.conf.json").write_text(json.dumps(config))
    (root / "benchmarks").mkdir()
    (root / "benchmarks" / "__init__.py").write_text("")
    git("init", "-q", "-b", "main")
    hashes = []
    for subject in ("Begin", "Sort <b>faster</b>"):
        source = textwrap.dedent(BENCHMARKS).replace("sorted(self.data)", f"sorted(self.data)  # {subject}")
        (root / "benchmarks" / "all.py").write_text(source)
        git("add", ".")
        git("commit", "-q", "-m", subject)
        hashes.append(git("rev-parse", "HEAD"))
        strings = ["--os", "Linux 6.1", "--cpu", "a processor", "--arch", "x86_64", "--num_cpu", "2", "--ram", "4"]
        do(sys.executable, "-m", "asv", "machine", "--machine", "tiny", *strings)
        options = ["--set-commit-hash", hashes[-1], "--machine", "tiny", "--launch-method", "forkserver"]
        fast = ["-a", "warmup_time=0", "-a", "sample_time=0.0001", "-a", "rounds=1"]
        command = [sys.executable, "-m", "asv", "run", "-E", f"existing:{sys.executable}", *options, *fast]
        subprocess.run([*command, "--record-samples"], cwd=root, env=environment, check=False, capture_output=True)
    return root, hashes


@pytest.fixture
def results(project):
    root, _ = project
    return open_store(root / "results", repo=root).current()


def test_nothing_of_it_is_a_problem(project, results):
    _, hashes = project
    assert results.problems == ()
    assert [(one.hash, one.subject) for one in results.commits()] == [
        (hashes[0], "Begin"),
        (hashes[1], "Sort <b>faster</b>"),
    ]
    assert list(results.machines) == ["tiny"]
    assert results.machines["tiny"].strings["cpu"] == "a processor"
    assert [run.python for run in results.runs_of("tiny")] == [sys.executable] * 2


def test_every_number_is_what_asv_reads(project, results):
    root, _ = project
    compared = 0
    for asv in iter_results(str(root / "results")):
        points = {(point.series.benchmark, point.series.axes): point for point in results.at(asv.commit_hash, "tiny")}
        for name in asv.get_all_result_keys():
            params = asv.get_result_params(name)
            values = asv.get_result_value(name, params)
            stats = asv.get_result_stats(name, params)
            samples = asv.get_result_samples(name, params)
            for place, combination in enumerate(itertools.product(*params)):
                point = points.pop((name, names.axes(results.benchmarks[name], combination)))
                value = values[place]
                if value is None or not math.isfinite(value):
                    assert point.value is None
                    assert point.state == ("na" if value is not None and math.isnan(value) else "failed")
                    continue
                compared += 1
                assert (point.state, point.value) == ("bare", value)
                if stats[place]:
                    assert (point.repeat, point.number) == (stats[place]["repeat"], stats[place]["number"])
                    assert (point.q25, point.q75) == (stats[place]["q_25"], stats[place]["q_75"])
                    assert point.samples == tuple(samples[place][:100])
        assert points == {}
    assert compared == 2 * (14 + 2 + 3)


def test_parameters_of_any_type_become_axes(results):
    series = results.series(benchmark="all.Sorting.time_sorted")
    assert {name for one in series for name, _ in one.axes} == {"size", "kind", "share"}
    assert [one.axis("size") for one in series] == ["10"] * 8 + ["200"] * 8
    # The string '1' is told from the number, the string 'nan' from what is none.
    assert {one.axis("kind") for one in series} == {"list", "'nan'", "'1'", "it's"}
    assert {one.axis("share") for one in series} == {"None", "0.5"}
    assert len(results.series(axes={"size": "10", "kind": "list", "share": "None"})) == 1
    assert {one.axis("param1") for one in results.series(benchmark="all.track_ratio")} == {
        "<class 'list'>",
        "<class 'dict'>",
        "<class 'collections.OrderedDict'>",
    }


def test_units_kinds_and_senses(results):
    kinds = {one.name.removeprefix("all."): (one.kind, one.unit) for one in results.benchmarks.values()}
    assert kinds == {
        "Sorting.time_sorted": ("time", "seconds"),
        "track_ratio": ("track", "widgets/s"),
        "track_infinite": ("track", "unit"),
        "mem_list": ("memory", "bytes"),
        "peakmem_list": ("peakmemory", "bytes"),
        "time_nothing": ("time", "seconds"),
    }
    better = {name.removeprefix("all.") for name, one in results.benchmarks.items() if one.better == "higher"}
    assert better == {"track_ratio"}
    assert not any(one.ours for one in results.benchmarks.values())
    assert results.benchmarks["all.Sorting.time_sorted"].suite == "all.Sorting"


def test_zero_and_less_are_numbers_where_they_can_be(results, project):
    points = [point for point in results.at(project[1][0]) if point.series.benchmark == "all.track_ratio"]
    assert sorted(((p.state, p.value) for p in points), key=str) == [("bare", -0.25), ("bare", 0.0), ("failed", None)]
    [infinite] = [point for point in results.at(project[1][0]) if point.series.benchmark == "all.track_infinite"]
    assert (infinite.state, infinite.value, infinite.reason) == ("failed", None, "inf is not a finite number")


def test_a_changed_benchmark_has_another_version(results):
    trends = {trend.series.benchmark: trend for trend in results.trends()}
    versions = {name: len(set(trend.version.tolist())) for name, trend in trends.items()}
    assert versions["all.Sorting.time_sorted"] == 2
    assert versions["all.time_nothing"] == 1
    once = trends["all.time_nothing"]
    assert (once.number.tolist(), once.repeat.tolist()) == ([7, 7], [3, 3])
