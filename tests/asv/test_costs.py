"""Costs from a suite's statement through asv to the store and the pages, on a CPU."""

import json
import shutil

import pytest
from project import KERNELS, SUITE, make_project

from lockstep.compare.read_rows import newest_rows
from lockstep.compare.shown_quantities import related_suites
from lockstep.history.store import Store
from lockstep.record.file import read_records

STATED = SUITE.replace('baseline = "plain"', 'baseline = "plain"\n        quantities = ("behind", "host")')
CASE = "M=2,K=1024,N=512"

#: Why a case has no time behind the fixed kernel on a busy machine.
DISTURBED = "the fixed kernel took as long alone as with a call behind it"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Three commits: the first asks for one cost and then for another, the second for none, the suite of the third
    states two.
    """
    project = make_project(tmp_path_factory.mktemp("costs") / "project")

    def run(*options):
        done = project.lockstep("run", "HEAD^!", "--bench", rf"\(.*'{CASE}', 'warm'", *options)
        assert done.returncode == 0, done.stdout

    run("--costs", "host")
    run("--skip-existing", "--costs", "behind")
    project.write("toy/product.py", KERNELS + "\n    # changed\n")
    project.commit("Change a comment")
    run()
    shutil.copy(project.root / "results" / "benchmarks.json", project.root.parent / "unstated.json")
    project.write("benchmarks/product.py", STATED)
    project.commit("State costs")
    run()
    return project


def measured(project):
    """Provenance and records of the three commits. Skips where the machine was too busy for a cost."""
    paths = (project.root / "results").glob("*-cpu/*.provenance.jsonl")
    told = {told.commit: (told, records) for told, records in map(read_records, paths)}
    every = [one for _, records in told.values() for one in records]
    # A speedup needs a round that gives both arms a time.
    if any(DISTURBED in one.note or set(one.costs) == {"behind"} for one in every):
        pytest.skip("too busy to tell what a call costs behind another kernel")
    return [told[commit] for commit in project.git("rev-parse", "HEAD~2", "HEAD~1", "HEAD").split()]


def test_a_commit_has_the_costs_that_its_run_asked_for_or_its_suite_states(project):
    costs = [{name for one in records for name in one.costs} for _, records in measured(project)]
    # A CPU has no host time beside it.
    assert costs == [{"behind", "behind_speedup"}, set(), {"behind", "behind_speedup"}]


def test_costs_that_the_pattern_leaves_out_are_named(project):
    done = project.lockstep("run", "HEAD^!", "--dry-run", "--bench", "product.latency", "--costs", "host", "behind")
    assert "--bench selects no series of behind, host: leave the quantity out of the pattern" in done.stdout


def test_costs_that_were_asked_for_once_stay_series(project):
    table = json.loads((project.root.parent / "unstated.json").read_text())
    assert {name for name in table if name.startswith("product.")} >= {"product.behind", "product.host"}
    assert table["product.behind"]["version"] == table["product.latency"]["version"]
    assert table["product.behind"]["unit"] == "seconds"


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


def test_every_record_holds_them_and_starts_no_new_series(project):
    *_, (_, before), (provenance, records) = measured(project)
    ok = [record for record in records if record.state == "ok"]
    assert {tuple(record.costs) for record in ok} == {("behind", "behind_speedup")}
    assert provenance.spent_s["behind"] > 0
    assert {record.version for record in before} == {record.version for record in records}


def test_the_store_has_a_series_of_each(project):
    results = Store.open(project.root / "results", cache=project.root.parent / "cache").current()
    [machine] = results.machines
    assert list(related_suites(results, "product").values()) == ["time", "behind", "behind speedup"], (
        "nothing has a host time"
    )
    *_, (_, records) = measured(project)
    rows = {row.key[1:]: row for row in newest_rows(results, machine)}
    twice = rows["product.behind_speedup", "twice", CASE, "warm"]
    assert (twice.unit, twice.better) == ("×", "higher")
    # How fast either is depends on what else the machine does: the page shows what the record says.
    [said] = [one for one in records if (one.variant, one.case) == ("twice", CASE)]
    assert twice.value.value == pytest.approx(said.costs["behind_speedup"].value, rel=1e-4)
    assert has_interval(twice.value) == bool(twice.value.error)
    behind = rows["product.behind", "twice", CASE, "warm"]
    assert (behind.unit, behind.latency) == ("µs", None)
    assert has_interval(behind.value) == bool(behind.value.error)


def has_interval(number):
    """Return whether a number lies within an interval; rounds that scatter beyond it leave a number without one."""
    if number.low is None:
        return False
    assert number.low < number.value < number.high
    return True
