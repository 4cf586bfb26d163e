"""Measure one epoch of a cost of one variant: host time, energy, or its time right after another kernel ("behind").

Base and head take turns on the same buffers, as for the latency. So an epoch gives a number for each, and the same
tests judge these numbers (``lockstep.gate.sequential``). ``compile_pairs`` measures compile times, which need no
buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

from lockstep.gate.measuring.buffers import BASE, HEAD, Buffers, Contender, SideFailed
from lockstep.gate.measuring.pairing import (
    Pace,
    Verify,
    capture_sides,
    of_fastest,
    of_pairs,
    require_right,
    run_epoch,
)
from lockstep.gate.trial import Measured
from lockstep.suite.definition import Suite
from lockstep.timing.arms.bound_arms import BoundCall
from lockstep.timing.checks.check import brief
from lockstep.timing.costs.behind import fixed_kernels
from lockstep.timing.costs.energy import Counter, CudaMark, Mark, NoEnergy, cuda_counter, run_train
from lockstep.timing.costs.host_time import NO_HOST, CudaSpinner, HostTime, Spinner, called
from lockstep.timing.device import Device, Timing

#: Pairs of batches of calls in an epoch of the host's time, after one pair that does not count.
HOST_PAIRS = 8


@dataclass
class CostPairs:
    """Measures host time, energy, and the time right after another kernel ("behind"), of base and head on one device.

    Attributes:
        spinner: keeps the GPU busy while host time is measured; ``None`` on a CPU, which has no separate host time.
        counter, new_mark: see ``lockstep.timing.costs.energy``; no counter if the device counts no energy.
    """

    device: Device
    pace: Pace
    spinner: Spinner | None = None
    counter: Counter | None = None
    new_mark: Callable[[], Mark] = CudaMark

    @classmethod
    def on(cls, device: Device, pace: Pace) -> CostPairs:
        """Return a ``CostPairs`` for those costs that the device can measure."""
        if device.kind == "cpu":
            return cls(device, pace)
        return cls(device, pace, CudaSpinner(), cuda_counter())

    @cached_property
    def _ahead(self) -> tuple[BoundCall, ...]:
        return fixed_kernels(self.device)

    def refusal(self, cost: str, suite: Suite) -> str:
        """Return why the cost of a suite's cases cannot be measured on this device, or ""."""
        if cost == "host" and self.spinner is None:
            return NO_HOST
        if cost == "energy" and self.counter is None:
            return "no GPU here that counts its energy"
        return "its calls write their inputs, so they cannot be repeated" if cost == "energy" and suite.inout else ""

    def epoch(
        self,
        cost: str,
        contender: Contender,
        buffers: Buffers,
        per_call: dict[str, float],
        verify: Verify | None = None,
    ) -> Measured:
        """Measure one epoch of a cost; in seconds per call, or joules per call for the energy.

        Args:
            cost: "behind", "energy" or "host".
            contender, buffers, per_call, verify: see ``lockstep.gate.measuring.pairing.run_epoch``.

        Raises:
            SideFailed: base or head cannot be measured, or computes a wrong result.
        """
        if cost == "behind":
            return run_epoch(contender, buffers, self.device, self.pace, per_call, verify, self._ahead)
        if cost == "energy":
            return self._energy(contender, buffers, per_call, verify)
        return self._host(contender, buffers, verify)

    def _energy(
        self, contender: Contender, buffers: Buffers, per_call: dict[str, float], verify: Verify | None
    ) -> Measured:
        assert self.counter is not None
        ready = capture_sides(contender, buffers, self.device, self.pace, per_call)
        joules = {}
        for side in (BASE, HEAD) if buffers.seed % 2 else (HEAD, BASE):
            try:
                joules[side] = run_train(ready.replays[side], ready.calls, self.counter, self.new_mark).joules
            except NoEnergy as error:
                raise SideFailed(BASE, str(error)) from error  # the board's fault, not head's
        ready.require_right(verify)
        return of_pairs({side: [Timing(value)] for side, value in joules.items()}, ready.shared)

    def _host(self, contender: Contender, buffers: Buffers, verify: Verify | None) -> Measured:
        assert self.spinner is not None
        arms, shared = buffers.arms(contender)
        meter = HostTime(self.device, self.spinner)
        seconds: dict[str, list[float]] = {BASE: [], HEAD: []}
        for number in range(1 + HOST_PAIRS):
            # Base is first in the pair that does not count, so that head is not blamed for what base does as well.
            for side in (HEAD, BASE) if number and (number + buffers.seed) % 2 else (BASE, HEAD):
                with buffers.sides.active(contender.trees[side]):
                    try:
                        seconds[side].append(meter.batch(arms[side], buffers.restore))
                    except Exception as error:
                        raise SideFailed(side, f"outside a graph: {brief(error)}") from error
        if verify is not None:
            replays = {
                side: called(arm, partial(buffers.sides.active, contender.trees[side])) for side, arm in arms.items()
            }
            require_right(verify(arms, replays))
        # Other work on the host only adds time, so the fastest batches count.
        return of_fastest({side: [Timing(value) for value in times[1:]] for side, times in seconds.items()}, shared)
