"""How long a call takes, replays that are long enough, and how they are run.

Capturing takes 20–50 µs of Python for every call, launching a captured graph again takes 1–2 µs of the GPU, of every
arm alike: so a graph is short, and a replay launches it as often as it takes.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Sequence

from lockstep.timing.device import Device, Replay, Timing

#: Seconds that a graph lasts at least. Whole replays of 3 ms were a third of the time of a full run; and cuBLAS draws
#: one of its two times (32 × 7168 × 2112, an H200) at every launch of a graph, of which a replay has more so.
GRAPH_S = 5e-4

#: Seconds from which on a replay tells how long a call takes: launching a graph takes some 10 µs.
PROBE_S = 1e-4

#: Calls in a replay that tells, at most.
MOST_PROBES = 1024


def seconds_a_call(capture: Callable[[int], Replay], calls: int, device: Device) -> tuple[float, Replay]:
    """How long a call takes, roughly, and the replay that told.

    Keep the replay until there is another: a pool whose last graph is gone cannot be captured into again (torch 2.11).

    Args:
        capture: a replay of so many rotations.
        calls: of one rotation.
        device: where.
    """
    times = 1
    while True:
        probe = capture(times)
        probe()  # compiles and warms up
        seconds = min(timing.seconds for timing in device.time([probe] * 2))
        if seconds >= PROBE_S or times * calls >= MOST_PROBES:
            return seconds / (times * calls), probe
        times *= 8


def replay_of(capture: Callable[[int], Replay], calls: int, per_call: float, seconds: float) -> tuple[Replay, int]:
    """A replay of at least ``seconds``, and how many calls it makes.

    Args:
        capture: a replay of so many rotations.
        calls: of one rotation.
        per_call: seconds.
        seconds: how long.
    """
    rotation_s = max(per_call * calls, 1e-9)
    times = math.ceil(min(seconds, GRAPH_S) / rotation_s)
    launches = math.ceil(seconds / (times * rotation_s))
    replay = capture(times)
    if launches == 1:
        return replay, times * calls

    def again() -> None:
        for _ in range(launches):
            replay()

    return again, times * launches * calls


def settle(replays: Iterable[Replay], device: Device, seconds: float) -> None:
    """Every replay once, and on until the time is over: clocks settle under the load they will see."""
    every = tuple(replays)
    until = time.monotonic() + seconds
    while True:
        for replay in every:
            replay()
        device.synchronize()
        if time.monotonic() >= until:
            return


def time_undisturbed(replays: Sequence[Replay], device: Device) -> list[Timing]:
    """Time of each replay, one after another, with nothing collected meanwhile."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return device.time(replays)
    finally:
        if collecting:
            gc.enable()
