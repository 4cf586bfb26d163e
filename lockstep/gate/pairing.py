"""Time one epoch of one variant: base and head in turn, on the same buffers.

Both sides share their buffers (``lockstep.gate.buffers``). Outputs that a variant allocates itself lie at the same
addresses on both sides too. A round is one replay of each side. The order flips from round to round, so that each side
follows itself as often as the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median, median_low
from typing import Any

import torch

from lockstep.gate.buffers import BASE, HEAD, Buffers, Contender, SideFailed
from lockstep.gate.namespaces import Sides
from lockstep.timing.arms import Arm, ArmReplay
from lockstep.timing.check import brief
from lockstep.timing.clock_correction import Pair
from lockstep.timing.device import Device, Timing
from lockstep.timing.interleave import LEAD_ROUNDS
from lockstep.timing.replays import Repeated, replay_of, seconds_a_call, settle, time_undisturbed

#: A pair is void if its clock ratio is this far (log units) from the epoch's median. The two sides are mostly the same
#: kernel and run one after the other, so the kernel does not cause such a change of the clock.
CLOCK_TOLERANCE = 0.03


@dataclass(frozen=True)
class Pace:
    """How long an epoch is.

    Attributes:
        replay_s: shortest replay, seconds. It is shorter than that of ``lockstep.timing.interleave.Plan``: a neighbour
            that is the same kernel disturbs less than another arm.
        rounds: timed pairs; fewer, but four at least, where they would take longer than ``epoch_s`` seconds.
        lead: pairs before them that do not count; see ``lockstep.timing.interleave.LEAD_ROUNDS``.
        warmup_s: seconds of both sides in turn before a variant's first epoch: clocks settle under its load.
    """

    replay_s: float = 2e-3
    rounds: int = 12
    epoch_s: float = 0.25
    lead: int = LEAD_ROUNDS
    warmup_s: float = 0.1

    @classmethod
    def on(cls, device: Device) -> Pace:
        """Return the pace for a device: on a CPU more and shorter pairs, some of which other work does not disturb."""
        return cls(replay_s=1e-3, rounds=25, warmup_s=0.0) if device.kind == "cpu" else cls()

    @classmethod
    def quick(cls) -> Pace:
        """Return a pace that finds errors; its numbers mean little."""
        return cls(replay_s=1e-3, rounds=4, warmup_s=0.0)


@dataclass(frozen=True)
class Epoch:
    """The result of an epoch for one variant.

    Attributes:
        pair: head's timings and base's, of each pair that counts; on a CPU those of the fastest replays.
        seconds: side to seconds a call.
        sm_mhz: side to median SM clock in MHz; NaN where unknown.
        rounds, voided: pairs that count, and pairs thrown out because the clock jumped within them.
        shared: whether both sides had all their buffers in common.
    """

    pair: Pair
    seconds: Mapping[str, float]
    sm_mhz: Mapping[str, float]
    rounds: int
    voided: int
    shared: bool


#: Replays both sides on other values: arms and replays by side to what is wrong by side.
Verify = Callable[[Mapping[str, Arm], Mapping[str, ArmReplay]], Mapping[str, Exception]]


def run_epoch(
    contender: Contender,
    buffers: Buffers,
    device: Device,
    pace: Pace,
    per_call: dict[str, float],
    verify: Verify | None = None,
) -> Epoch:
    """Bind, capture, warm up and time both sides.

    Args:
        contender: the variant.
        buffers: fresh ones.
        device: where.
        pace: how long.
        per_call: seconds a call by side, learned in the first epoch and used in later ones.
        verify: called after the timing.

    Raises:
        SideFailed: a side cannot be prepared, captured or run, finds no memory, or computes something else when it is
            verified.
    """
    arms, shared = buffers.arms(contender)
    pool = device.new_pool()

    def capture(side: str, times: int) -> ArmReplay:
        return _capture(arms[side], times, device, pool, buffers.sides, contender.trees[side])

    rotation = len(buffers.sets)
    warmup_s = 0.0 if per_call else pace.warmup_s
    order = (BASE, HEAD) if buffers.seed & 2 else (HEAD, BASE)
    probes = []  # alive until the pool has other graphs
    for side in order:
        if side not in per_call:
            per_call[side], probe = seconds_a_call(partial(capture, side), rotation, device)
            probes.append(probe)
    # As many calls on either side, by the faster one: the first call of a replay costs more, on either side alike.
    pacemaker = min(per_call.values())
    # Takes the memory that outputs allocated within calls need; afterwards either side finds all of it free, and
    # what allocates alike lies alike. Without it the first side would lay out the pool and the second fill its gaps.
    rehearsal = capture(order[0], 2)
    replays = {
        side: Repeated(capture(side, 1), 1, rotation)
        if buffers.once
        else replay_of(partial(capture, side), rotation, pacemaker, pace.replay_s)
        for side in order
    }
    calls = replays[BASE].calls
    del rehearsal, probes
    settle(replays.values(), device, warmup_s)
    rounds = max(min(4, pace.rounds), min(pace.rounds, int(pace.epoch_s / (sum(per_call.values()) * calls))))
    pairs = [(BASE, HEAD) if (number + buffers.seed) % 2 else (HEAD, BASE) for number in range(pace.lead + rounds)]
    sequence = [side for pair in pairs for side in pair]
    timings = time_undisturbed([replays[side] for side in sequence], device, buffers.restore)
    if verify is not None:
        wrong = verify(arms, {side: replay.once for side, replay in replays.items()})
        for side in (BASE, HEAD):
            if side in wrong:
                raise SideFailed(side, brief(wrong[side]))
    by_side: dict[str, list[Timing]] = {BASE: [], HEAD: []}
    for side, timing in list(zip(sequence, timings, strict=True))[2 * pace.lead :]:
        by_side[side].append(Timing(timing.seconds / calls, timing.sm_mhz))
    return _of_fastest(by_side, shared) if device.kind == "cpu" else _of_pairs(by_side, shared)


def _capture(arm: Arm, times: int, device: Device, pool: Any, sides: Sides, tree: str) -> ArmReplay:
    """Return a replay that runs the arm's rotation ``times`` times, with the modules of its tree.

    Raises:
        SideFailed: the arm cannot be captured, or is out of memory.
    """
    try:
        with sides.active(tree):
            replay = arm.capture(device, pool, times)
    except torch.cuda.OutOfMemoryError as error:
        device.release()
        raise SideFailed(arm.name, "out of memory while its calls were captured") from error
    except Exception as error:
        raise SideFailed(arm.name, f"{type(error).__name__}: {error}") from error
    if device.kind == "cuda":
        return replay  # a graph runs no Python

    def run() -> None:
        with sides.active(tree):
            replay()

    return ArmReplay(run, replay.results)


def _of_fastest(by_side: Mapping[str, Sequence[Timing]], shared: bool) -> Epoch:
    """Compare the fastest replays: other work on a CPU only adds time, and adds it to one half of a pair.

    Source: Chen & Revels 2016, "Robust benchmarking in noisy environments".
    """
    fastest = {side: min(mine, key=lambda timing: timing.seconds) for side, mine in by_side.items()}
    return Epoch(
        pair=Pair((fastest[HEAD],), (fastest[BASE],)),
        seconds={side: timing.seconds for side, timing in fastest.items()},
        sm_mhz=dict.fromkeys(by_side, math.nan),
        rounds=len(by_side[BASE]),
        voided=0,
        shared=shared,
    )


def _of_pairs(by_side: Mapping[str, Sequence[Timing]], shared: bool) -> Epoch:
    good = steady(by_side[HEAD], by_side[BASE])
    heads, bases = (tuple(itertools.compress(by_side[side], good)) for side in (HEAD, BASE))
    return Epoch(
        pair=Pair(heads, bases),
        seconds={side: median(timing.seconds for timing in mine) for side, mine in by_side.items()},
        sm_mhz={side: _clock(mine) for side, mine in by_side.items()},
        rounds=len(heads),
        voided=len(good) - len(heads),
        shared=shared,
    )


def _clock(timings: Sequence[Timing]) -> float:
    known = [timing.sm_mhz for timing in timings if not math.isnan(timing.sm_mhz)]
    return median(known) if known else math.nan


def steady(head: Sequence[Timing], base: Sequence[Timing]) -> list[bool]:
    """Pairs in which the clock ratio of the two sides was the usual one; all where clocks are unknown."""
    ratios = [math.log(t.sm_mhz / b.sm_mhz) for t, b in zip(head, base, strict=True)]
    known = [ratio for ratio in ratios if not math.isnan(ratio)]
    if len(known) < 3:
        return [True] * len(head)
    # An observed ratio, not the mean of two: if the clock changed half way, one half still counts.
    centre = median_low(known)
    return [math.isnan(ratio) or abs(ratio - centre) <= CLOCK_TOLERANCE for ratio in ratios]
