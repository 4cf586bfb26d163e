"""Create the meters of the costs that a device can measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from lockstep.timing.arms.bound_arms import BoundCall
from lockstep.timing.costs.behind import Behind, fixed_kernels
from lockstep.timing.costs.energy import Counter, CudaMark, Energy, cuda_counter
from lockstep.timing.costs.host_time import NO_HOST, CudaSpinner, HostTime
from lockstep.timing.costs.meter import CostMeter
from lockstep.timing.device import Device
from lockstep.timing.rounds import Pace
from lockstep.timing.rules.changed_shared_code import Trusted


@dataclass
class Meters:
    """Creates the meters of one device.

    Attributes:
        spinner: keeps the GPU busy while host time is measured; ``None`` on a CPU, which has no separate host time.
        counter, new_mark: see ``lockstep.timing.costs.energy``; no counter if the device counts no energy.
    """

    device: Device
    spinner: CudaSpinner | None = None
    counter: Counter | None = None
    new_mark: Callable[[], CudaMark] = CudaMark

    @classmethod
    def on(cls, device: Device) -> Meters:
        """Return a ``Meters`` for those costs that the device can measure."""
        return cls(device) if device.kind == "cpu" else cls(device, CudaSpinner(), cuda_counter())

    @cached_property
    def _kernels(self) -> tuple[BoundCall, ...]:
        return fixed_kernels(self.device)

    def refusal(self, cost: str) -> str:
        """Return why a cost cannot be measured on this device, or ""."""
        if cost == "host" and self.spinner is None:
            return NO_HOST
        return "no GPU here that counts its energy" if cost == "energy" and self.counter is None else ""

    def new(self, cost: str, pace: Pace, trusted: Trusted, *, alike: bool = False) -> CostMeter:
        """Return a new meter of a cost that this device can measure: "behind", "host" or "energy"."""
        if cost == "host":
            assert self.spinner is not None
            return HostTime(self.device, self.spinner)
        if cost == "energy":
            assert self.counter is not None
            return Energy(self.device, pace, self.counter, self.new_mark, trusted)
        return Behind(self.device, pace, trusted, self._kernels, alike)
