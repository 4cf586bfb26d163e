"""The first bad commit is found in about log₂ steps, and what cannot be found is said."""

import json
import math
import re

import pytest
from alerting import step
from hypothesis import given
from hypothesis import strategies as st
from project import KERNELS, make_project

from dashboard.alerts.attribution import attribute
from dashboard.alerts.bisection import Measurement, NotReproduced, bisect
from dashboard.alerts.database import Database
from dashboard.alerts.grouping import Told, group
from dashboard.alerts.steps import Facts, SeriesName
from dashboard.alerts.store import AlertStore
from dashboard.alerts.sync import Seen

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


@given(length=st.integers(1, 200), data=st.data(), by=st.sampled_from([0.02, 0.5, -0.3]))
def test_the_first_bad_commit_in_log2_steps(length, data, by):
    first_bad = data.draw(st.integers(1, length))
    commits, measure, asked = history(length, first_bad, by)
    found = bisect("0", commits, measure, math.log1p(by))
    assert found.suspects == (str(first_bad),)
    assert len(asked) == len(set(asked)) <= 2 + math.ceil(math.log2(length)) + 1


@given(length=st.integers(2, 40), data=st.data())
def test_commits_that_cannot_be_measured_are_named_as_suspects(length, data):
    first_bad = data.draw(st.integers(1, length))
    broken = data.draw(st.sets(st.integers(1, length - 1)))
    commits, measure, _ = history(length, first_bad, 0.1, broken)
    suspects = [int(one) for one in bisect("0", commits, measure, math.log1p(0.1)).suspects]
    assert first_bad in suspects
    assert all(one in broken for one in suspects[:-1])
    assert suspects[-1] not in broken


def test_a_commit_that_cannot_be_told_is_measured_again():
    looks = iter([(0.07, 0.0, 0.1), (0.03, 0.0, 0.1), (0.03, 0.0, 0.1)])

    def measure(commit):
        return Measurement(
            commit, *(next(looks) if commit == "1" else (0.0, 0.0, 0.0) if commit == "0" else (0.1, 0.1, 0.1))
        )

    found = bisect("0", ["1", "2"], measure, 0.1)
    assert found.suspects == ("2",)
    assert [one.commit for one in found.measured] == ["0", "2", "1", "1", "1"]
    # As good as bad, however wide its interval; and between the two, but known well enough.
    for clear, suspect in (((0.09, -0.1, 0.2), "1"), ((0.03, 0.02, 0.04), "2")):
        looks = iter([clear])
        found = bisect("0", ["1", "2"], measure, 0.1)
        assert (found.suspects, len(found.measured)) == ((suspect,), 3)


def test_what_does_not_show_here_is_not_searched():
    commits, measure, asked = history(20, 5, 0.01)
    with pytest.raises(NotReproduced, match=r"20 is \+1.0% against 0 here, and \+10.0% in the history"):
        bisect("0", commits, measure, math.log1p(0.1))
    assert asked == [0, 20]
    for end in (0, 20):
        commits, measure, _ = history(20, 5, 0.1, broken={end})
        with pytest.raises(NotReproduced, match=f"^{end} cannot be measured here: does not build"):
            bisect("0", commits, measure, math.log1p(0.1))


#: ``twice`` takes three milliseconds more, dozens of times what it took.
SLOW = KERNELS.replace("def twice(x, weight, *, out):", "def twice(x, weight, *, out):\n        time.sleep(0.003)")


def test_the_verb_names_the_commit_of_a_project(tmp_path):
    assert SLOW != KERNELS
    project = make_project(tmp_path / "project")
    commits = [project.git("rev-parse", "HEAD")]
    for number, kernels in enumerate([KERNELS + "\n    # a comment\n", SLOW]):
        project.write("toy/product.py", kernels)
        commits.append(project.commit(f"Change {number}"))
    state = tmp_path / "alerts.sqlite"
    name = SeriesName("here", "product", "product", "twice", M2, "warm", "speedup")
    ends = {"before": Facts(commits[0]), "after": Facts(commits[2]), "good": commits[0]}
    planted = step(by=2.0, name=name, between=tuple(commits[1:]), **ends)
    AlertStore(Database(state)).sync(Seen(group([Told(planted, attribute(planted))]), {"here": commits}))

    done = project.lockstep("bisect", "1", "--state", str(state), "--quick", "--json")
    assert done.returncode == 0, done.stdout
    [answer] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert answer["first_bad"] == [commits[2]], answer
    # On a busy machine the one in the middle may take a second look.
    assert list(dict.fromkeys(one["commit"] for one in answer["measured"])) == [commits[0], commits[2], commits[1]]
    [*_, line] = AlertStore(Database(state)).log(1)
    assert line.what == "bisected"
    assert re.match(rf"the first bad commit is {commits[2]} ", line.note)
    assert project.git("status", "--porcelain") == ""
