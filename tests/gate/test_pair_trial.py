"""Pairs of measurements decide a case as epochs do."""

import math

from lockstep.gate.case_verdict import Measured, Trial
from lockstep.gate.model import SeriesKey
from lockstep.gate.sequential_decision import Test

KEY = SeriesKey("product", "twice", "M=2,K=1024,N=512", "warm")


def judged(*changes, test=Test(0.01, 0.01, 4, 0.1)):  # noqa: B008 — frozen
    trial = Trial(test, "pairs of processes")
    for number, change in enumerate(changes):
        if trial.over:
            break
        trial.add(Measured(1e-6, 1e-6 * math.exp(change + 1e-4 * (-1) ** number)))
    return trial.verdict(KEY)


def test_pairs_decide_as_epochs_do():
    same = judged(*[0.0] * 4)
    assert (same.outcome, same.epochs) == ("same", 4)
    slower = judged(*[0.05] * 8)
    assert (slower.outcome, slower.confirmed, slower.epochs) == ("slower", True, 8)
    assert slower.change.low > 0.01
    faster = judged(*[-0.05] * 8)
    assert (faster.outcome, faster.confirmed) == ("faster", True)
    once = judged(*[0.05] * 4, *[0.0] * 4)
    assert once.outcome == "same", "a second pass does not find it"
    both = judged(*[0.05] * 4, *[-0.05] * 4)
    assert (both.outcome, both.reason) == ("unsure", "+5.13% in a first pass, -4.88% in the second")
    early = judged(*[0.05] * 5)
    assert (early.outcome, "not confirmed by a second: out of time" in early.reason) == ("unsure", True)
    assert judged().reason == "the budget did not reach it"
    noisy = judged(*[0.3, -0.3] * 20)
    assert noisy.outcome == "unsure"
    assert "too noisy" in noisy.reason
