"""Measure the time that the host spends on one call: Python, checks, allocations and launches.

Each call is made as a user makes it: the public function with the suite's arguments, outside any graph. Before the
calls, the GPU gets a kernel that spins, so the GPU never waits for the host. Only a few calls are queued, so the host
never waits for the GPU.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch

from lockstep.record.model import TWIN
from lockstep.timing.arms.bound_arms import Arm
from lockstep.timing.checks.check import brief, without_frames
from lockstep.timing.costs.meter import CostMeter, Metered
from lockstep.timing.device import Device, DeviceLost, Timing

#: Maximum and minimum number of calls in a batch, number of batches in an epoch, and seconds that a batch of slow calls
#: should take at most. Batches are small because the host must wait once about a thousand launches are queued.
CALLS, FEWEST, BATCHES, BATCH_S = 32, 4, 8, 1e-2

#: The GPU spins this many times as long as the batch is expected to take, and at least this many seconds.
AHEAD, LEAST_S = 1.5, 2e-4

#: Maximum number of attempts at a batch. Each further attempt has fewer calls and a longer spin.
TRIES = 5

#: Why there is no host time on a CPU.
NO_HOST = "on a CPU the latency already is the host's time"

#: Cycles of the spin that measures how many cycles the GPU spins in a second.
_PROBE_CYCLES = 10_000_000


class CudaSpinner:
    """Keeps the GPU busy with a kernel that spins, so that it never waits for the host, whose time is taken."""

    def __init__(self) -> None:
        self._done = torch.cuda.Event()
        self._cycles_per_s = 0.0

    def start(self, seconds: float) -> None:
        """Enqueue a kernel that spins for about this many seconds."""
        self._cycles_per_s = self._cycles_per_s or self._rate()
        self._spin(int(seconds * self._cycles_per_s))
        self._done.record()

    def busy(self) -> bool:
        """Return whether the spinning kernel still runs."""
        return not self._done.query()

    def wait(self) -> None:
        """Wait until the GPU has finished all enqueued work."""
        torch.cuda.synchronize()

    def _rate(self) -> float:
        """Return how many cycles the spinning kernel counts in a second, under the load of the previous rounds."""
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        self._spin(_PROBE_CYCLES)
        last.record()
        last.synchronize()
        milliseconds: float = first.elapsed_time(last)
        return _PROBE_CYCLES / (1e-3 * milliseconds)

    def _spin(self, cycles: int) -> None:
        spin: Any = torch.cuda._sleep
        spin(cycles)


@dataclass
class HostTime(CostMeter):
    """Measure the quantity ``host`` of each arm: the host's seconds per call."""

    device: Device
    spinner: CudaSpinner
    name: str = field(default="host", init=False)
    _expected: dict[str, float] = field(default_factory=dict, init=False)

    def epoch(
        self, arms: Sequence[Arm], listener: Callable[[str, str], None], restore: Callable[[], None] | None
    ) -> Metered:
        """Measure the host's seconds per call of each arm, in its fastest batch."""
        batches: dict[str, list[float]] = {arm.name: [] for arm in arms}
        for number in range(BATCHES):
            for arm in arms if number % 2 else reversed(arms):
                if arm.name in self._failures:
                    continue
                listener("time", arm.name)
                try:
                    with arm.active():
                        batches[arm.name].append(self.batch(arm, restore))
                except Waited as error:
                    self._failures[arm.name] = without_frames(error)
                except Exception as error:
                    self._failures[arm.name] = RuntimeError(brief(error))
                    if not self.device.healthy():
                        raise DeviceLost(arm.name.removesuffix(TWIN), brief(error)) from error
        # Other work on the host only adds time (Chen & Revels 2016). Medians of three batches had intervals of 9 to
        # 30 % on an H200's host.
        seconds = {
            name: [Timing(min(times))] for name, times in batches.items() if times and name not in self._failures
        }
        return Metered(seconds, {arm.name: arm.called() for arm in arms if arm.name in seconds})

    def batch(self, arm: Arm, restore: Callable[[], None] | None) -> float:
        """Return the host's seconds per call in a batch with the GPU always busy; ``Waited`` if no attempt succeeds."""
        if arm.name not in self._expected:
            # Twice: the first calls outside a graph may load or compile.
            self._expected[arm.name] = min(self._timed(arm, FEWEST, 0.0, restore)[0] for _ in range(2))
        calls = max(FEWEST, min(CALLS, int(BATCH_S / self._expected[arm.name])))
        for _ in range(TRIES):
            seconds, outlasted = self._timed(arm, calls, self._expected[arm.name], restore)
            if outlasted:
                self._expected[arm.name] = seconds
                return seconds
            # Either the spin was too short, or the host waited because the queue was full.
            self._expected[arm.name] = max(2 * self._expected[arm.name], seconds)
            calls = max(1, calls // 2)
        raise Waited("a call waits for the GPU, or launches more work than the GPU's queue holds")

    def _timed(self, arm: Arm, calls: int, expected: float, restore: Callable[[], None] | None) -> tuple[float, bool]:
        """Time calls while the GPU spins; return the host's seconds per call, and whether the spin outlasted the calls.

        ``expected`` is the expected seconds per call; with 0 the GPU does not spin.
        """
        if restore is not None:
            restore()
        batch = list(itertools.islice(itertools.cycle(arm.calls), calls))
        self.spinner.wait()
        collecting = gc.isenabled()
        gc.disable()
        try:
            if expected:
                self.spinner.start(max(LEAST_S, AHEAD * expected * calls))
            began = perf_counter()
            for call in batch:
                call()
            seconds = (perf_counter() - began) / calls
            return seconds, self.spinner.busy()
        finally:
            if collecting:
                gc.enable()
            self.spinner.wait()


class Waited(Exception):
    """The host waited for the GPU, so the measured time is not the host's time alone."""
