"""Which cases get the next epochs: each is looked at once, then what looks slower, then what is known least."""

import time
from types import SimpleNamespace

import pytest

from lockstep.gate.case_verdict import MOST_VOID, Measured, Trial
from lockstep.gate.measuring.schedule import Bench, Scatter, Schedule
from lockstep.gate.model import Group, GroupRequest, Verdict
from lockstep.gate.sequential_decision import LOOKS, Test

#: How many times as long as base head takes, by shape.
FACTORS = {"same": 1.0, "close": 1.009, "slower": 1.05, "worst": 1.4, "faster": 0.9}


def group(case):
    return Group("linear", case, "cold", ("plain",))


@pytest.fixture
def shop():
    """Benches of one case for each shape, whose epochs are noted."""
    run = []

    def prepare(suite, request):
        [key] = request.group.cases()
        if key.case == "refused":
            yield Verdict(key, "na", "not here")
            return
        yield Bench(suite, None, request.group, 1, {}, {key: Trial(Test(0.01, 0.01, len(FACTORS)))})

    def epoch(bench, keys):
        [key] = keys
        run.append(key.case)
        noise = 1e-4 * (-1) ** run.count(key.case)
        bench.trials[key].add(Measured(1e-5, 1e-5 * (FACTORS[key.case] + noise)), moved="")

    told = []
    schedule = Schedule(prepare, epoch, Scatter(), told.append)

    def judge(cases, seconds=60.0):
        asked = [(None, GroupRequest(group(case), {})) for case in cases]
        return {verdict.key.case: verdict for verdict in schedule.run(asked, time.monotonic() + seconds)}

    return SimpleNamespace(judge=judge, run=run, told=told, schedule=schedule)


def test_every_case_is_looked_at_before_one_is_looked_at_again_and_the_worst_is_confirmed_first(shop):
    found = shop.judge(["same", "refused", "slower", "faster", "worst", "close"])
    outcomes = {case: verdict.outcome for case, verdict in found.items()}
    assert outcomes == {
        "same": "same", "refused": "na", "slower": "slower", "worst": "slower", "faster": "faster", "close": "same",
    }  # fmt: skip
    assert shop.run[:5] == ["same", "slower", "faster", "worst", "close"]
    confirmed = 2 * LOOKS[0] - 1
    assert shop.run[5 : 5 + confirmed] == ["worst"] * confirmed
    assert shop.run[5 + confirmed : 5 + 2 * confirmed] == ["slower"] * confirmed
    assert [line.split(" s: ")[1] for line in shop.told] == ["2 look slower"]
    assert found["slower"].confirmed


def test_a_case_that_nobody_reached_has_no_verdict_and_one_epoch_excludes_what_others_scatter(shop):
    assert shop.judge(["close"], seconds=0.0) == {}
    shop.judge(["same"])
    [key] = group("close").cases()
    trial = Trial(Test(0.01, 0.01, 5))
    trial.add(Measured(1e-5, 1.002e-5))
    assert trial.verdict(key).excluded is None
    verdict = trial.verdict(key, shop.schedule.scatter.of(key))
    assert (verdict.outcome, verdict.reason) == ("unsure", "out of time after 1 epoch")
    assert 0.002 < verdict.excluded < 0.01


def test_epochs_in_which_a_control_moved_do_not_count_until_too_many_did():
    [key] = group("same").cases()
    bench = Bench(None, None, group("same"), 1, {}, {key: Trial(Test(0.01, 0.01, 1))})
    for _ in range(MOST_VOID + 2):
        bench.trials[key].add(Measured(1e-5, 1e-5), "control copy moved by 20 %")
    trial = bench.trials[key]
    assert (trial.count, trial.voided, trial.moved) == (2, MOST_VOID, MOST_VOID + 2)
