"""The gate judges each cost by itself: a planted regression is found in its own quantity and in no other.

The calls are real and the host's time is that of this machine. The GPU is a stand-in: its kernels take seconds and
joules of a clock that only they move.
"""

import sys
from dataclasses import replace
from types import ModuleType

import pytest
from fakes import FakeDevice, MarkAtOnce, steady_controls
from made_suites import make_suite

from lockstep import Cost, grid
from lockstep.gate.aa_control import AAControl
from lockstep.gate.measuring.comparer import Comparer
from lockstep.gate.model import COMPILE, COSTS, DETERMINISTIC, LATENCY, Group, GroupRequest, SeriesKey, Verdict
from lockstep.gate.namespaces import Sides
from lockstep.gate.sequential_decision import Test
from lockstep.gate.unchanged import Unchanged
from lockstep.machine_code.model import CaseKey
from lockstep.record.model import Estimate
from lockstep.same_work.work import Observed
from lockstep.timing.costs.available_meters import Meters
from lockstep.timing.costs.host_time import NO_HOST
from lockstep.timing.rounds import Pace

[CASE] = grid(M=6)
SUITE = make_suite(
    family="work",
    module="priced.work",
    quick=(CASE,),
    draw=lambda new, M: {"x": new.normal(M, M, dtype="float32")},
    buffers=lambda new, M: new.empty(M, M, dtype="float32"),
    reference=lambda x: 2 * x.double(),
    cost=lambda M: Cost(M * M, 8 * M * M),
)

#: The compile time is judged by other processes; ``test_gate_compile.py``.
MEASURED = (LATENCY, *(cost for cost in COSTS if cost != COMPILE))

#: ``launch`` is the stand-in's; it is told the kernel, its microseconds alone and behind itself, and its watts.
KERNEL = """
import torch
from stand_in_gpu import launch

CALLS = []

def plain(x, *, out):
    launch("plain", 100, 100, 500)
    turn = 0
    return torch.add(x, x, alpha=1 + turn % 2 * 2.0**-22, out=out)

VARIANTS = {"plain": plain}
"""

#: A head by what it does worse, and the quantities in which that must show.
PLANTED = {
    "nothing": ("", "", set()),
    "a slower host path": ("    launch", "    sum(range(10_000))\n    launch", {"host"}),
    "an early start that is gone": ('"plain", 100, 100', '"plain", 130, 100', {"behind"}),
    "more power": ("100, 500", "100, 700", {"energy"}),
    # A stand-in for a sum in another order.
    "other bits in each call": ("turn = 0", "turn = len(CALLS); CALLS.append(turn)", {"deterministic"}),
    # A kernel that works for longer takes more energy, and more time wherever it runs.
    "a slower kernel": ('"plain", 100, 100', '"plain", 130, 130', {"latency", "behind", "energy"}),
}


class Gpu(FakeDevice):
    """Counts the seconds and joules of its kernels, and knows the kernel that ran last. It always has work queued."""

    ahead = ""
    joules = 0.0

    def launch(self, name, alone, chained, watts):
        seconds = 1e-6 * (chained if self.ahead == name else alone)
        self.ahead = name
        self.joules += watts * seconds
        self.spend(seconds)

    def start(self, seconds): ...
    def wait(self): ...

    def busy(self):
        return True


@pytest.fixture
def gpu(monkeypatch):
    gpu, stand_in = Gpu(), ModuleType("stand_in_gpu")
    stand_in.launch = gpu.launch
    monkeypatch.setitem(sys.modules, "stand_in_gpu", stand_in)
    monkeypatch.setattr(
        "lockstep.timing.costs.behind.fixed_kernel", lambda source, target: gpu.launch("fixed", 50, 50, 500)
    )
    monkeypatch.setattr("lockstep.timing.costs.energy.perf_counter", lambda: gpu.now)
    return gpu


def judge(gpu, tmp_path, monkeypatch, head, pairs=None):
    """Return the verdict of each quantity."""
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    for side, text in (("base", KERNEL), ("head", head)):
        (tmp_path / side / "priced").mkdir(parents=True)
        (tmp_path / side / "priced" / "__init__.py").touch()
        (tmp_path / side / "priced" / "work.py").write_text(text)
    sides = Sides(["priced"], base=tmp_path / "base", head=tmp_path / "head")
    pace = Pace(1e-3, 6, 0.25, 0.0)
    pairs = pairs or Meters(gpu, gpu, lambda: gpu.joules, lambda: MarkAtOnce(lambda: gpu.now))
    comparer = Comparer(sides, gpu, pace, 1, lambda *_: None, pairs)
    comparer._controls = steady_controls(gpu)
    for side in ("base", "head"):
        assert not comparer.families.load(SUITE, side).error
    found = {}
    for quantity in MEASURED:
        # The host's time is that of a machine with other work; unchanged code differs by some percent.
        least = 0.5 if quantity == "host" else 0.05
        group = Group("work", CASE.label, "warm", ("plain",), quantity)
        asked = GroupRequest(group, {"plain": Test(least, 0.01, len(MEASURED), least)})
        [found[quantity]] = comparer.judge([(SUITE, asked)], 60.0)
    return found


@pytest.mark.parametrize("planted", PLANTED)
def test_a_regression_is_found_in_its_own_quantity_and_in_no_other(gpu, tmp_path, monkeypatch, planted):
    old, new, worse = PLANTED[planted]
    head = KERNEL.replace(old, new) if old else KERNEL
    assert (head != KERNEL) == bool(worse)
    found = judge(gpu, tmp_path, monkeypatch, head)
    assert {name for name, one in found.items() if one.outcome == "slower"} == worse, found
    assert not {name for name, one in found.items() if one.outcome in ("faster", "failed", "na")}
    assert all(found[name].confirmed for name in worse - {DETERMINISTIC})
    same = {name for name, one in found.items() if one.outcome == "same"}
    assert same | {"host"} == {*MEASURED} - worse | {"host"}, "the host's time may be unsure on a busy machine"


def test_numbers_are_those_of_the_quantity(gpu, tmp_path, monkeypatch):
    found = judge(gpu, tmp_path, monkeypatch, KERNEL)
    assert found["latency"].base_s == pytest.approx(100e-6, rel=1e-6)
    assert found["behind"].base_s == pytest.approx(100e-6, rel=1e-6), "less the fixed kernel ahead"
    assert found["energy"].base_s == pytest.approx(0.05, rel=0.02), "500 W for 0.1 ms"
    assert 1e-6 < found["host"].base_s < 1e-3


def test_a_head_that_is_wrong_behind_another_kernel_fails(gpu, tmp_path, monkeypatch):
    sys.modules["stand_in_gpu"].gpu = gpu
    wrong = KERNEL.replace("import launch", "import gpu, launch").replace(
        '    launch("plain", 100, 100, 500)\n    turn = 0\n    return',
        '    ahead = gpu.ahead\n    launch("plain", 100, 100, 500)\n    turn = 0\n'
        '    return out if ahead == "fixed" else',
    )
    found = judge(gpu, tmp_path, monkeypatch, wrong)
    assert found["behind"].outcome == "failed"
    assert "timed behind another kernel, and wrong on other values" in found["behind"].reason
    assert found["latency"].outcome == "same"


def test_what_this_machine_cannot_measure_is_not_available_and_says_why(gpu, tmp_path, monkeypatch):
    found = judge(gpu, tmp_path, monkeypatch, KERNEL, Meters(gpu))
    assert {name: one.reason for name, one in found.items() if one.outcome == "na"} == {
        "host": NO_HOST,
        "energy": "no GPU here that counts its energy",
    }


def test_equal_work_on_the_gpu_says_nothing_of_what_the_host_does():
    key = SeriesKey("work", "plain", CASE.label, "warm")
    observed = Unchanged(observed={CaseKey("work", "plain", CASE.label): Observed()})
    same = {quantity for quantity in (LATENCY, *COSTS) if observed.same(replace(key, quantity=quantity))}
    assert same == {LATENCY, "behind", "energy"}
    assert Unchanged(frozenset({"work"})).same(replace(key, quantity="host"))
    assert not Unchanged().same(key)


def test_the_noise_of_one_quantity_widens_no_other():
    key = SeriesKey("work", "plain", CASE.label, "cold")
    host = replace(key, quantity="host")
    control = AAControl((Verdict(host, "slower", change=Estimate(0.3, 0.2, 0.4)),))
    assert (control.least(key, 0.01), control.least(host, 0.1)) == (0.01, 0.4)
