"""A history of exact quantities: written by the verb without a GPU, kept by asv's run, read by the store."""

import json

import pytest
from project import make_project

from lockstep.commands.code_history import _spread
from lockstep.history.store import Store


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    room = tmp_path_factory.mktemp("history")
    project = make_project(room / "project")
    kernels = project.root / "toy/product.py"
    head = "def twice(x, weight, *, out):\n"
    kernels.write_text(kernels.read_text().replace(head, f"{head}    x = x.clone()\n"))
    project.commit("Copy the input first")
    project.write("README.md", "Words\n")
    project.commit("Write more")
    return project


def test_every_commit_that_touches_the_packages_has_exact_results(project, tmp_path):
    command = ("code", "history", "main", "--target", "sm_90")
    done = project.lockstep(*command)
    assert done.returncode == 0, done.stdout
    assert "3 commits touch toy; 2 files written" in done.stdout, "the first has no variant yet"
    again = project.lockstep(*command)
    assert "; 0 files written" in again.stdout, "they have results"

    # asv discovers nothing of them, and writes its table of benchmarks anew.
    run = project.lockstep("run", "HEAD^!", "--bench", "track_answer")
    assert run.returncode == 0, run.stdout
    table = json.loads((project.root / "results/benchmarks.json").read_text())
    assert table["product.memory"]["unit"] == "bytes"
    assert "product.track_answer" in table

    results = Store.open(project.root / "results", cache=tmp_path / "cache").current()
    [machine] = [name for name in results.machines if name.endswith("compiled")]
    assert machine == "sm_90-compiled"
    assert {run.clock_state for run in results.runs_of(machine)} == {"compiled"}
    of = {"variant": "twice", "case": "M=4096,K=1024,N=512"}
    values = {
        trend.benchmark.quantity: trend.value.tolist()
        for trend in results.trends(results.series(machine=machine, axes=of))
    }
    copy = 4096 * 1024 * 4
    assert values == {"launches": [2, 3], "allocations": [0, 1], "memory": [0, copy], "kept": [0, 0]}
    benchmark = results.benchmarks["product.memory"]
    assert benchmark.exact
    assert (benchmark.family, benchmark.key_suite, benchmark.unit) == ("product", "product.memory", "bytes")


def test_a_commit_that_cannot_be_traced_is_told_and_the_others_are_written(tmp_path):
    project = make_project(tmp_path / "project")
    kernels = project.root / "toy/product.py"
    kernels.write_text(f"import os\n\nos._exit(1)\n{kernels.read_text()}")
    project.commit("End the process")
    done = project.lockstep("code", "history", "main", "--target", "sm_90")
    assert done.returncode == 3
    assert "cannot be traced" in done.stdout
    assert "3 commits touch toy; 1 files written" in done.stdout


def test_a_sample_of_a_history_has_both_ends():
    commits = [(str(number), 0) for number in range(10)]
    assert [commit for commit, _ in _spread(commits, 4)] == ["0", "3", "6", "9"]
    assert [list(_spread(commits, most)) for most in (None, 10, 12)] == [commits] * 3
    assert [commit for commit, _ in _spread(commits, 1)] == ["0"]


def test_a_range_that_git_does_not_know_is_named(project):
    done = project.lockstep("code", "history", "nowhere..main", "--target", "sm_90")
    assert done.returncode == 4
    assert "nowhere" in done.stdout
