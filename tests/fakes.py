"""A device whose time passes only when a test says so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lockstep.record.model import Clocks
from lockstep.timing.arms.bound_arms import Arm
from lockstep.timing.arms.verify_replays import Verified
from lockstep.timing.controls import Control, Controls
from lockstep.timing.device import Call, Replay, Timing
from lockstep.timing.graph_capture import CaptureError


class MarkAtOnce:
    """A mark for replays that run at once. The newest mark is never reached, so the device seems to be busy."""

    newest: MarkAtOnce | None = None

    def __init__(self, clock: Callable[[], float]) -> None:
        self.at = clock()
        MarkAtOnce.newest = self

    def reached(self) -> bool:
        return self is not MarkAtOnce.newest

    def wait(self) -> None: ...

    def seconds_after(self, earlier: MarkAtOnce) -> float:
        return self.at - earlier.at


class FakeDevice:
    """Runs calls at once on a clock of its own; ``spend`` is what a call does to that clock."""

    kind = "cpu"
    torch_device = torch.device("cpu")
    memory_bytes = 16 << 30

    def __init__(self, cache_bytes: int = 1 << 20) -> None:
        self.cache_bytes = cache_bytes
        self.now = 0.0
        self.mhz = math.nan
        self.released = 0
        #: How many replays each call of ``time`` was given.
        self.timed: list[int] = []
        self.timing = False
        #: Pools that take no further capture, as in torch 2.11 after one that failed.
        self.spoilt: list[object] = []

    def spend(self, seconds: float, mhz: float = math.nan) -> None:
        """Let time pass, at this SM clock."""
        self.now += seconds
        self.mhz = mhz

    def new_pool(self) -> object:
        return object()

    def capture(self, calls: Sequence[Call], pool: Any) -> Replay:
        if pool in self.spoilt:
            raise CaptureError("beginAllocateToPool: already recording to mempool_id")

        def replay() -> None:
            for call in calls:
                call()

        return replay

    def time(self, replays: Sequence[Replay]) -> list[Timing]:
        timings = []
        self.timed.append(len(replays))
        self.timing = True
        for replay in replays:
            start = self.now
            replay()
            timings.append(Timing(self.now - start, self.mhz))
        self.timing = False
        return timings

    def synchronize(self) -> None: ...

    def release(self) -> None:
        self.released += 1

    def healthy(self) -> bool:
        return True

    def sample_clocks(self) -> Clocks:
        return Clocks()


def steady_controls(device: FakeDevice) -> Controls:
    """Controls that never move: 1 GB in a second, 1 GFLOP in a second."""
    return scripted_controls(device, lambda: 1.0)


def scripted_controls(device: FakeDevice, seconds: Callable[[], float], mhz: Callable[[], float] = lambda: 1000.0):
    """Controls "copy" and "matmul" that take ``seconds()`` at ``mhz()``."""

    def replay() -> None:
        device.spend(seconds(), mhz())

    return Controls((Control("copy", replay, 1, 1e9, "B/s"), Control("matmul", replay, 1, 1e9, "FLOP/s")))


class Bench:
    """Arms whose calls take the seconds that a test gives; notes what was timed, in order."""

    def __init__(self, seconds: dict[str, Callable[[], float] | float], sets: int = 1) -> None:
        self.device = FakeDevice()
        self.seconds = seconds
        self.sets = sets
        #: Names of the calls that ``time`` timed, in order; and the seeds and names asked for, each epoch.
        self.order: list[str] = []
        self.drawn: list[tuple[int, tuple[str, ...]]] = []
        self.clock: Callable[[str], float] = lambda name: math.nan
        self.fails: dict[str, Exception] = {}
        self.restore: Callable[[], None] | None = None
        self.listen: Callable[[str, str], None] = lambda stage, arm: None
        self.verify: Callable[[int, Any], Verified] = lambda seed, replays: Verified({})

    def draw_arms(self, seed: int, names: Sequence[str]) -> list[Arm]:
        self.drawn.append((seed, tuple(names)))
        return [_Arm(name, (self._call(name),) * self.sets, self) for name in names]

    def _call(self, name: str) -> Call:
        def call() -> None:
            taken = self.seconds[name]
            self.device.spend(taken() if callable(taken) else taken, self.clock(name))
            if self.device.timing:
                self.order.append(name)

        return call


class _Arm(Arm):
    """An arm whose capture may fail as the bench says."""

    def __init__(self, name: str, calls: tuple[Call, ...], bench: Bench) -> None:
        super().__init__(name, calls)
        object.__setattr__(self, "_bench", bench)

    def capture(self, device, pool, times):
        failure = self._bench.fails.get(self.name)  # type: ignore[attr-defined]
        if failure is not None:
            device.spoilt.append(pool)
            raise failure
        return super().capture(device, pool, times)
