"""Controls: what tells that the machine moved, and the machine's own ceilings."""

import itertools
import math

import pytest
import torch
from fakes import FakeDevice, scripted_controls, steady_controls

from lockstep.timing.controls import Control, Controls
from lockstep.timing.device import CpuDevice, Timing


def history(changes):
    """Controls whose copy changed by these log steps, from 1 s."""
    values = [math.exp(total) for total in itertools.accumulate(changes, initial=0.0)]
    return Controls((), {"copy": values})


def taking(seconds, mhz=math.nan):
    return {"copy": Timing(seconds, mhz)}


def test_a_taking_times_each_control_per_call_after_a_warm_up():
    device = FakeDevice()
    first = itertools.chain([9.0], itertools.repeat(2.0))
    controls = Controls((Control("copy", lambda: device.spend(next(first), 1234.0), 4, 8.0, "B/s"),))
    assert controls.take(device) == {"copy": Timing(0.5, 1234.0)}
    assert device.timed == [2]
    assert controls.history == {"copy": [0.5]}


def test_a_fifth_is_tolerated_until_the_noise_is_known():
    assert history([0.5, -0.5] * 4 + [0.5]).tolerance("copy") == 0.2
    assert history([]).tolerance("copy") == 0.2
    assert Controls(()).tolerance("copy") == 0.2


def test_then_six_robust_deviations_and_a_tenth_at_least():
    assert history([0.001, -0.001] * 5).tolerance("copy") == 0.1
    noisy = history([0.02, -0.02] * 5).tolerance("copy")
    assert noisy == pytest.approx(6 * 1.4826 * 0.02)
    # One jump says nothing of the noise.
    assert history([0.02, -0.02] * 5 + [1.0]).tolerance("copy") == pytest.approx(noisy)


def test_a_control_that_moved_is_named_with_its_change():
    calm = history([0.001, -0.001] * 5)
    assert calm.moved(taking(1.0), taking(1.09)) == ""
    assert calm.moved(taking(1.0), taking(1.12)) == "control copy moved by 12.0%"
    # Twice as fast is as far as twice as slow.
    assert calm.moved(taking(1.0), taking(0.5)) == "control copy moved by 100.0%"


def test_another_clock_alone_is_no_move():
    calm = history([0.001, -0.001] * 5)
    assert calm.moved(taking(1.0, 1500.0), taking(1.5, 1000.0)) == ""
    assert calm.moved(taking(1.0, 1500.0), taking(1.5, 1500.0)) == "control copy moved by 50.0%"
    # A copy follows the memory clock: the SM clock may change and its seconds not.
    assert calm.moved(taking(1.0, 1500.0), taking(1.0, 1000.0)) == ""


def test_the_summary_tells_median_spread_and_rate():
    device = FakeDevice()
    seconds = itertools.chain([1.0] * 3, [2.0] * 3, [4.0] * 3)
    controls = scripted_controls(device, seconds.__next__)
    assert controls.summary() == {}
    for _ in range(3):
        controls.take(device)
    copy = controls.summary()["copy"]
    assert copy == {"seconds": 2.0, "spread": pytest.approx(1.4826 / 2), "rate": 5e8, "unit": "B/s"}
    assert controls.summary()["matmul"]["unit"] == "FLOP/s"


def test_a_floor_is_what_takes_longer_at_the_best_rates():
    device = FakeDevice()
    controls = scripted_controls(device, itertools.chain([2.0] * 3, [1.0] * 3, [4.0] * 3).__next__)
    for _ in range(3):
        controls.take(device)
    assert controls.floor(flops=3e9, moved_bytes=1e9) == pytest.approx(3.0)
    assert controls.floor(flops=1e9, moved_bytes=5e9) == pytest.approx(5.0)


def test_steady_controls_never_move():
    device = FakeDevice()
    controls = steady_controls(device)
    takings = [controls.take(device) for _ in range(20)]
    assert all(controls.moved(takings[0], later) == "" for later in takings)


def test_a_cpus_controls_are_real():
    device = CpuDevice()
    controls = Controls.of(device)
    summary = controls.summary()
    assert set(summary) == {"copy", "matmul", "empty"}
    # No machine of today copies slower than 100 MB/s or faster than 10 TB/s.
    assert 1e8 < summary["copy"]["rate"] < 1e13
    assert summary["empty"]["rate"] == 0.0
    assert controls.floor(0.0, 2.0 * (64 << 20)) == pytest.approx(min(controls.history["copy"]))
    assert [len(seconds) for seconds in controls.history.values()] == [3, 3, 3]


def test_a_cpu_is_one_thread_unless_the_environment_says_otherwise(monkeypatch):
    before = torch.get_num_threads()
    try:
        for stated, threads in (("2", 2), ("", 1)):
            monkeypatch.setenv("OMP_NUM_THREADS", stated)
            torch.set_num_threads(2)
            CpuDevice()
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
