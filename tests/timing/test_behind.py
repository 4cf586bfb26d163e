"""Calls behind a fixed kernel, on a device whose every second a test decides: what a chain of calls hides."""

import pytest
import torch
from fakes import FakeDevice, steady_controls
from made_suites import make_suite

from lockstep import Cost, grid
from lockstep.record.model import TWIN
from lockstep.suite.variants import Family
from lockstep.timing.arms.bound_arms import Arm, BoundCall
from lockstep.timing.costs import behind
from lockstep.timing.device import CpuDevice, DeviceLost
from lockstep.timing.epochs import Plan
from lockstep.timing.graph_capture import CaptureError
from lockstep.timing.measure import Measurer
from lockstep.timing.rules.changed_shared_code import Trusted

[CASE] = grid(M=4)
SUITE = make_suite(
    family="chained",
    quick=(CASE,),
    draw=lambda new, M: {"x": new.normal(M, M, dtype="float32")},
    reference=lambda x: 2 * x.double(),
    cost=lambda M: Cost(M * M, 8 * M * M),
)
PLAN = Plan(rounds=4, min_epochs=4, max_epochs=4, warmup_s=0.0)

#: Seconds of a call of each variant behind another kernel, and of the fixed kernel.
CALL_S, KERNEL_S = 8e-6, 2e-6


class Stream(FakeDevice):
    """Knows the kernel ahead of a call."""

    ahead = ""

    def ran(self, name, seconds):
        self.ahead = name
        self.spend(seconds)


def family(device):
    """``chained`` takes half its time behind itself, as a kernel does that starts before the one ahead of it ends."""

    def plain(x):
        device.ran("plain", CALL_S)
        return 2 * x

    def chained(x):
        device.ran("chained", CALL_S / 2 if device.ahead == "chained" else CALL_S)
        return 2 * x

    return Family({"plain": plain, "chained": chained}, {})


def measured(costs, twins=()):
    device = Stream()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(behind, "fixed_kernel", lambda source, target: (device.ran("kernel", KERNEL_S), target)[1])
        return measured_on(device, costs, twins)


def measured_on(device, costs, twins):
    measurer = Measurer(device, PLAN, 1, load=lambda suite: family(device), _controls=steady_controls(device))
    records = measurer.measure(SUITE, CASE, "warm", ("plain", "chained"), twins=twins, costs=costs)
    assert {record.state for record in records} == {"ok"}
    return {record.variant: record for record in records}, measurer.stages.take()


@pytest.fixture(scope="module")
def told():
    return measured(["behind"], twins=["chained"])


def test_a_gain_behind_itself_alone_is_none_behind_another_kernel(told):
    chained = told[0]["chained"]
    assert chained.speedup.value == pytest.approx(2.0, rel=0.01), "but for the first call of a replay"
    assert chained.costs["behind_speedup"].value == pytest.approx(1.0, abs=1e-9)
    assert chained.costs["behind"].value == pytest.approx(CALL_S, rel=1e-9), "less the kernel ahead of it"


def test_the_baseline_has_a_time_and_the_ratio_one(told):
    plain = told[0]["plain"]
    assert plain.costs["behind"].value == pytest.approx(CALL_S, rel=1e-9)
    assert (plain.costs["behind_speedup"].value, plain.costs["behind"].epochs) == (1.0, 4)


def test_a_twin_is_compared_with_its_variant(told):
    assert told[0]["chained" + TWIN].costs["behind_speedup"].value == pytest.approx(1.0, abs=1e-9)


def test_its_time_is_told_as_a_stage_of_its_own(told):
    assert told[1]["behind"] > 0.0


def test_nobody_pays_for_what_nobody_asked(told):
    records, stages = measured([], twins=["chained"])
    assert {name: record.costs for name, record in records.items()} == {name: {} for name in told[0]}
    assert "behind" not in stages
    latencies = [{name: record.latency for name, record in one.items()} for one in (records, told[0])]
    assert latencies[0] == latencies[1], "costs change no latency"


def test_a_real_cpu_runs_real_calls_behind_a_real_copy():
    def plain(x):
        return 2 * x

    measurer = Measurer(CpuDevice(), PLAN, 1, load=lambda suite: Family({"plain": plain, "again": plain}, {}))
    records = measurer.measure(SUITE, CASE, "warm", ("plain", "again"), costs=["behind"])
    for record in records:
        # On a busy machine the copies alone may take longer than copies and calls. Such a round gives an arm no time.
        assert ("behind" in record.costs) != ("no behind: no more than" in record.note)
        assert set(record.costs) <= {"behind", "behind_speedup"}
    # A speedup needs a round that gives both arms a time: arms may have times of different rounds of one epoch.
    if not all("behind_speedup" in record.costs for record in records):
        pytest.skip("too busy to tell: no round of both arms took longer than its copies")
    assert records[0].costs["behind_speedup"].value == 1.0, "of the baseline"


class Broken(CpuDevice):
    """Breaks when it captures a graph of fixed kernels alone, as it does after a call that wrote elsewhere."""

    def capture(self, calls, pool):
        raise CaptureError("an illegal memory access was encountered")

    def healthy(self):
        return False


def test_what_broke_the_device_before_the_kernel_ran_is_not_known():
    meter = behind.Behind(Broken(), PLAN.pace, Trusted())
    arm = Arm("plain", (BoundCall(lambda: None, {}),))
    with pytest.raises(DeviceLost) as lost:
        meter.epoch([arm], lambda stage, arm: None, None)
    assert lost.value.variant == "", "the recorder tries the variants one by one"


def test_the_fixed_kernel_reads_memory_alone_and_ahead_of_a_call(monkeypatch):
    device, read = Stream(cache_bytes=4 * behind.COPIED), []

    def kernel(source, target):
        read.append(source.data_ptr())
        device.ran("kernel", KERNEL_S)
        return target

    monkeypatch.setattr(behind, "fixed_kernel", kernel)
    meter = behind.Behind(device, PLAN.pace, Trusted())
    call = BoundCall(family(device).variants["plain"], {"x": torch.ones(1)})
    meter.epoch([Arm("plain", (call,))], lambda stage, arm: None, None)
    assert len(set(read)) == 4, "buffers of twice the cache: each has a source and a target"
    assert read[:8] == 2 * read[:4], "one after another"
    assert read[-8:] == 2 * read[-4:]
