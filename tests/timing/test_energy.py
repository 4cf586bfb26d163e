"""Energy of a call, with the real nvidia-ml-py beside a stand-in libnvidia-ml that counts 650.5 W in steps of 20 ms."""

import json
import os
import subprocess
import sys
import textwrap
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from fakes import MarkAtOnce

from lockstep.timing.arms.bound_arms import Arm
from lockstep.timing.costs.energy import Energy, NoEnergy, run_train
from lockstep.timing.device import CpuDevice
from lockstep.timing.epochs import Plan
from lockstep.timing.rules.changed_shared_code import Trusted

ROOT = Path(__file__).parents[2]


class Board:
    """A board of 500 W, 100 W if idle. It works off what is enqueued; the counter moves in steps of 20 ms."""

    def __init__(self, monkeypatch, replay_s=3e-3, read_s=1e-4):
        monkeypatch.setattr("lockstep.timing.costs.energy.perf_counter", lambda: self.now)
        self.now = 0.0
        self.replay_s, self.read_s = replay_s, read_s
        self.spans = []

    def replay(self):
        begin = max(self.spans[-1][1], self.now) if self.spans else self.now
        self.spans.append((begin, begin + self.replay_s))

    def new_mark(self):
        return BoardMark(self, self.spans[-1][1])

    def counter(self):
        self.now += self.read_s
        step = 0.02 * (self.now // 0.02)
        busy = sum(min(end, step) - begin for begin, end in self.spans if begin < step)
        return 100.0 * step + 400.0 * busy


class BoardMark:
    def __init__(self, board, end):
        self.board, self.end = board, end

    def reached(self):
        return self.board.now >= self.end

    def wait(self):
        self.board.now = max(self.board.now, self.end)

    def seconds_after(self, earlier):
        return self.end - earlier.end


def test_a_call_takes_the_power_between_two_steps_for_its_own_time(monkeypatch):
    board = Board(monkeypatch)
    train = run_train(board.replay, 10, board.counter, board.new_mark)
    assert train.seconds == pytest.approx(3e-4, rel=1e-9)
    # A step is seen by the next read.
    assert train.watts == pytest.approx(500.0, rel=2 * 1e-4 / 0.5)
    assert board.now < 0.6


@pytest.mark.parametrize("read_s", [4e-3, 11e-3, 40e-3])
def test_the_gpu_is_never_idle_however_long_the_counter_takes_to_read(monkeypatch, read_s):
    board = Board(monkeypatch, read_s=read_s)
    train = run_train(board.replay, 10, board.counter, board.new_mark)
    assert train.seconds == pytest.approx(3e-4, rel=1e-9)
    assert train.watts == pytest.approx(500.0, rel=2 * read_s / 0.5)
    pauses = [begin - end for (_, end), (begin, _) in pairwise(board.spans) if begin > end]
    assert len(pauses) <= 4, "only until enough is enqueued"
    assert board.now < 1.0


@pytest.mark.parametrize(("joules", "why"), [(None, "NVML does not report"), (1.0, "did not advance")])
def test_a_counter_that_says_nothing_gives_no_number(monkeypatch, joules, why):
    board = Board(monkeypatch)

    def counter():
        board.counter()
        return joules

    with pytest.raises(NoEnergy, match=why):
        run_train(board.replay, 1, counter, board.new_mark)


def test_calls_that_write_their_inputs_have_none():
    meter = Energy(CpuDevice(), Plan().pace, lambda: 1.0, partial(MarkAtOnce, lambda: 0.0), Trusted())
    meter.add(meter.epoch([Arm("it", ())], lambda stage, arm: None, lambda: None).numbers)
    assert (meter.estimates("it"), meter.reason("it")) == ({}, "its calls write their inputs")


SCRIPT = """
    import json, time
    from functools import partial
    from fakes import MarkAtOnce
    from lockstep.gpu.nvml import Gpu
    from lockstep.timing.arms.bound_arms import Arm
    from lockstep.timing.device import CpuDevice
    from lockstep.timing.costs.energy import Energy, run_train
    from lockstep.timing.epochs import Plan
    from lockstep.timing.rules.changed_shared_code import Trusted

    gpu = Gpu.open(0)

    def call():
        until = time.perf_counter() + 1e-3
        while time.perf_counter() < until:
            pass

    new_mark = partial(MarkAtOnce, time.perf_counter)
    train = run_train(lambda: [call() for _ in range(5)], 5, gpu.energy_j, new_mark)
    meter = Energy(CpuDevice(), Plan().pace, gpu.energy_j, new_mark, Trusted())
    for _ in range(2):
        meter.add(meter.epoch([Arm("it", (call, call))], lambda stage, arm: None, None).numbers)
    print(json.dumps([train.watts, train.seconds, meter.estimates("it")["energy"].value, meter.reason("it")]))
"""


def run(folder, library, **settings):
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        "STAND_IN": str(folder),
        "LD_LIBRARY_PATH": str(library),
    }
    script = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    return subprocess.run(script, env={**environment, **settings}, capture_output=True, text=True, check=False)


def test_nvml_is_read_while_real_calls_run(tmp_path, library):
    done = run(tmp_path, library)
    assert done.returncode == 0, done.stderr
    watts, seconds, joules, reason = json.loads(done.stdout)
    # A busy machine lets a replay, and so the sight of a step, come late.
    assert watts == pytest.approx(650.5, rel=0.2)
    # A replay on the host ends before its fence is made, so two of the 100 replays are counted without their time.
    assert seconds >= 0.95e-3
    if seconds > 2e-3:
        pytest.skip("too busy to tell: a call of 1 ms took twice as long")
    assert 0.8 * 0.65 < joules < 3 * 0.65
    assert reason == ""


def test_a_driver_without_the_counter_says_so(tmp_path, library):
    done = run(tmp_path, library, STAND_IN_READ="3")
    assert "NoEnergy: NVML does not report the energy counter" in done.stderr
