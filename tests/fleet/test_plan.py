"""What is measured next, and why."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from project import json_rows, make_project
from test_merge import VARIANTS, provenance, record, write_folder

from lockstep.asv.fresh_runs import middles
from lockstep.fleet.next_commits import Costs, Doubt, Known, plan
from lockstep.fleet.shard import Shard

ONE, TWO = Shard.parse("1/2").others
CASES = {("product", "M=1"): ONE, ("product", "M=2"): TWO, ("product", "M=3"): TWO}
ALL = dict.fromkeys(CASES, frozenset({"GPU-a"}))
COMMITS = [f"{number:040x}" for number in range(9, 0, -1)]  # newest first
NEWEST, OLDEST = COMMITS[0], COMMITS[-1]
COSTS = Costs({("product", "M=1"): 4.0, ("product", "M=2"): 6.0}, 10.0)


def planned(known, budget=None):
    return [(step.commit, step.why) for step in plan(COMMITS, known, budget).steps]


def test_without_results_the_newest_comes_first_and_the_gap_is_halved():
    steps = planned(Known(CASES, {}, Costs()))
    assert steps[0] == (NEWEST, "newest commit")
    assert sorted(commit for commit, _ in steps) == sorted(COMMITS)
    assert steps[1] == (COMMITS[5], "gap of 8 commits")
    assert {commit for commit, _ in steps[2:4]} == {COMMITS[3], COMMITS[7]}


def test_what_is_measured_is_not_planned():
    assert planned(Known(CASES, dict.fromkeys(COMMITS, ALL), COSTS)) == []
    half = {("product", "M=1"): frozenset({"GPU-a"})}
    [step] = plan(COMMITS, Known(CASES, dict.fromkeys(COMMITS[1:], ALL) | {NEWEST: half}, COSTS)).steps
    assert [(task.shard, task.cases, task.seconds) for task in step.tasks] == [
        (TWO, (("product", "M=2"), ("product", "M=3")), 10 + 6 + 5)  # M=3 as long as the median case
    ]


def test_open_ranges_come_before_repeats_and_gaps():
    measured = {NEWEST: ALL, COMMITS[4]: ALL}
    doubts = [
        Doubt("unsure", (NEWEST,), frozenset({("product", "M=1")}), "product twice +0.4%"),
        Doubt("open", tuple(COMMITS[0:4][::-1]), frozenset({("product", "M=2")}), "product twice +3.0%"),
    ]
    steps = plan(COMMITS, Known(CASES, measured, COSTS, doubts)).steps
    assert [step.why for step in steps[:4]] == [
        *["divides 4 commits: product twice +3.0%"] * 3,
        "repeat, the detector is unsure: product twice +0.4%",
    ]
    assert steps[0].commit == COMMITS[2]
    assert [(step.again, [task.cases for task in step.tasks]) for step in steps if step.again] == [
        (True, [(("product", "M=1"),)])
    ]
    assert {step.why for step in steps[4:]} == {"gap of 4 commits"}


def test_a_case_that_moves_to_another_gpu_gets_a_bridge():
    """The last commit that the old GPU measured is measured again on the new one, wherever the range begins."""
    a, b = Shard.parse("1/GPU-a,GPU-b").others
    known = Known(dict(zip(CASES, (a, b, b), strict=True)), {COMMITS[3]: ALL, COMMITS[5]: ALL}, COSTS, line=COMMITS)
    new, bridge = plan(COMMITS[:1], known).steps
    assert new.commit == NEWEST
    assert (bridge.commit, bridge.why, bridge.again) == (COMMITS[3], "bridge: another GPU measured it", False)
    assert [(task.shard, task.cases) for task in bridge.tasks] == [(b, (("product", "M=2"), ("product", "M=3")))]
    both = ALL | dict.fromkeys((("product", "M=2"), ("product", "M=3")), frozenset({"GPU-a", "GPU-b"}))
    for later in ({COMMITS[3]: both}, {COMMITS[3]: both, COMMITS[1]: both}):
        assert plan(COMMITS[:1], replace(known, measured=known.measured | later)).steps == (new,)
    assert plan(COMMITS[:1], replace(known, owners=CASES)).steps[1:] == (), "the UUIDs are not known"


def test_a_budget_bounds_the_gpu_seconds_of_all_shards():
    known = Known(CASES, {}, COSTS)
    whole = plan(COMMITS, known)
    each = 14.0 + 21.0
    assert [step.seconds for step in whole.steps] == [each] * len(COMMITS)
    some = plan(COMMITS, known, 3.5 * each)
    assert some.steps == whole.steps[:3]
    assert some.left_out == len(COMMITS) - 3
    with pytest.raises(ValueError, match="leave out the budget"):
        plan(COMMITS, replace(known, costs=Costs()), 100.0)


@pytest.mark.parametrize("size", range(12))
def test_middles_yield_each_commit_once(size):
    assert sorted(middles(range(size))) == list(range(size))


def test_costs_are_those_of_the_records():
    spent = replace(provenance("GPU-a"), spent_s={"compile": 20.0, "time": 9.0, "rest": 2.0})
    records = [replace(record("M=1", name), wall_s=3.0) for name in ("plain", "twice")]
    costs = Costs.of([(spent, records)])
    assert costs == Costs({("product", "M=1"): 6.0}, 22.0)
    assert costs.seconds(ALL) == 22 + 3 * 6
    assert Costs().seconds(ALL) is None


def test_the_verb_plans_a_history(tmp_path):
    project = make_project(tmp_path / "project")
    head = project.git("rev-parse", "HEAD")
    done = project.lockstep("plan", "HEAD~1..HEAD", "--shards", "2", "--json", "--commits", "next.txt")
    assert done.returncode == 0, done.stdout
    made = json.loads(done.stdout.splitlines()[-1])
    assert made["seconds"] is None
    assert made["matrix"] == {"include": [{"shard": f"{n}/2", "name": f"{n}-of-2"} for n in (1, 2)]}
    assert [(step["commit"], step["why"]) for step in made["steps"]] == [(head, "newest commit")]
    assert (project.root / "next.txt").read_text() == f"{head}\n"
    assert project.lockstep("plan", "HEAD~1..HEAD", "--shards", "2", "--budget", "5").returncode == 4
    assert project.lockstep("plan", "HEAD~1..nowhere").returncode == 4


def test_the_verb_does_not_import_torch():
    words = "import sys, lockstep.commands.plan; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == 0


def test_the_verb_plans_a_bridge_until_a_merge_holds_it(tmp_path):
    project = make_project(tmp_path / "project")
    head = project.git("rev-parse", "HEAD")
    cases = [f"M={size},K=1024,N=512" for size in (2, 3, 4096)]

    def measure(folder, uuid):
        path = write_folder(folder, uuid, [record(case, name) for case in cases for name in VARIANTS], commit=head)
        assert path.is_file()

    def bridges():
        [made] = json_rows(project.lockstep("plan", "HEAD^!", "--shards", "GPU-b", "--json").stdout)
        return [(step["commit"], step["why"], len(step["shards"][0]["cases"])) for step in made["steps"]]

    measure(project.root / "results", "GPU-a")
    assert bridges() == [(head, "bridge: another GPU measured it", len(cases))]
    measure(tmp_path / "shard", "GPU-b")
    assert project.lockstep("merge", str(tmp_path / "shard")).returncode == 0
    assert bridges() == []
