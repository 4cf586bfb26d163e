"""Estimate the time of a call, build replays that are long enough, and run them.

Capturing takes 20–50 µs of Python for every call. Launching a captured graph takes 1–2 µs on the GPU, the same for
every arm. So a graph is short, and a replay launches it as many times as needed.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

from lockstep.timing.device import Device, Replay, Timing

R = TypeVar("R", bound=Replay)

#: Minimum duration of a graph in seconds. Capturing whole replays of 3 ms took a third of a full run. cuBLAS also picks
#: one of its two times (32 × 7168 × 2112, H200) at each graph launch, and a replay of short graphs has more launches.
GRAPH_S = 5e-4

#: Shortest replay, in seconds, for a rough time of a call: launching a graph takes about 10 µs.
PROBE_S = 1e-4

#: Maximum number of calls in a replay for a rough time.
MOST_PROBES = 1024


def seconds_a_call(capture: Callable[[int], R], calls: int, device: Device) -> tuple[float, R]:
    """Measure roughly how long a call takes; return the seconds of the call, and the replay that was timed.

    The caller must hold this replay until the pool has another one: a pool whose last graph is gone cannot be captured
    into again (torch 2.11). ``capture`` returns a replay of a number of rotations, each of ``calls`` calls, one on each
    argument set.
    """
    times = 1
    while True:
        probe = capture(times)
        probe()  # compiles and warms up
        seconds = min(timing.seconds for timing in device.time([probe] * 2))
        if seconds >= PROBE_S or times * calls >= MOST_PROBES:
            return seconds / (times * calls), probe
        times *= 8


@dataclass(frozen=True, eq=False)
class Repeated(Generic[R]):
    """A captured replay, launched several times so that all launches, ``calls`` calls together, take long enough."""

    once: R
    launches: int
    calls: int

    def __call__(self) -> None:
        """Launch the captured replay as often as ``launches`` says."""
        for _ in range(self.launches):
            self.once()


def replay_of(capture: Callable[[int], R], calls: int, per_call: float, seconds: float) -> Repeated[R]:
    """Return a replay of at least ``seconds``: a graph of a few rotations, launched as often as needed.

    A rotation is one call on each argument set.
    """
    rotation_s = max(per_call * calls, 1e-9)
    times = math.ceil(min(seconds, GRAPH_S) / rotation_s)
    launches = math.ceil(seconds / (times * rotation_s))
    return Repeated(capture(times), launches, times * launches * calls)


def settle(replays: Iterable[Replay], device: Device, seconds: float) -> None:
    """Run all replays in turn for at least ``seconds``, so that the device's clocks settle under this load."""
    every = tuple(replays)
    deadline = monotonic() + seconds
    while True:
        for replay in every:
            replay()
        device.synchronize()
        if monotonic() >= deadline:
            return


def time_undisturbed(
    replays: Sequence[Replay], device: Device, restore: Callable[[], None] | None = None
) -> list[Timing]:
    """Time the replays one after another, with garbage collection off. ``restore`` runs before each replay."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        if restore is None:
            return device.time(replays)
        return device.time([step for replay in replays for step in (restore, replay)])[1::2]
    finally:
        if collecting:
            gc.enable()
