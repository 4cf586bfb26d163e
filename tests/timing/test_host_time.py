"""The host's time of a call, beside a GPU of which only clock and queue exist."""

import pytest
from made_suites import make_suite

from lockstep import Cost, grid
from lockstep.suite.variants import Family
from lockstep.timing.arms.bound_arms import Arm
from lockstep.timing.costs.host_time import CALLS, NO_HOST, HostTime
from lockstep.timing.costs.meter import EPOCHS, is_measured
from lockstep.timing.device import CpuDevice, DeviceLost
from lockstep.timing.epochs import Plan
from lockstep.timing.measure import Measurer

CALL_S = 3e-4

PLAN = Plan(rounds=2, min_epochs=2, max_epochs=2, warmup_s=0.0)
[CASE] = grid(M=4)
SUITE = make_suite(
    quick=(CASE,),
    draw=lambda new, M: {"x": new.normal(M, M, dtype="float32")},
    reference=lambda x: 2 * x.double(),
    cost=lambda M: Cost(M * M, 8 * M * M),
)


class Gpu:
    """What a host sees of a GPU: it works until a moment, and takes a number of launches; the next one waits.

    Host and GPU share a clock that moves only when the host is busy or waits.
    """

    def __init__(self, monkeypatch, queue=1000):
        monkeypatch.setattr("lockstep.timing.costs.host_time.perf_counter", lambda: self.now)
        self.queue = queue
        self.now = 0.0
        self.until = 0.0
        self.queued = 0
        self.spun = []

    def start(self, seconds):
        self.spun.append(seconds)
        self.until = self.now + seconds

    def busy(self):
        return self.now < self.until

    def wait(self):
        self.now = max(self.now, self.until)
        self.queued = 0

    def call(self, seconds=CALL_S, launches=1):
        """A call that keeps the host busy and launches kernels."""

        def launched():
            self.now += seconds
            for _ in range(launches):
                self.queued += 1
                if self.queued > self.queue:
                    self.wait()

        return launched


@pytest.fixture
def gpu(monkeypatch):
    return Gpu(monkeypatch)


def measured(gpu, calls, epochs=3, device=None):
    """Seconds of a call by arm, and the meter."""
    meter = HostTime(device or CpuDevice(), gpu)
    arms = [Arm(name, (one, one)) for name, one in calls.items()]
    for _ in range(epochs):
        meter.add(meter.epoch(arms, lambda stage, arm: None, None).numbers)
    return {name: meter.estimates(name) for name in calls}, meter


def test_it_is_the_time_of_the_calls_and_not_of_the_gpu(gpu):
    found, meter = measured(gpu, {"slow": gpu.call(2 * CALL_S), "fast": gpu.call()})
    assert found["slow"]["host"].value == pytest.approx(2 * CALL_S, rel=1e-9)
    assert found["fast"]["host"].value == pytest.approx(CALL_S, rel=1e-9)
    assert found["fast"]["host"].epochs == 3
    assert all(seconds > CALLS * CALL_S for seconds in gpu.spun), "the GPU outlasts each batch"
    assert meter.reason("fast") == ""


def test_slow_calls_come_in_short_batches_and_their_first_one_counts_nowhere(gpu):
    slow, first = gpu.call(1.5e-3), []

    def loads():
        first.append(None)
        return slow() if len(first) > 1 else gpu.call(1.0)()

    found, _ = measured(gpu, {"slow": loads}, epochs=1)
    assert found["slow"]["host"].value == pytest.approx(1.5e-3, rel=1e-9)
    assert max(gpu.spun) == pytest.approx(1.5 * 6 * 1.5e-3), "six calls a batch"


def test_other_work_on_the_host_adds_nothing_where_it_spares_one_batch(gpu):
    spared, calls = {32 * 3 + 8, 32 * 11 + 8, 32 * 17 + 8}, []  # the first eight calls tell about how long one takes

    def disturbed():
        calls.append(None)
        inside = any(first < len(calls) <= first + 32 for first in spared)
        gpu.call(1e-4 if inside else 1.3e-4)()

    found, _ = measured(gpu, {"disturbed": disturbed})
    assert found["disturbed"]["host"].value == pytest.approx(1e-4, rel=1e-9)


def test_a_full_queue_shortens_the_batch(monkeypatch):
    gpu = Gpu(monkeypatch, queue=60)
    found, _ = measured(gpu, {"many": gpu.call(launches=5)}, epochs=1)
    assert found["many"]["host"].value == pytest.approx(CALL_S, rel=1e-9), "12 calls fill the queue, 32 were tried"


def test_a_call_that_waits_for_the_gpu_has_no_host_time(gpu):
    def waits():
        gpu.call()()
        gpu.wait()

    found, meter = measured(gpu, {"waits": waits, "other": gpu.call()})
    assert found["waits"] == {}
    assert meter.reason("waits") == "a call waits for the GPU, or launches more work than the GPU's queue holds"
    assert found["other"]["host"].epochs == 3


def test_what_raises_outside_a_graph_is_told_and_a_broken_device_ends_the_process(gpu):
    def raises():
        raise RuntimeError("no such thing")

    found, meter = measured(gpu, {"raises": raises})
    assert (found["raises"], meter.reason("raises")) == ({}, "RuntimeError: no such thing")

    class Broken(CpuDevice):
        def healthy(self):
            return False

    with pytest.raises(DeviceLost, match="no such thing"):
        measured(gpu, {"raises": raises}, device=Broken())


def test_five_epochs_of_a_history_are_measured():
    assert [epoch for epoch in range(9) if is_measured(epoch, 9)] == [0, 2, 4, 6, 8]
    assert EPOCHS == 5
    assert all(is_measured(epoch, 4) for epoch in range(4))


def test_a_cpu_has_none_and_says_why():
    measurer = Measurer(CpuDevice(), PLAN, 1, load=lambda suite: Family({"plain": lambda x: 2 * x}, {}))
    [record] = measurer.measure(SUITE, CASE, "warm", ("plain",), costs=["host"])
    assert (record.state, record.costs) == ("ok", {})
    assert f"no host: {NO_HOST}" in record.note
