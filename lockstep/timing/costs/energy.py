"""Measure the energy of a call with the board's energy counter.

The counter is updated only about every tenth of a second. So the harness runs a train of replays that keeps the GPU
busy for several updates, and computes the power between two updates. The energy of a call is this power times the time
of a call in the same train. The energy includes idle power, because a kernel that takes longer keeps the whole board
powered for longer.

A read of the counter takes milliseconds (4 ms on an H200). A GPU that runs out of replays meanwhile would add idle time
to each call, so ``run_train`` enqueues enough replays that it never does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import torch

from lockstep.gpu.nvml import find_gpu
from lockstep.timing.arms.bound_arms import Arm
from lockstep.timing.arms.captured_arms import Capturer
from lockstep.timing.costs.meter import CostMeter, Metered
from lockstep.timing.device import Device, Replay, Timing
from lockstep.timing.rounds import Pace
from lockstep.timing.rules.changed_shared_code import Trusted

#: Minimum seconds between the first and the last update of the counter in a train, and the further seconds to wait for
#: the updates.
TRAIN_S, PATIENCE_S = 0.5, 2.0

#: Number of replays that are enqueued at first.
_AHEAD = 2

#: Returns the joules that the board has consumed so far; ``None`` if unknown.
Counter = Callable[[], float | None]


class NoEnergy(RuntimeError):
    """The energy of an arm cannot be measured; the message says why."""


@dataclass(frozen=True)
class Train:
    """Measurements of a replay that ran repeatedly: the seconds of one call, and the board's power in watts."""

    seconds: float
    watts: float

    @property
    def joules(self) -> float:
        """Return the energy of one call in joules."""
        return self.seconds * self.watts


def run_train(replay: Replay, calls: int, counter: Counter, new_mark: Callable[[], CudaMark]) -> Train:
    """Run a replay until the counter's updates span ``TRAIN_S`` seconds; return the time of a call and the power.

    If the GPU finishes all enqueued replays while the counter is read, the train starts again with twice as many. A
    counter without a value, or that does not change, raises ``NoEnergy``.
    """
    began, last = perf_counter(), counter()
    ahead = _AHEAD
    enqueued: deque[CudaMark] = deque()
    reached: list[CudaMark] = []
    steps: list[tuple[float, float]] = []
    try:
        while len(steps) < 2 or steps[-1][0] - steps[0][0] < TRAIN_S:
            while len(enqueued) < ahead:
                replay()
                enqueued.append(new_mark())
            now, joules = perf_counter(), counter()
            if joules is None or last is None:
                raise NoEnergy("NVML does not report the energy counter")
            if now - began > TRAIN_S + PATIENCE_S:
                raise NoEnergy(f"the energy counter did not advance enough in {TRAIN_S + PATIENCE_S:g} s")
            while enqueued and enqueued[0].reached():
                reached.append(enqueued.popleft())
            if not enqueued:
                ahead *= 2
                reached, steps = [], []
            elif joules != last:
                steps.append((now, joules))
            last = joules
    finally:
        # The next arm must find the GPU idle.
        if enqueued:
            enqueued[-1].wait()
    reached += enqueued
    seconds = reached[-1].seconds_after(reached[0]) / ((len(reached) - 1) * calls)
    (start, before), (end, after) = steps[0], steps[-1]
    return Train(seconds, (after - before) / (end - start))


class CudaMark:
    """A point in the work that is enqueued on the current CUDA stream."""

    def __init__(self) -> None:
        self._event = torch.cuda.Event(enable_timing=True)
        self._event.record()

    def reached(self) -> bool:
        """Return whether the GPU has done all work before the mark."""
        return bool(self._event.query())

    def wait(self) -> None:
        """Wait until the GPU has reached the mark."""
        self._event.synchronize()

    def seconds_after(self, earlier: CudaMark) -> float:
        """Return the seconds from an earlier mark to this one; both must be reached."""
        return float(earlier._event.elapsed_time(self._event)) / 1e3


def cuda_counter() -> Counter | None:
    """Return a function that reads the energy counter of the current GPU; ``None`` if the GPU has no counter."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    gpu = find_gpu(str(properties.uuid))
    return gpu.energy_j if gpu is not None and gpu.energy_j() is not None else None


@dataclass
class Energy(CostMeter):
    """Measure the quantity ``energy`` of each arm: the joules that the board consumes per call."""

    device: Device
    pace: Pace
    counter: Counter
    new_mark: Callable[[], CudaMark]
    trusted: Trusted
    name: str = field(default="energy", init=False)

    def __post_init__(self) -> None:
        self._capturer = Capturer(self.device, self.pace.replay_s, self.trusted, failures=self._failures)

    def epoch(
        self, arms: Sequence[Arm], listener: Callable[[str, str], None], restore: Callable[[], None] | None
    ) -> Metered:
        """Measure the joules per call of each arm."""
        if restore is not None:
            self._failures |= {arm.name: NoEnergy("its calls write their inputs") for arm in arms}
        captured = self._capturer.capture(arms, listener)
        joules = {}
        for arm in captured:
            listener("time", arm.name)
            try:
                joules[arm.name] = [Timing(run_train(arm.replay, arm.replay.calls, self.counter, self.new_mark).joules)]
            except NoEnergy as error:
                self._failures[arm.name] = error
        return Metered(joules, {arm.name: arm.replay.once for arm in captured if arm.name in joules})
