"""A head that is right only in its check, or changes base, fails in the gate."""

import sys

import pytest
from fakes import FakeDevice, steady_controls
from made_suites import changed_suite, make_suite

from lockstep import Cost, grid
from lockstep.gate.measuring.comparer import Comparer
from lockstep.gate.model import Group, GroupRequest
from lockstep.gate.namespaces import Sides
from lockstep.gate.sequential_decision import Test
from lockstep.timing.rounds import Pace

[CASE] = grid(M=6)
SUITE = make_suite(
    family="work",
    module="fooled.work",
    quick=(CASE,),
    draw=lambda new, M: {"x": new.normal(M, M, dtype="float32")},
    buffers=lambda new, M: new.empty(M, M, dtype="float32"),
    reference=lambda x: 2 * x.double(),
    cost=lambda M: Cost(M * M, 8 * M * M),
)

HONEST = """
import torch

def plain(x, *, out):
    return torch.add(x, x, out=out)

VARIANTS = {"plain": plain}
"""

REMEMBERS = """
import torch

seen = set()

def plain(x, *, out):
    if (x.data_ptr(), out.data_ptr()) not in seen:
        seen.add((x.data_ptr(), out.data_ptr()))
        torch.add(x, x, out=out)
    return out

VARIANTS = {"plain": plain}
"""

WRITES = """
import torch

calls = []

def plain(x, *, out):
    torch.add(x, x, out=out)
    calls.append(1)
    if len(calls) > 1:
        x.zero_()
    return out

VARIANTS = {"plain": plain}
"""

CHANGES_BASE = """
import gc
import torch

calls = []

def slow(x, *, out):
    torch.add(x, x, out=out)
    return torch.add(x, x, out=out)

def plain(x, *, out):
    calls.append(1)
    if len(calls) == 2:
        for one in gc.get_objects():
            if type(one) is type(plain) and one.__module__ == "fooled.work" and one.__name__ == "plain":
                if one is not plain and not one.__code__.co_freevars:
                    one.__code__ = slow.__code__
    return torch.add(x, x, out=out)

VARIANTS = {"plain": plain}
"""


class Ticking(FakeDevice):
    """Every replay takes a tick."""

    def time(self, replays):
        return super().time([lambda replay=replay: (replay(), self.spend(1e-3)) for replay in replays])


@pytest.fixture
def judge(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())

    def of(base, head, suite=SUITE):
        for side, text in (("base", base), ("head", head)):
            folder = tmp_path / side / "fooled"
            folder.mkdir(parents=True)
            (folder / "__init__.py").touch()
            (folder / "work.py").write_text(text)
        device = Ticking()
        sides = Sides(["fooled"], base=tmp_path / "base", head=tmp_path / "head")
        comparer = Comparer(sides, device, Pace(1e-3, 4, 0.25, 0.0), 1, lambda *_: None)
        comparer._controls = steady_controls(device)
        for side in ("base", "head"):
            assert not comparer.families.load(suite, side).error
        group = Group("work", CASE.label, "warm", ("plain",))
        [verdict] = comparer.judge([(suite, GroupRequest(group, {"plain": Test(0.01, 0.05, 1, 0.1)}))], 60.0)
        return verdict

    yield of
    for name in [name for name in sys.modules if name.split(".")[0] == "fooled"]:
        del sys.modules[name]


def test_unchanged_honest_code_is_the_same(judge):
    assert judge(HONEST, HONEST).outcome == "same"


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (REMEMBERS, "cannot be timed: timed-result: timed, and wrong on other values: "),
        (WRITES, "cannot be timed: written-input: plain wrote into its input x"),
        (CHANGES_BASE, "cannot be timed: changed-baseline: replaced the code of plain"),
    ],
)
def test_a_head_that_cheats_fails_and_the_rule_is_named(judge, head, reason):
    verdict = judge(HONEST, head)
    assert verdict.outcome == "failed"
    assert verdict.reason.startswith(reason)


def test_a_cheat_in_base_is_no_verdict_on_head(judge):
    verdict = judge(REMEMBERS, HONEST)
    assert verdict.outcome == "unsure"
    assert verdict.reason.startswith("base cannot be timed: timed-result: ")


STEPS = """
import torch

def plain(x, state):
    state.add_(x)
    return x + x

VARIANTS = {"plain": plain}
"""


@pytest.mark.parametrize("in_place", [False, True])
def test_a_head_that_drops_a_store_fails_although_its_output_is_right(judge, in_place):
    def reference(x, state):
        if in_place:
            state.add_(x)
        return 2 * x.double()

    suite = changed_suite(
        SUITE,
        inout=("state",),
        buffers=lambda new: None,
        draw=lambda new, M: {"x": new.normal(M, M, dtype="float32"), "state": new.normal(M, M, dtype="float32")},
        reference=reference,
    )
    verdict = judge(STEPS, STEPS.replace("state.add_(x)", "pass"), suite)
    assert (verdict.outcome, verdict.in_base) == ("failed", False)
    assert verdict.reason.startswith("WrongResult: plain did not write its input state, which is off by ")
