"""Ten problems of KernelBench's kind: each solution, honest or not, gets the verdict that it deserves."""

import pytest
from kernelbench_problems import CHEATS, CORRECT, TASKS, WRONG
from lockstep.referee.bench import PLANS, Bench, open_problem

from lockstep.referee.problem_definition import ProblemDefinition, Submission
from lockstep.referee.verdict import Outcome, Verdict, fault
from lockstep.timing.device import CpuDevice
from lockstep.timing.interleave import QUICK


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """The bench of a task, opened once."""
    made = {}

    def of(task):
        if task not in made:
            folder = tmp_path_factory.mktemp("task")
            (folder / f"{task.name}.py").write_text(task.problem())
            source = ProblemDefinition("kernelbench", str(folder / f"{task.name}.py"))
            made[task] = Bench(open_problem(source, CpuDevice()), CpuDevice()), folder
        return made[task]

    return of


@pytest.mark.parametrize(
    ("task", "name"),
    [pytest.param(task, name, id=f"{task.name}-{name}") for task in TASKS for name in task.solutions],
)
def test_a_solution_gets_the_verdict_that_it_deserves(bench, task, name, monkeypatch):
    monkeypatch.setitem(PLANS, "screen", QUICK)
    one, folder = bench(task)
    path = folder / f"{name.replace(' ', '_')}.py"
    path.write_text(task.solution(name))
    records = one.measure(Submission(name, str(path)), None, "screen", 11)
    found = fault([record for record in records if record.variant == name])
    outcome = Verdict("", "", Outcome.BROKEN).failed(*found).outcome if found else CORRECT
    assert outcome == task.solutions[name][1], found


def test_each_problem_has_honest_and_dishonest_solutions():
    assert len(TASKS) == 10
    for task in TASKS:
        verdicts = {verdict for _, verdict in task.solutions.values()}
        assert CORRECT in verdicts
        assert verdicts & {WRONG, CHEATS}
    assert sum(CHEATS in {verdict for _, verdict in task.solutions.values()} for task in TASKS) >= 7
