"""Time one epoch of one variant: base and head are two arms, on the same buffers.

Outputs that a variant allocates itself also have the same addresses on both sides.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_low

from lockstep.gate.case_verdict import Measured
from lockstep.timing.arms.bound_arms import Arm, ArmReplay
from lockstep.timing.arms.captured_arms import Capturer
from lockstep.timing.arms.replays import settle
from lockstep.timing.arms.shared_buffers import ArmFailed, Buffers, Contender
from lockstep.timing.checks.check import brief
from lockstep.timing.clock_correction import Pair, at_common_clock, midmean
from lockstep.timing.costs.meter import CostMeter
from lockstep.timing.device import Device, Timing
from lockstep.timing.rounds import Pace, time_rounds
from lockstep.timing.rules.changed_shared_code import Trusted

BASE, HEAD = "base", "head"

#: A pair is void if its clock ratio differs by this much (log units) from the epoch's median. The two sides are mostly
#: the same kernel and run one after the other, so the kernel does not cause such a difference.
CLOCK_TOLERANCE = 0.03

#: A short pace, which finds errors but gives inaccurate times.
QUICK = Pace(replay_s=1e-3, rounds=4, epoch_s=0.25, warmup_s=0.0)


def pace_on(device: Device, *, quick: bool = False) -> Pace:
    """Return the pace for a device; with ``quick``, the short one.

    Replays are shorter than in ``lockstep.timing.epochs.Plan``, because a replay is disturbed less by a preceding
    replay of the same kernel than by another arm. A CPU gets more, shorter rounds, of which other work disturbs only
    some.
    """
    if quick:
        return QUICK
    if device.kind == "cpu":
        return Pace(replay_s=1e-3, rounds=25, epoch_s=0.25, warmup_s=0.0)
    return Pace(replay_s=2e-3, rounds=12, epoch_s=0.25, warmup_s=0.03)


#: Replays arms on other values. Takes arms and replays; returns errors by arm.
Verify = Callable[[Sequence[Arm], Mapping[str, ArmReplay]], Mapping[str, Exception]]


@dataclass
class PairTimer:
    """Times epochs of base and head of one variant.

    Attributes:
        contenders: base and head, in this order.
        meter: measures a cost in place of the latency.
    """

    contenders: Sequence[Contender]
    device: Device
    pace: Pace
    trusted: Trusted
    listener: Callable[[str, str], None] = lambda stage, side: None
    meter: CostMeter | None = None

    def __post_init__(self) -> None:
        self.capturer = Capturer(self.device, self.pace.replay_s, self.trusted, alike=True)

    def epoch(self, buffers: Buffers, verify: Verify | None = None) -> Measured:
        """Measure one epoch: seconds per call, or joules per call for the energy.

        The seed of the fresh ``buffers`` decides which side is prepared and captured first. Raise ``ArmFailed`` if base
        or head cannot be prepared, captured or run, runs out of memory, or computes a wrong result in the verification.
        Raise ``DeviceLost`` if base or head broke the device.
        """
        order = self.contenders if buffers.seed & 2 else self.contenders[::-1]
        arms, shared = buffers.arms(order)
        timings, replays = self._time(arms, buffers) if self.meter is None else self._meter(self.meter, arms, buffers)
        if verify is not None:
            _require_none(verify(arms, replays))
        # On a CPU, and for what the host does, other work only adds time.
        fastest = self.device.kind == "cpu" or len(timings[BASE]) == 1
        return of_fastest(timings, shared) if fastest else of_pairs(timings, shared)

    def _time(self, arms: Sequence[Arm], buffers: Buffers) -> tuple[dict[str, list[Timing]], Mapping[str, ArmReplay]]:
        warmup_s = 0.0 if self.capturer.per_call else self.pace.warmup_s
        captured = self.capturer.capture(arms, self.listener)
        _require_none(self.capturer.failures)
        self.listener("time", "")
        settle([arm.replay for arm in captured], self.device, warmup_s)
        timings = time_rounds(captured, self.pace, self.device, random.Random(buffers.seed), buffers.restore)
        return timings, {arm.name: arm.replay.once for arm in captured}

    def _meter(
        self, meter: CostMeter, arms: Sequence[Arm], buffers: Buffers
    ) -> tuple[dict[str, list[Timing]], Mapping[str, ArmReplay]]:
        metered = meter.epoch(arms, self.listener, buffers.restore)
        for side in (BASE, HEAD):
            if side not in metered.numbers:
                # The board's counter, not head, is to blame for an energy that is not known.
                raise ArmFailed(BASE if meter.name == "energy" else side, meter.reason(side))
        pairs = zip(metered.numbers[BASE], metered.numbers[HEAD], strict=True)
        positive = [pair for pair in pairs if min(timing.seconds for timing in pair) > 0]
        if not positive:
            raise ArmFailed(BASE, "fixed kernels with its calls take no longer than these kernels alone")
        return dict(zip((BASE, HEAD), map(list, zip(*positive, strict=True)), strict=True)), metered.replays


def _require_none(failures: Mapping[str, Exception]) -> None:
    for side in (BASE, HEAD):
        if side in failures:
            raise ArmFailed(side, brief(failures[side]))


def of_fastest(by_side: Mapping[str, Sequence[Timing]], shared: bool) -> Measured:
    """Return an epoch of only the fastest replays of base and head.

    On a CPU other work only adds time, and often to only one replay of a pair.

    Source: Chen & Revels 2016, "Robust benchmarking in noisy environments".
    """
    base, head = (min(by_side[side], key=lambda timing: timing.seconds) for side in (BASE, HEAD))
    return Measured(base.seconds, head.seconds, shared, Pair((head,), (base,)))


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
