"""The first bad commit is found in about log₂ steps, and what cannot be found is said."""

import json
import math
import re
import subprocess
from dataclasses import replace

import pytest
from alerting import altered, step
from history import Here, commits_of, write_history
from hypothesis import given
from hypothesis import strategies as st
from project import KERNELS, Project, make_project

from lockstep.alerts.analysis.grouping import group
from lockstep.alerts.analysis.step_facts import levels
from lockstep.alerts.bisection import (
    Expected,
    Inconclusive,
    Measurement,
    NotReproduced,
    SearchRange,
    bisect,
    search_range,
)
from lockstep.alerts.cause.attribution import explained
from lockstep.alerts.cause.change_facts import Facts
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.model import AnalysisResult
from lockstep.history.store import Store
from lockstep.record.series_name import SeriesName

M2 = "M=2,K=1024,N=512"


def history(length, first_bad, by, broken=()):
    """A measurer of commits "0" (good) … str(length), bad from ``first_bad`` on, and what it was asked."""
    asked = []

    def measure(commit):
        asked.append(int(commit))
        if int(commit) in broken:
            return Measurement(commit, None, reason="does not build")
        return Measurement(commit, math.log1p(by) if int(commit) >= first_bad else 0.0)

    return [str(n) for n in range(1, length + 1)], measure, asked


def row(commits):
    return SearchRange("0", commits[-1], tuple(commits))


@given(length=st.integers(1, 200), data=st.data(), by=st.sampled_from([0.02, 0.5, -0.3]))
def test_the_first_bad_commit_in_log2_steps(length, data, by):
    first_bad = data.draw(st.integers(1, length))
    commits, measure, asked = history(length, first_bad, by)
    found = bisect(row(commits), measure, Expected(math.log1p(by)))
    assert found.suspects == (str(first_bad),)
    assert asked[:2] == [0, length]
    assert len(asked) == len(set(asked)) <= 2 + math.ceil(math.log2(length))


@given(length=st.integers(1, 200), gpus=st.integers(1, 8), data=st.data())
def test_several_gpus_divide_the_range_into_sections(length, gpus, data):
    first_bad = data.draw(st.integers(1, length))
    commits, _, _ = history(length, first_bad, 0.01)
    benches = []
    for _ in range(gpus):
        # Two GPUs of one model differ by more than the change.
        level = data.draw(st.floats(-0.03, 0.03))
        _, measure, asked = history(length, first_bad, 0.01)
        benches.append((asked, lambda commit, level=level, measure=measure: shifted(measure(commit), level)))
    measure, *others = (one for _, one in benches)
    found = bisect(row(commits), measure, Expected(math.log1p(0.01)), others=others)
    assert found.suspects == (str(first_bad),)
    for asked, _ in benches:
        assert asked[:2] == [0, length]
    rounds = max(len(asked) - 2 for asked, _ in benches)
    assert rounds <= math.ceil(math.log(length, gpus + 1) + 1)


def shifted(measurement, level):
    return replace(measurement, log=measurement.log + level)


def test_a_gpu_that_does_not_reproduce_the_change_stops_the_search():
    commits, measure, _ = history(9, 4, 0.1)
    with pytest.raises(NotReproduced):
        bisect(row(commits), measure, Expected(math.log1p(0.1)), others=[lambda commit: Measurement(commit, 0.0)])


@given(length=st.integers(2, 40), data=st.data())
def test_commits_that_cannot_be_measured_are_named_as_suspects(length, data):
    first_bad = data.draw(st.integers(1, length))
    broken = data.draw(st.sets(st.integers(1, length - 1)))
    commits, measure, _ = history(length, first_bad, 0.1, broken)
    suspects = [int(one) for one in bisect(row(commits), measure, Expected(math.log1p(0.1))).suspects]
    assert first_bad in suspects
    assert all(one in broken for one in suspects[:-1])
    assert suspects[-1] not in broken


@given(data=st.data(), length=st.integers(1, 40))
def test_among_branches_and_merges(data, length):
    """The culprit is the commit whose descendants are bad, whatever the order in which git lists branches."""
    parents = {"1": ("0",)}
    for number in range(2, length + 1):
        some = data.draw(st.sets(st.integers(max(number - 4, 0), number - 1), min_size=1, max_size=2))
        parents[str(number)] = tuple(map(str, sorted(some)))
    heads = set(parents) - {one for several in parents.values() for one in several}
    parents["end"] = tuple(sorted(heads))
    culprit = data.draw(st.sampled_from(sorted(parents)))
    suspects = data.draw(st.sets(st.sampled_from(sorted(parents)))) | {culprit}
    bad, asked = set(), []
    for commit, several in parents.items():
        if commit == culprit or bad.intersection(several):
            bad.add(commit)

    def measure(commit):
        asked.append(commit)
        return Measurement(commit, 0.1 if commit in bad else 0.0)

    ordered = tuple(commit for commit in parents if commit in suspects)
    found = bisect(SearchRange("0", "end", ordered, parents), measure, Expected(0.1))
    assert found.suspects == (culprit,)
    assert set(asked) <= suspects | {"0", "end"}


def test_a_side_branch_is_not_acquitted_by_the_branch_that_git_lists_after_it():
    """Of s1, s2 and then b1, b2, which have not s2: a search in a row would name the merge."""
    parents = {"s1": ("0",), "s2": ("s1",), "b1": ("0",), "b2": ("b1",), "m": ("b2", "s2")}

    def measure(commit):
        return Measurement(commit, 0.1 if commit in ("s2", "m") else 0.0)

    found = bisect(SearchRange("0", "m", tuple(parents), parents), measure, Expected(0.1))
    assert found.suspects == ("s2",)


def test_an_undecided_commit_is_measured_again():
    looks = iter([(0.07, 0.0, 0.1), (0.03, 0.0, 0.1), (0.03, 0.0, 0.1)])

    def measure(commit):
        return Measurement(
            commit, *(next(looks) if commit == "1" else (0.0, 0.0, 0.0) if commit == "0" else (0.1, 0.1, 0.1))
        )

    found = bisect(row(["1", "2"]), measure, Expected(0.1))
    assert found.suspects == ("2",)
    assert [one.commit for one in found.measured] == ["0", "2", "1", "1", "1"]
    # As good as bad, however wide its interval; and between the two, but known well enough.
    for clear, suspect in (((0.09, -0.1, 0.2), "1"), ((0.03, 0.02, 0.04), "2")):
        looks = iter([clear])
        found = bisect(row(["1", "2"]), measure, Expected(0.1))
        assert (found.suspects, len(found.measured)) == ((suspect,), 3)


@pytest.mark.parametrize("size", [0.1, -0.1])
@pytest.mark.parametrize(("level", "end", "words"), [("bad", "good", "already bad"), ("good", "bad", "still good")])
def test_an_end_that_is_not_what_the_history_has_is_named_with_figures(level, end, words, size):
    """Both ends are as bad as the history is after the change, or as good as before."""
    history = Expected(size, good=1.0, bad=1.0 + size, text=lambda log: f"{math.exp(log):.3f} µs")
    here = {"good": 1.0, "bad": 1.0 + size}[level]
    with pytest.raises(NotReproduced) as caught:
        bisect(row(["1", "2"]), lambda commit: Measurement(commit, here, here - 0.01, here + 0.01), history)
    said, figure = str(caught.value), f"{math.exp(here):.3f} µs"
    assert said.startswith(
        f"0 measures {figure} on this machine and 2 {figure}, so they differ by +0.0%, "
        f"but the recorded change is {math.expm1(size):+.1%}"
    )
    assert f"from {math.e:.3f} µs to {math.exp(1 + size):.3f} µs" in said
    assert f"{'0' if end == 'good' else '2'}, the {end} end, is {words}" in said
    assert [one.commit for one in caught.value.measured] == ["0", "2"]


def test_a_change_that_went_with_the_toolchain_blames_no_end():
    """Both ends have another level than the history had, and the same one."""
    with pytest.raises(NotReproduced, match="the commits do not explain the change"):
        bisect(row(["1", "2"]), lambda commit: Measurement(commit, 1.05), Expected(0.2, good=1.0, bad=1.2 - 0.06))


def test_what_does_not_show_here_is_not_searched():
    commits, measure, asked = history(20, 5, 0.01)
    message = r"0 measures 1 on this machine and 20 1.01, so they differ by \+1.0%, but the recorded change is \+10.0%"
    with pytest.raises(NotReproduced, match=message):
        bisect(row(commits), measure, Expected(math.log1p(0.1)))
    assert asked == [0, 20]
    for end in (0, 20):
        commits, measure, _ = history(20, 5, 0.1, broken={end})
        with pytest.raises(Inconclusive, match=f"^{end} cannot be measured on this machine: does not build"):
            bisect(row(commits), measure, Expected(math.log1p(0.1)))


def test_ends_that_scatter_are_measured_again_and_not_believed():
    """A difference as large as the history's that lies within the scatter may be none."""
    asked = []
    looks = {"0": iter([0.0, -0.03, 0.03]), "20": iter([0.02, 0.06, -0.02])}

    def measure(commit):
        asked.append(commit)
        level = next(looks[commit])
        return Measurement(commit, level, level - 0.03, level + 0.03)

    commits = [str(number) for number in range(1, 21)]
    with pytest.raises(Inconclusive, match="scatter too much to tell good from bad") as caught:
        bisect(row(commits), measure, Expected(0.02))
    assert not isinstance(caught.value, NotReproduced)
    assert asked == ["0", "20"] * 3


def test_short_looks_with_wide_intervals_are_believed_once_they_agree():
    asked = []

    def measure(commit):
        asked.append(commit)
        level = (1.0 if int(commit) >= 7 else 0.0) + 0.01 * len(asked)
        return Measurement(commit, level, level - 6, level + 6)

    commits = [str(number) for number in range(1, 9)]
    assert bisect(row(commits), measure, Expected(1.0)).suspects == ("7",)
    assert asked[:4] == ["0", "8", "0", "8"]


def test_a_first_look_that_was_lucky_is_measured_again():
    looks = {"0": iter([0.0, 0.1, 0.1]), "2": iter([0.1, 0.1, 0.1])}

    def measure(commit):
        level = next(looks[commit])
        return Measurement(commit, level, level - 0.08, level + 0.08)

    with pytest.raises(Inconclusive):
        bisect(row(["1", "2"]), measure, Expected(0.1))


def test_the_range_of_the_measured_series_is_searched(tmp_path):
    """The alert's range is that of several series, and may miss the culprit."""
    commits = commits_of(tmp_path / "repo", 40, touch=lambda n: n % 2 == 0)
    write_history(tmp_path / "results", "h200", commits, lambda n: Here(slower=1.5 if n >= 20 else 1.0), every=2)
    results = Store.open(tmp_path / "results", tmp_path / "repo", tmp_path / "cache").current()
    name = SeriesName("h200", "linear", "linear", "triton", "M=1,K=64", "cold", "speedup")
    wide = step(name=name, good=commits[26], between=tuple(commits[27:37]), commit=commits[32])
    narrow = altered(
        wide, series=replace(name, case="M=8,K=64"), good=commits[30], between=tuple(commits[31:35]), size=0.01
    )
    [alert] = group([explained(one) for one in (wide, narrow)], commits)
    assert (alert.before, alert.after) == (commits[30], commits[34])
    span = search_range(Ranges(tmp_path / "repo", ("kernels",)), alert, alert.members[0])
    assert (span.good, span.bad) == (commits[26], commits[36])
    assert span.suspects == tuple(commits[at] for at in range(27, 37) if at % 2 == 0)
    # What the history has at both ends, to tell which of them is not so here.
    good, bad = levels(results, name, commits[18], commits[20])
    assert (round(good, 2), round(bad, 2)) == (-0.41, 0.0)
    assert math.isnan(sum(levels(results, name, "f" * 40, commits[20])))


#: ``twice`` takes three milliseconds more, dozens of times what it took.
SLOW = KERNELS.replace("def twice(x, weight, *, out):", "def twice(x, weight, *, out):\n        time.sleep(0.003)")


NAME = SeriesName("here", "product", "product", "twice", M2, "warm", "speedup")


@pytest.fixture(scope="module")
def slowed(tmp_path_factory):
    """A project of five commits after its beginning, the second of which makes ``twice`` slow; its commits."""
    assert SLOW != KERNELS
    project = make_project(tmp_path_factory.mktemp("slowed") / "project")
    (project.root / "results").mkdir()
    commits = [project.git("rev-parse", "HEAD")]
    for number, kernels in enumerate([KERNELS + "\n    # a comment\n", SLOW]):
        project.write("toy/product.py", kernels)
        commits.append(project.commit(f"Change {number}"))
    for number in range(2):
        project.write("toy/product.py", f"{SLOW}\n    # {number}\n")
        commits.append(project.commit(f"Comment {number}"))
    return project, commits


def alert_of(state, commits, *ranges, by=20.0, **changes):
    """Alert 1: a change of ``NAME`` in the first of these ranges of commits, of other series in the others."""
    steps = []
    for at, (good, end) in enumerate(ranges):
        name = replace(NAME, case=f"M={at}") if at else NAME
        ends = {"before": Facts(commits[good]), "after": Facts(commits[end]), "good": commits[good]}
        between = tuple(commits[good + 1 : end + 1])
        steps.append(step(good + 1, end, by=by - at, name=name, between=between, **ends, **changes))
    told = [explained(one) for one in steps]
    database = Database(state)
    AlertStore(database).sync(AnalysisResult(group(told, commits), {"here": commits}))
    database.close()


def bisected(project, state, *words):
    """Exit status, what ``--json`` said, and the line in the alert's log."""
    done = project.lockstep("bisect", "1", "--state", str(state), "--quick", "--json", *words)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    [*_, line] = AlertStore(Database(state)).log(1)
    return done.returncode, answers[0] if answers else done.stdout, line.note


def test_the_verb_names_the_commit_of_a_project(slowed, tmp_path):
    project, commits = slowed
    alert_of(tmp_path / "alerts.sqlite", commits, (0, 2))
    status, answer, note = bisected(project, tmp_path / "alerts.sqlite")
    assert (status, answer["first_bad"]) == (0, [commits[2]]), answer
    # On a busy machine the one in the middle may take a second look.
    assert list(dict.fromkeys(one["commit"] for one in answer["measured"])) == [commits[0], commits[2], commits[1]]
    assert re.match(rf"the first bad commit is {commits[2]} ", note)
    assert project.git("status", "--porcelain") == ""


@pytest.mark.thorough
def test_the_verb_measures_on_several_gpus_at_once(slowed, tmp_path):
    project, commits = slowed
    alert_of(tmp_path / "alerts.sqlite", commits, (0, 2))
    status, answer, _ = bisected(project, tmp_path / "alerts.sqlite", "--shards", "2")
    assert (status, answer["first_bad"]) == (0, [commits[2]]), answer
    assert [one["commit"] for one in answer["measured"]].count(commits[0]) >= 2  # each measures both ends
    assert not list((project.root / ".asv" / "env").glob("bisect*"))


@pytest.mark.thorough
def test_the_verb_does_not_believe_a_good_end_that_is_slow_here(slowed, tmp_path):
    """The range begins after the culprit."""
    project, commits = slowed
    # So large that one look at each end excludes it, however much a busy machine scatters.
    alert_of(tmp_path / "alerts.sqlite", commits, (3, 4), by=1e8)
    status, answer, note = bisected(project, tmp_path / "alerts.sqlite")
    assert (status, answer["first_bad"]) == (1, []), answer
    assert {one["commit"] for one in answer["measured"]} == {commits[3], commits[4]}
    figure = r"\d\.\d+×"
    assert re.match(
        rf"{commits[3][:8]} measures {figure} on this machine and {commits[4][:8]} {figure}, so they differ by .*, "
        "but the recorded change",
        note,
    )
    assert answer["sentence"] == note


def test_the_verb_measures_nothing_where_the_range_is_not_known(slowed, tmp_path):
    project, commits = slowed
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{project.root}", tmp_path / "clone"], check=True)
    clone = Project(tmp_path / "clone")
    (clone.root / "results").mkdir()
    alert_of(tmp_path / "alerts.sqlite", commits, (0, 4), unknown="shallow")
    status, answer, note = bisected(clone, tmp_path / "alerts.sqlite")
    assert (status, answer["measured"]) == (3, [])
    assert "`git fetch --unshallow` completes the clone" in note


@pytest.mark.thorough
def test_the_verb_reports_an_end_that_does_not_build(slowed, tmp_path):
    project, commits = slowed
    project.write("toy/product.py", "raise ImportError('no such thing')\n")
    broken = project.commit("Break it")
    # Today's tree defines the variants.
    project.git("checkout", "-q", commits[4])
    try:
        alert_of(tmp_path / "alerts.sqlite", [*commits, broken], (0, 5))
        status, answer, note = bisected(project, tmp_path / "alerts.sqlite")
    finally:
        project.git("checkout", "-q", "-B", "main", commits[4])
    assert status == 3, answer
    assert f"{broken[:8]} cannot be measured on this machine: " in note
