"""Choose the fastest of several calls: all are replayed in turn, and those that fall behind are left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import median
from time import monotonic
from typing import Any

import torch

from lockstep.timing.arms.replays import time_undisturbed
from lockstep.timing.device import Call, Device

#: Seconds for timing the configurations of a kernel at a key. Each is timed at least ``LEAST`` times, however long.
BUDGET_S = 1.0

#: Rounds in which every call is timed, and the most rounds.
LEAST, MOST = 3, 25

#: Calls of a replay. Launching a graph takes 1–2 µs, and an event is read to within a microsecond.
CALLS = 4

#: Share of the fastest time by which a call may be slower and is left in.
BEHIND = 0.1

#: Times that differ by this share are equal: the call that was chosen before is chosen again, else the first.
EQUAL = 0.01


def fastest(calls: Mapping[str, Call], device: Device, preferred: str, unfit: tuple[type[Exception], ...]) -> str:
    """Return the name of the fastest call; "" if none can run. The GPU's cache is cold before each call.

    Of calls that are equally fast, ``preferred`` is chosen. ``unfit`` are errors of calls that cannot run on this
    device, such as those that need too much shared memory; any other error is raised.
    """
    usable = {name: call for name, call in calls.items() if _runs(call, unfit)}
    flush, pool = _flush(device), device.new_pool()
    replays = {name: device.capture([*flush, call] * CALLS, pool) for name, call in usable.items()}
    empty = device.capture(flush * CALLS, pool) if flush else None

    def times(names: list[str]) -> list[float]:
        timed = [replay for replay in (empty, *(replays[name] for name in names)) if replay is not None]
        seconds = [timing.seconds for timing in time_undisturbed(timed, device)]
        return [max(one - seconds[0], 1e-9) for one in seconds[1:]] if flush else seconds

    return best_of(times, list(usable), preferred)


def best_of(times: Callable[[list[str]], list[float]], names: list[str], preferred: str) -> str:
    """Return the name with the smallest median time; ``times`` returns one time for each of some names."""
    samples: dict[str, list[float]] = {name: [] for name in names}
    alive, deadline = names, monotonic() + BUDGET_S
    for number in range(MOST if len(names) > 1 else 0):
        for name, seconds in zip(alive, times(alive), strict=True):
            samples[name].append(seconds)
        if number + 1 >= LEAST:
            alive = _within(samples, alive, BEHIND)
            if len(alive) == 1 or monotonic() > deadline:
                break
    equal = _within(samples, alive, EQUAL) if len(alive) > 1 else alive
    return preferred if preferred in equal else next(iter(equal), "")


def _within(samples: Mapping[str, list[float]], names: list[str], share: float) -> list[str]:
    medians = {name: median(samples[name]) for name in names}
    limit = (1 + share) * min(medians.values(), default=math.inf)
    return [name for name in names if medians[name] <= limit]


def _runs(call: Call, unfit: tuple[type[Exception], ...]) -> bool:
    try:
        call()
    except unfit:
        return False
    return True


def _flush(device: Device) -> list[Call]:
    """Return what empties the GPU's cache: a write of twice its size. Its time is subtracted."""
    if device.kind != "cuda":
        return []
    memory: Any = torch.empty(2 * device.cache_bytes, dtype=torch.uint8, device=device.torch_device)
    return [lambda: memory.zero_()]
