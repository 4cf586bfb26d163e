"""Time one epoch of one variant: base and head in turn, on the same buffers.

Both sides share their buffers (``lockstep.gate.measuring.buffers``). Outputs that a variant allocates itself also have
the same addresses on both sides. A round is one replay of each side. The order alternates from round to round, so that
each side follows itself as often as it follows the other side.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median, median_low
from typing import Any

import torch

from lockstep.gate.measuring.buffers import BASE, HEAD, Buffers, Contender, SideFailed
from lockstep.gate.namespaces import Sides
from lockstep.gate.trial import Measured
from lockstep.timing.arms.bound_arms import Arm, ArmReplay, BoundCall
from lockstep.timing.arms.replays import Repeated, replay_of, seconds_a_call, settle, time_undisturbed
from lockstep.timing.checks.check import brief
from lockstep.timing.clock_correction import Pair, at_common_clock, midmean
from lockstep.timing.device import Device, Timing
from lockstep.timing.interleave import LEAD_ROUNDS

#: A pair is void if its clock ratio differs by this much (log units) from the epoch's median. The two sides are mostly
#: the same kernel and run one after the other, so the kernel does not cause such a difference.
CLOCK_TOLERANCE = 0.03


#: Name of the arm that replays the fixed kernels without a variant's calls. Its time is subtracted from the time with
#: the calls.
ALONE = "alone"


@dataclass(frozen=True)
class Pace:
    """The length of an epoch: its replays, their number, and the warm-up.

    Attributes:
        replay_s: shortest replay, seconds. It is shorter than in ``lockstep.timing.interleave.Plan``, because a replay
            is disturbed less by a preceding replay of the same kernel than by another arm.
        rounds: timed pairs of replays; fewer if they would take longer than ``epoch_s`` seconds, but at least four.
        lead: untimed pairs before the timed pairs; see ``lockstep.timing.interleave.LEAD_ROUNDS``.
        warmup_s: seconds for which base and head run in turn before a variant's first epoch, until clocks settle.
    """

    replay_s: float = 2e-3
    rounds: int = 12
    epoch_s: float = 0.25
    lead: int = LEAD_ROUNDS
    warmup_s: float = 0.1

    @classmethod
    def on(cls, device: Device) -> Pace:
        """Return the ``Pace`` for a device. A CPU gets more, shorter pairs, of which other work disturbs only some."""
        return cls(replay_s=1e-3, rounds=25, warmup_s=0.0) if device.kind == "cpu" else cls()

    @classmethod
    def quick(cls) -> Pace:
        """Return a ``Pace`` with short epochs, which find errors but give inaccurate times."""
        return cls(replay_s=1e-3, rounds=4, warmup_s=0.0)


#: Replays both sides on other values. Takes arms and replays by side; returns errors by side.
Verify = Callable[[Mapping[str, Arm], Mapping[str, ArmReplay]], Mapping[str, Exception]]


@dataclass(frozen=True)
class Ready:
    """Base and head of a variant, captured and ready for timing.

    Attributes:
        arms: the arms, by side ("base" or "head").
        shared: whether base and head use the same buffers throughout.
        replays: the replays, by side. If fixed kernels run before the calls, ``ALONE`` replays only these kernels.
        calls: number of calls in a replay, the same for all replays.
    """

    arms: Mapping[str, Arm]
    shared: bool
    replays: Mapping[str, Repeated[ArmReplay]]
    calls: int

    def require_right(self, verify: Verify | None) -> None:
        """Verify the results of base and head, if ``verify`` is given.

        Raises:
            SideFailed: base or head computes a wrong result.
        """
        if verify is not None:
            require_right(verify(self.arms, {side: self.replays[side].once for side in (BASE, HEAD)}))


def require_right(wrong: Mapping[str, Exception]) -> None:
    """Raise ``SideFailed`` if ``wrong``, the errors by side ("base" or "head"), is not empty."""
    for side in (BASE, HEAD):
        if side in wrong:
            raise SideFailed(side, brief(wrong[side]))


def capture_sides(
    contender: Contender,
    buffers: Buffers,
    device: Device,
    pace: Pace,
    per_call: dict[str, float],
    ahead: Sequence[BoundCall] = (),
) -> Ready:
    """Bind base and head of a variant to the buffers, and capture their calls for timing.

    Args:
        buffers: fresh buffers.
        per_call: seconds per call by side; the first epoch fills it, later epochs use it.
        ahead: calls of the fixed kernel (``lockstep.timing.costs.behind``); one of them runs before each call.

    Raises:
        SideFailed: base or head cannot be prepared or captured, or runs out of memory.
    """
    arms, shared = buffers.arms(contender)
    turn = itertools.cycle(ahead)
    if ahead:
        arms = {side: replace(arm, before=lambda: next(turn)()) for side, arm in arms.items()}
    pool = device.new_pool()

    def capture(side: str, times: int) -> ArmReplay:
        return _capture(arms[side], times, device, pool, buffers.sides, contender.trees[side])

    rotation = len(buffers.sets)
    order = (BASE, HEAD) if buffers.seed & 2 else (HEAD, BASE)
    probes = []  # must stay alive until the pool has other graphs
    for side in order:
        if side not in per_call:
            per_call[side], probe = seconds_a_call(partial(capture, side), rotation, device)
            probes.append(probe)
    # Both sides make the number of calls that suits the faster side, because the first call of a replay costs more on
    # both.
    pacemaker = min(per_call.values())
    # Reserves the memory for outputs allocated within calls. Afterwards both sides find all of this memory free, so
    # equal allocations get equal addresses. Otherwise the first side would lay out the pool and the second would fill
    # its gaps.
    rehearsal = capture(order[0], 2)
    replays = {
        side: Repeated(capture(side, 1), 1, rotation)
        if buffers.once
        else replay_of(partial(capture, side), rotation, pacemaker, pace.replay_s)
        for side in order
    }
    calls = replays[BASE].calls
    if ahead:
        alone = Arm(ALONE, tuple(itertools.islice(itertools.cycle(ahead), calls // replays[BASE].launches)))
        replays[ALONE] = Repeated(alone.capture(device, pool, 1), replays[BASE].launches, calls)
    del rehearsal, probes
    return Ready(arms, shared, replays, calls)


def run_epoch(
    contender: Contender,
    buffers: Buffers,
    device: Device,
    pace: Pace,
    per_call: dict[str, float],
    verify: Verify | None = None,
    ahead: Sequence[BoundCall] = (),
) -> Measured:
    """Bind, capture, warm up and time base and head of a variant for one epoch.

    Args:
        contender, buffers, device, pace, per_call: see ``capture_sides``.
        verify: called after the timing.
        ahead: calls of the fixed kernel, one of which then runs before each call of the variant. The times are then
            those of both kernels minus that of the fixed kernel alone, which is replayed in each pair too.

    Raises:
        SideFailed: base or head cannot be prepared, captured or run, runs out of memory, or computes a wrong result in
            the verification; or its calls with the fixed kernels take no longer than the fixed kernels alone.
    """
    warmup_s = 0.0 if per_call else pace.warmup_s
    ready = capture_sides(contender, buffers, device, pace, per_call, ahead)
    replays, calls = ready.replays, ready.calls
    settle(replays.values(), device, warmup_s)
    rounds = max(min(4, pace.rounds), min(pace.rounds, int(pace.epoch_s / (sum(per_call.values()) * calls))))
    between = (ALONE,) if ahead else ()
    pairs = [
        (BASE, *between, HEAD) if (number + buffers.seed) % 2 else (HEAD, *between, BASE)
        for number in range(pace.lead + rounds)
    ]
    sequence = [side for pair in pairs for side in pair]
    timings = time_undisturbed([replays[side] for side in sequence], device, buffers.restore)
    ready.require_right(verify)
    by_side: dict[str, list[Timing]] = {side: [] for side in replays}
    for side, timing in list(zip(sequence, timings, strict=True))[len(pairs[0]) * pace.lead :]:
        by_side[side].append(Timing(timing.seconds / calls, timing.sm_mhz))
    if ahead:
        by_side = _less_alone(by_side)
    return of_fastest(by_side, ready.shared) if device.kind == "cpu" else of_pairs(by_side, ready.shared)


def _less_alone(by_side: Mapping[str, Sequence[Timing]]) -> dict[str, list[Timing]]:
    """Subtract the time of the fixed kernels alone from the times of base and head in each round.

    Raises:
        SideFailed: in no round do base and head both take longer than the fixed kernels alone.
    """
    net: dict[str, list[Timing]] = {BASE: [], HEAD: []}
    for base, head, alone in zip(*(by_side[side] for side in (BASE, HEAD, ALONE)), strict=True):
        differences = {
            side: replace(timing, seconds=timing.seconds - alone.seconds)
            for side, timing in ((BASE, base), (HEAD, head))
        }
        # The fixed kernels may be disturbed while they run alone; such a difference has no logarithm.
        if min(timing.seconds for timing in differences.values()) > 0:
            for side, timing in differences.items():
                net[side].append(timing)
    if not net[BASE]:
        raise SideFailed(BASE, "fixed kernels with its calls take no longer than these kernels alone")
    return net


def _capture(arm: Arm, times: int, device: Device, pool: Any, sides: Sides, tree: str) -> ArmReplay:
    """Return a replay that calls the arm with all of its argument sets ``times`` times, with the modules of ``tree``.

    Raises:
        SideFailed: the arm cannot be captured, or there is too little memory.
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


def of_fastest(by_side: Mapping[str, Sequence[Timing]], shared: bool) -> Measured:
    """Return an epoch of only the fastest replays of base and head, for a CPU.

    On a CPU other work only adds time, and often to only one replay of a pair.

    Source: Chen & Revels 2016, "Robust benchmarking in noisy environments".
    """
    fastest = {side: min(timings, key=lambda timing: timing.seconds) for side, timings in by_side.items()}
    pair = Pair((fastest[HEAD],), (fastest[BASE],))
    return Measured(fastest[BASE].seconds, fastest[HEAD].seconds, shared, pair)


def of_pairs(by_side: Mapping[str, Sequence[Timing]], shared: bool) -> Measured:
    """Return the result of an epoch from those pairs of replays within which the clock did not jump."""
    good = steady(by_side[HEAD], by_side[BASE])
    heads, bases = (tuple(itertools.compress(by_side[side], good)) for side in (HEAD, BASE))
    base_s, head_s = (median(timing.seconds for timing in by_side[side]) for side in (BASE, HEAD))
    return Measured(base_s, head_s, shared, Pair(heads, bases))


def at_one_clock(epochs: Sequence[Measured]) -> list[float]:
    """Return the log ratio head / base of each epoch, normalised to a common clock by a fit to all epochs."""
    return [midmean(epoch) for epoch in at_common_clock([epoch.pair for epoch in epochs])]


def steady(head: Sequence[Timing], base: Sequence[Timing]) -> list[bool]:
    """Return for each pair whether the ratio of head's clock to base's is near the median; True for unknown clocks."""
    ratios = [math.log(t.sm_mhz / b.sm_mhz) for t, b in zip(head, base, strict=True)]
    known = [ratio for ratio in ratios if not math.isnan(ratio)]
    if len(known) < 3:
        return [True] * len(head)
    # An observed ratio, not the mean of two ratios: if the clock changed half way, half of the pairs still count.
    centre = median_low(known)
    return [math.isnan(ratio) or abs(ratio - centre) <= CLOCK_TOLERANCE for ratio in ratios]
