"""The real judge, its sandbox included: no exploit is faster, and no honest candidate is accused."""

import judging
import pytest
from programs import PROGRAMS

from lockstep.referee import sandbox

#: Judged always: what isolation alone finds.
ALWAYS = ("wakes itself",)


def bad(judged):
    """The lines whose verdict is not as it must be."""
    return [judging.line(one) for one in judged if judging.opinion(one[1], one[2]["outcome"])]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.thorough) for name in PROGRAMS]
)
def test_a_problem_that_once_had_a_wrong_verdict(name, tmp_path):
    judged = list(judging.judge_programs(tmp_path, [name]))
    assert bad(judged) == []
    if name == "wakes itself" and not sandbox.missing():
        assert judged[0][2]["rule"] == "out-of-turn"


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_ten_problems_of_kernelbench(tmp_path):
    assert bad(judging.judge_kernelbench(tmp_path)) == []


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("suite", judging.variants())
def test_exploits_of_suites(suite, tmp_path):
    assert bad(judging.judge_exploits(tmp_path, [suite])) == []


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_variant_of_a_named_suite_is_a_candidate(tmp_path):
    [product, nothing] = judging.judge_exploits(tmp_path, ["on_import"])
    assert bad([product, nothing]) == []
    assert nothing[2]["outcome"] == "wrong"


def test_every_exploit_is_found():
    assert sum(map(len, judging.variants().values())) > 90
    assert len(PROGRAMS) >= 15


@pytest.mark.parametrize(
    ("honest", "outcome", "told"),
    [
        (True, "faster", ""),
        (True, "broken", ""),
        (True, "cheats", "ACCUSED"),
        (True, "wrong", "ACCUSED"),
        (False, "faster", "PASSED"),
        (False, "not-faster", ""),
        (False, "cheats", ""),
    ],
)
def test_a_verdict_that_must_not_be_is_named(honest, outcome, told):
    assert judging.opinion(honest, outcome) == told
