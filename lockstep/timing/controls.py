"""Controls: fixed work that is timed around the epochs. If the time of a control moves, the machine changed.

The controls' best rates are the machine's measured limits, from which floors are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

import torch

from lockstep.timing.device import Device, Replay, Timing


@dataclass(frozen=True)
class Control:
    """A fixed piece of work that is timed between epochs, to notice when the machine itself becomes slower.

    Attributes:
        name: "copy", "matmul" or "empty".
        work: bytes or operations in one call; 0 for a control without a rate.
        unit: "B/s" or "FLOP/s", the unit of ``work`` over time.
    """

    name: str
    replay: Replay
    calls: int
    work: float
    unit: str


@dataclass
class Controls:
    """The controls (pieces of fixed work) of one device, and the seconds that each control took so far."""

    controls: tuple[Control, ...]
    history: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, device: Device) -> Controls:
        """Create a device's controls, fixed work to time: a copy, a matrix product and an almost empty kernel.

        Each is timed three times, because ``floor`` is needed before the first epoch.
        """
        cuda = device.kind == "cuda"
        torch_device = device.torch_device
        megabytes, side = (256, 4096) if cuda else (64, 512)
        dtype = torch.bfloat16 if cuda else torch.float32
        source = torch.randn(megabytes << 18, device=torch_device)
        target = torch.empty_like(source)
        left = torch.randn(side, side, device=torch_device).to(dtype)
        right = torch.randn(side, side, device=torch_device).to(dtype)
        product = torch.empty(side, side, device=torch_device, dtype=dtype)
        nothing = torch.zeros(1, device=torch_device)
        pool = device.new_pool()

        def control(name: str, call: Callable[[], object], calls: int, work: float, unit: str) -> Control:
            call()  # cuBLAS creates its handle and workspace here, not inside the graph
            return Control(name, device.capture([call] * calls, pool), calls, work, unit)

        controls = cls(
            (
                control("copy", lambda: target.copy_(source), 10 if cuda else 1, 2.0 * source.nbytes, "B/s"),
                control(
                    "matmul",
                    lambda: torch.mm(left, right, out=product),
                    8 if cuda else 1,
                    2.0 * side**3,
                    "FLOP/s",
                ),
                control("empty", lambda: nothing.add_(1.0), 1000 if cuda else 200, 0.0, ""),
            )
        )
        for _ in range(3):
            controls.take(device)
        return controls

    def take(self, device: Device) -> dict[str, Timing]:
        """Time each control once, store the seconds, and return seconds per call and clock by the control's name."""
        # The first replay after a pause includes the launch latency, so it does not count.
        replays = [control.replay for control in self.controls]
        timings = device.time([replays[0], *replays])[1:]
        now = {
            c.name: Timing(timing.seconds / c.calls, timing.sm_mhz)
            for c, timing in zip(self.controls, timings, strict=True)
        }
        for name, timing in now.items():
            self.history.setdefault(name, []).append(timing.seconds)
        return now

    def moved(self, before: dict[str, Timing], after: dict[str, Timing]) -> str:
        """Return as text which control (fixed work that is timed between epochs) changed by more than its noise, or "".

        A control counts as changed only if both its seconds and its clock cycles changed. If only the seconds changed,
        the clock changed, for the arms too; ``lockstep.timing.clock_correction`` handles that.
        """
        for name, timing in before.items():
            change = abs(math.log(after[name].seconds / timing.seconds))
            cycles = after[name].seconds * after[name].sm_mhz / (timing.seconds * timing.sm_mhz)
            if not math.isnan(cycles):
                change = min(change, abs(math.log(cycles)))
            if change > self.tolerance(name):
                return f"control {name} moved by {math.expm1(change):.1%}"
        return ""

    def tolerance(self, name: str) -> float:
        """Return the largest change (log units) of a control's time, between two timings, that counts as noise.

        The result is six robust standard deviations (1.4826 · MAD) of the control's changes so far, but at least 10 %,
        and 20 % until ten changes are known. With 5 %, a quarter of an H200's series lost epochs: single replays of the
        copy and the empty kernel were 6–7 % off. Drift below the tolerance cancels in the ratios of a round.
        """
        values = self.history.get(name, [])
        changes = [math.log(b / a) for a, b in pairwise(values)]
        if len(changes) < 10:
            return 0.2
        return max(0.1, 6 * 1.4826 * median(abs(change) for change in changes))

    def summary(self) -> dict[str, dict[str, float | str]]:
        """Return each control's median seconds, spread (robust standard deviation over median) and rate."""
        rows: dict[str, dict[str, float | str]] = {}
        for control in self.controls:
            values = self.history.get(control.name, [])
            if not values:
                continue
            centre = median(values)
            spread = 1.4826 * median(abs(value - centre) for value in values) / centre
            rows[control.name] = {
                "seconds": centre,
                "spread": spread,
                "rate": control.work / centre,
                "unit": control.unit,
            }
        return rows

    def floor(self, flops: float, moved_bytes: float) -> float:
        """Return the floor of a task: its seconds at the highest rates that the copy and the matrix product reached.

        The fastest replays count, because a floor is what the hardware can do, not what it does on average.
        """
        return max(moved_bytes / self.best_rate("copy"), flops / self.best_rate("matmul"))

    def best_rate(self, name: str) -> float:
        """Return the bytes or operations per second of a control's fastest replay."""
        [work] = [control.work for control in self.controls if control.name == name]
        return work / min(self.history[name])
