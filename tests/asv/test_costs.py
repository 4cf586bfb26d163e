"""Costs from a suite's statement through asv to the store and the pages, on a CPU."""

import json

import pytest
from project import KERNELS, SUITE, make_project

from lockstep.compare.read_rows import newest_rows
from lockstep.compare.shown_quantities import related_suites
from lockstep.history.store import Store
from lockstep.record.file import read_records

STATED = SUITE.replace('baseline = "plain"', 'baseline = "plain"\n        quantities = ("behind", "host")')
CASE = "M=2,K=1024,N=512"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("costs") / "project"
    project = make_project(root)
    before = project.lockstep("run", "HEAD^!", "--bench", rf"(latency|speedup)\(.*'{CASE}', 'warm'")
    assert before.returncode == 0, before.stdout
    project.write("benchmarks/product.py", STATED)
    project.commit("State costs")
    done = project.lockstep("run", "HEAD^!", "--bench", rf"\(.*'{CASE}', 'warm'")
    assert done.returncode == 0, done.stdout
    return project


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A project whose suite states no cost: recorded with one, continued for another, and recorded without."""
    root = tmp_path_factory.mktemp("asked") / "project"
    project = make_project(root)
    chosen = ("--bench", rf"\(.*'{CASE}', 'warm'")
    assert project.lockstep("run", "HEAD^!", *chosen, "--costs", "host").returncode == 0
    again = project.lockstep("run", "HEAD^!", *chosen, "--skip-existing", "--costs", "behind")
    assert again.returncode == 0, again.stdout
    project.write("toy/product.py", KERNELS + "\n    # changed\n")
    project.commit("Change a comment")
    assert project.lockstep("run", "HEAD^!", *chosen).returncode == 0
    return project


def test_a_run_measures_the_costs_that_it_is_asked_for(asked):
    paths = sorted((asked.root / "results").glob("*-cpu/*.provenance.jsonl"))
    told = {provenance.commit: records for provenance, records in map(read_records, paths)}
    later, first = asked.git("rev-parse", "HEAD", "HEAD^").split()
    costs = {commit: {name for one in records for name in one.costs} for commit, records in told.items()}
    assert costs == {first: {"behind", "behind_speedup"}, later: set()}


def test_costs_that_were_asked_for_once_stay_series(asked):
    table = json.loads((asked.root / "results" / "benchmarks.json").read_text())
    assert {name for name in table if name.startswith("product.")} >= {"product.behind", "product.host"}
    assert table["product.behind"]["version"] == table["product.latency"]["version"]
    assert table["product.behind"]["unit"] == "seconds"
    results = Store.open(asked.root / "results", cache=asked.root.parent / "cache").current()
    assert list(related_suites(results, "product").values()) == ["time", "behind", "behind speedup"]


def test_each_cost_is_a_benchmark_of_asvs_own(project):
    table = json.loads((project.root / "results" / "benchmarks.json").read_text())
    del table["version"], table["product.track_answer"]
    own = {name: (entry["type"], entry["unit"]) for name, entry in table.items()}
    assert own == {
        "product.latency": ("lockstep", "seconds"),
        "product.speedup": ("lockstep", "x"),
        "product.behind": ("cost", "seconds"),
        "product.behind_speedup": ("cost", "x"),
        "product.host": ("cost", "seconds"),
    }
    shown = project.lockstep("show", "HEAD", "--bench", "product.behind")
    assert "product.behind" in shown.stdout, shown.stdout


def test_the_records_hold_them_and_an_earlier_commit_has_none(project):
    paths = sorted((project.root / "results").glob("*-cpu/*.provenance.jsonl"))
    told = {provenance.commit: (provenance, records) for provenance, records in map(read_records, paths)}
    head = project.git("rev-parse", "HEAD")
    provenance, records = told.pop(head)
    ok = [record for record in records if record.state == "ok"]
    assert {tuple(record.costs) for record in ok} == {("behind", "behind_speedup")}, "a CPU has no host beside it"
    assert provenance.spent_s["behind"] > 0
    [(_, earlier)] = told.values()
    assert {tuple(record.costs) for record in earlier} == {()}
    assert {record.version for record in earlier} == {record.version for record in records}, "no new series"


def test_the_store_has_a_series_of_each(project):
    results = Store.open(project.root / "results", cache=project.root.parent / "cache").current()
    [machine] = results.machines
    assert list(related_suites(results, "product").values()) == ["time", "behind", "behind speedup"], (
        "nothing has a host time"
    )
    rows = {row.key[1:]: row for row in newest_rows(results, machine)}
    twice = rows["product.behind_speedup", "twice", CASE, "warm"]
    assert (twice.unit, twice.better, twice.baseline) == ("x", "higher", "plain")
    # How fast either is depends on what else the machine does: the page shows what the record says.
    [path] = (project.root / "results").glob(f"*-cpu/{project.git('rev-parse', 'HEAD')[:8]}-*.provenance.jsonl")
    [said] = [one for one in read_records(path)[1] if (one.variant, one.case) == ("twice", CASE)]
    assert twice.value.value == pytest.approx(said.costs["behind_speedup"].value, rel=1e-4)
    assert (twice.value.low < twice.value.value < twice.value.high) == bool(twice.value.error)
    behind = rows["product.behind", "twice", CASE, "warm"]
    assert (behind.unit, behind.latency) == ("µs", None)
    assert behind.value.low < behind.value.value < behind.value.high
