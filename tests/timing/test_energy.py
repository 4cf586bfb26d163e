"""Energy of a call, with the real nvidia-ml-py beside a stand-in libnvidia-ml that counts 650.5 W in steps of 20 ms."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lockstep.timing.arms.bound_arms import Arm
from lockstep.timing.costs.energy import Energy, NoEnergy, run_train
from lockstep.timing.device import CpuDevice
from lockstep.timing.interleave import Plan
from lockstep.timing.rules.trusted import Trusted

ROOT = Path(__file__).parents[2]


class Board:
    """A board of 500 W that works off what is enqueued; the counter moves in steps of 20 ms."""

    def __init__(self, monkeypatch, replay_s=3e-3):
        monkeypatch.setattr("lockstep.timing.costs.energy.perf_counter", lambda: self.now)
        self.now = 0.0
        self.free = 0.0
        self.replay_s = replay_s

    def replay(self):
        self.free = max(self.free, self.now) + self.replay_s

    def fence(self):
        done = self.free
        return lambda: setattr(self, "now", max(self.now, done))

    def counter(self):
        return 500.0 * 0.02 * (self.now // 0.02)


def no_fence():
    return lambda: None


def test_a_call_takes_the_power_between_two_steps_for_its_own_time(monkeypatch):
    board = Board(monkeypatch)
    train = run_train(board.replay, 10, board.counter, board.fence)
    assert train.seconds == pytest.approx(3e-4, rel=1e-9)
    # A step is seen at the end of the replay in which it falls.
    assert train.watts == pytest.approx(500.0, rel=2 * 3e-3 / 0.5)
    assert train.joules == pytest.approx(0.15, rel=2 * 3e-3 / 0.5)
    assert board.now < 0.6


def test_two_replays_are_always_enqueued(monkeypatch):
    board, events = Board(monkeypatch), []

    def fence():
        number = len([one for one in events if one[0] == "enqueued"])
        events.append(("enqueued", number))
        wait = board.fence()
        return lambda: (wait(), events.append(("waited for", number)))

    run_train(board.replay, 1, board.counter, fence)
    assert events[:5] == [("enqueued", 0), ("enqueued", 1), ("enqueued", 2), ("waited for", 0), ("enqueued", 3)]
    assert {number for what, number in events if what == "waited for"} == set(range(len(events) // 2))


@pytest.mark.parametrize(("counter", "why"), [(lambda: None, "NVML does not report"), (lambda: 1.0, "did not advance")])
def test_a_counter_that_says_nothing_gives_no_number(monkeypatch, counter, why):
    board = Board(monkeypatch)
    with pytest.raises(NoEnergy, match=why):
        run_train(board.replay, 1, counter, board.fence)


def test_calls_that_write_their_inputs_have_none():
    meter = Energy(CpuDevice(), Plan(), lambda: 1.0, no_fence, Trusted())
    meter.add(meter.epoch([Arm("it", ())], lambda stage, arm: None, lambda: None).numbers)
    assert (meter.estimates("it"), meter.reason("it")) == ({}, "its calls write their inputs")


SCRIPT = """
    import json, time
    from lockstep.gpu.nvml import Gpu
    from lockstep.timing.arms.bound_arms import Arm
    from lockstep.timing.device import CpuDevice
    from lockstep.timing.costs.energy import Energy, run_train
    from lockstep.timing.interleave import Plan
    from lockstep.timing.rules.trusted import Trusted

    gpu = Gpu.open(0)

    def call():
        until = time.perf_counter() + 1e-3
        while time.perf_counter() < until:
            pass

    no_fence = lambda: lambda: None
    train = run_train(lambda: [call() for _ in range(5)], 5, gpu.energy_j, no_fence)
    meter = Energy(CpuDevice(), Plan(), gpu.energy_j, no_fence, Trusted())
    for _ in range(2):
        meter.add(meter.epoch([Arm("it", (call, call))], lambda stage, arm: None, None).numbers)
    print(json.dumps([train.watts, train.seconds, meter.estimates("it")["energy"].value, meter.reason("it")]))
"""


def run(folder, library, **settings):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "STAND_IN": str(folder), "LD_LIBRARY_PATH": str(library)}
    script = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    return subprocess.run(script, env={**environment, **settings}, capture_output=True, text=True, check=False)


def test_nvml_is_read_while_real_calls_run(tmp_path, library):
    done = run(tmp_path, library)
    assert done.returncode == 0, done.stderr
    watts, seconds, joules, reason = json.loads(done.stdout)
    # A busy machine lets a replay, and so the sight of a step, come late.
    assert watts == pytest.approx(650.5, rel=0.2)
    # A replay on the host ends before its fence is made, so two of the 100 replays are counted without their time.
    assert 0.95e-3 <= seconds < 5e-3
    assert 0.8 * 0.65 < joules < 5 * 0.65
    assert reason == ""


def test_a_driver_without_the_counter_says_so(tmp_path, library):
    done = run(tmp_path, library, STAND_IN_READ="3")
    assert "NoEnergy: NVML does not report the energy counter" in done.stderr
