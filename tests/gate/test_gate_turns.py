"""Workers that take turns: how many epochs a case gets, and what is made of them."""

import math
import random
import time
from types import SimpleNamespace

from lockstep.gate.sequential import LOOKS, Test
from lockstep.gate.turns import Turns
from lockstep.gate.verdict import Group

GROUP = Group("product", "M=1", "warm", ("plain",))
TESTS = {key: Test(min_effect=0.01, alpha=0.05, cases=1) for key in GROUP.cases()}


class Workers(Turns):
    """Workers that are started at no cost; a call takes them as long as ``seconds`` says of their tree."""

    def __init__(self, seconds):
        super().__init__(SimpleNamespace(seed=1), 1.0, time.monotonic() + 60)
        self.asked, self._seconds = [], seconds

    def _worker(self, name):
        def time_alone(asked):
            self.asked.append(asked)
            return {"plain": {"outcome": "", "seconds": self._seconds(name), "rotations": 2}}

        return SimpleNamespace(time_alone=time_alone)


def test_an_undecided_case_gets_every_look():
    draw = random.Random(3)
    # Noise on either side of the least change that counts between two processes.
    turns = Workers(lambda name: math.exp(draw.gauss(0.06, 0.3)) if name == "head" else 1.0)
    [verdict] = turns.judge([GROUP], TESTS)
    assert (verdict.outcome, verdict.reason) == ("unsure", "undecided")
    assert verdict.epochs == LOOKS[-1]


def test_a_clear_change_is_found_again_by_new_workers():
    draw = random.Random(3)
    turns = Workers(lambda name: math.exp(draw.gauss(math.log(1.5) * (name == "head"), 0.001)))
    [verdict] = turns.judge([GROUP], TESTS)
    assert (verdict.outcome, verdict.confirmed) == ("slower", True)
    # The first epoch of each round warms up, and every epoch asks three workers.
    assert verdict.epochs == 2 * LOOKS[0]
    assert len(turns.asked) == 3 * (2 * LOOKS[0] + 2)
