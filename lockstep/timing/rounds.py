"""Time every arm in turn, round after round, on the buffers of one epoch.

A round is one timed replay of each arm. Every second round reverses the order of the previous round, so that each pair
of arms runs in both orders. The order is then shuffled, so that no arm has the same neighbours for long: the time of a
replay depends on the replay before it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lockstep.timing.arms.captured_arms import Captured
from lockstep.timing.arms.replays import time_undisturbed
from lockstep.timing.device import Device, Timing

#: Rounds at the start of an epoch that do not count: clocks and caches settle under the order and load of the epoch.
#: A product of 50–70 µs (w4a16, M = 256) moved between five runs of an H200 by 2.3 % without lead rounds, by 0.5 % with
#: them. Of the hardest series, 57 % were within 0.05 % A/A without lead rounds, 71 % with them.
LEAD_ROUNDS = 2

#: Minimum number of rounds in an epoch, however long they take, unless fewer are asked for.
LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Pace:
    """The length of an epoch.

    Attributes:
        rounds: timed rounds; fewer if they would take longer than ``epoch_s`` seconds.
        warmup_s: seconds for which the arms run in turn before their first epoch, until clocks settle.
    """

    replay_s: float
    rounds: int
    epoch_s: float
    warmup_s: float


def time_rounds(
    captured: Sequence[Captured],
    pace: Pace,
    device: Device,
    chance: random.Random,
    restore: Callable[[], None] | None = None,
) -> dict[str, list[Timing]]:
    """Return the seconds per call of each arm in each round: ``pace.rounds`` rounds, or as many as its time allows.

    ``LEAD_ROUNDS`` rounds run first and do not count.
    """
    most = int(pace.epoch_s / sum(arm.seconds for arm in captured)) - LEAD_ROUNDS
    rounds = max(min(LEAST_ROUNDS, pace.rounds), min(pace.rounds, most))
    order = list(captured)
    sequence: list[Captured] = []
    for number in range(LEAD_ROUNDS + rounds):
        if number % 2 == 0:
            chance.shuffle(order)
        else:
            order.reverse()
        sequence += order
    timings = time_undisturbed([arm.replay for arm in sequence], device, restore)
    by_name: dict[str, list[Timing]] = {arm.name: [] for arm in captured}
    lead = LEAD_ROUNDS * len(captured)
    for arm, timing in zip(sequence[lead:], timings[lead:], strict=True):
        by_name[arm.name].append(Timing(timing.seconds / arm.replay.calls, timing.sm_mhz))
    return by_name
