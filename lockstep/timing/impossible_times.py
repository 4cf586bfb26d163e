"""Refuse times that the hardware cannot reach, whatever the kernel does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from lockstep.record.model import Estimate
from lockstep.suite.definition import Cost
from lockstep.timing.device import Device
from lockstep.timing.estimates import Outcome
from lockstep.timing.rules.rule import Disqualified, Rule

#: Operations per cycle of one SM on dense 16-bit matrices, by compute capability: dense peak / (SMs · clock). Sources:
#: NVIDIA's whitepapers and datasheets. A100: 312 TFLOP/s, 108 SMs, 1410 MHz. A10: 125, 72, 1695. L40S: 362, 142,
#: 2490. H100 SXM: 989, 132, 1830. B200: 2250, 148, 1850. RTX 5090: 419, 170, 2407 (accumulated in fp16).
FLOPS_A_CYCLE = {(8, 0): 2048, (8, 6): 1024, (8, 9): 1024, (9, 0): 4096, (10, 0): 8192, (10, 3): 8192, (12, 0): 1024}

#: Bytes per cycle from the L2 to one SM (A100 whitepaper: 5120 B per cycle from its 80 L2 slices; 64 B per port of an
#: SM).
L2_BYTES_A_CYCLE = 64

#: Memory reads may be at most this many times as fast as the fastest copy of the same run. On an H200 a copy reaches
#: 4.2 TB/s of the datasheet's 4.8, and no cold kernel of 1,800 records exceeded 0.89 of the copy's rate.
OVER_COPY = 1.25

#: Factor by which a rate may exceed the peak, because clocks are rounded.
OVER_PEAK = 1.05

#: No x86 core computes more than 2048 operations per cycle (Intel AMX, int8) or runs above 6.2 GHz.
CPU_FLOPS_A_CORE = 2048 * 6.2e9


@dataclass(frozen=True)
class Limits:
    """Upper bounds on what a device can do, and the work of a case.

    Attributes:
        l2: "cold" if every byte comes from memory, "warm" if it comes from the L2.
        narrowest: bytes of the smallest element among the inputs. Tensor cores compute on 8-bit elements at twice the
            16-bit rate, on packed 4-bit values at four times.
        copy_rate: bytes a second of the fastest copy in this run; None on a CPU.
        flops_a_cycle: operations per cycle on 16-bit matrices, of all SMs; None if unknown.
        l2_bytes_a_cycle: bytes per cycle read from the L2 by all SMs; None if unknown.
        flops: operations per second at any clock; None if unknown.
    """

    cost: Cost
    l2: str
    narrowest: int
    copy_rate: float | None
    flops_a_cycle: float | None = None
    l2_bytes_a_cycle: float | None = None
    flops: float | None = None

    @classmethod
    def of(cls, device: Device, cost: Cost, l2: str, narrowest: int, copy_rate: float | None) -> Limits:
        """Return the limits of a case on this device. The limits of an unknown GPU are unknown."""
        if device.kind == "cpu":
            return cls(cost, l2, narrowest, copy_rate, flops=CPU_FLOPS_A_CORE * torch.get_num_threads())
        properties = torch.cuda.get_device_properties(device.torch_device)
        each = FLOPS_A_CYCLE.get((properties.major, properties.minor))
        count = properties.multi_processor_count
        peak = None if each is None else float(each * count)
        return cls(cost, l2, narrowest, copy_rate, peak, float(L2_BYTES_A_CYCLE * count))

    def plausible(
        self, outcomes: Mapping[str, Outcome], baseline: str
    ) -> tuple[dict[str, Outcome], dict[str, Exception]]:
        """Return the outcomes whose times the hardware can reach, and an error for each other arm.

        If the baseline's time is impossible, no outcome has a speedup.
        """
        refused: dict[str, Exception] = {}
        for arm, outcome in outcomes.items():
            try:
                self.refuse_impossible(arm, outcome.latency, outcome.clocks.sm_mhz)
            except Disqualified as error:
                refused[arm] = error
        possible = {arm: outcome for arm, outcome in outcomes.items() if arm not in refused}
        if baseline in refused:
            possible = {arm: replace(one, speedup=None, speedup_samples=()) for arm, one in possible.items()}
        return possible, refused

    def refuse_impossible(self, variant: str, latency: Estimate, sm_mhz: float | None) -> None:
        """Refuse a latency whose whole interval lies below the minimum time that the device needs for the work.

        ``sm_mhz``: clock while the variant ran; None if unknown. ``Disqualified`` (``IMPOSSIBLE_TIME``) gives the
        measured and the minimum time.
        """
        cycles = sm_mhz * 1e6 if sm_mhz else None
        wider = 4.0 if self.narrowest == 1 else 1.0
        bounds: dict[str, float] = {}
        if self.flops:
            bounds["operations at the peak of any such processor"] = self.cost.flops / (self.flops * OVER_PEAK)
        if cycles and self.flops_a_cycle:
            peak = self.flops_a_cycle * cycles * wider
            work = f"operations at the peak of {peak / 1e12:.0f} TFLOP/s at {sm_mhz:.0f} MHz"
            bounds[work] = self.cost.flops / (peak * OVER_PEAK)
        if cycles and self.l2_bytes_a_cycle and self.l2 == "warm":
            bounds["bytes out of the L2"] = self.cost.bytes / (self.l2_bytes_a_cycle * cycles * OVER_PEAK)
        if self.copy_rate and self.l2 == "cold":
            work = f"bytes at {OVER_COPY} times this run's fastest copy ({self.copy_rate / 1e12:.2f} TB/s)"
            bounds[work] = self.cost.bytes / (self.copy_rate * OVER_COPY)
        for work, least_s in bounds.items():
            if latency.high < least_s:
                raise Disqualified(
                    Rule.IMPOSSIBLE_TIME,
                    f"{variant} takes {latency.value:.3g} s a call, but its {work} take {least_s:.3g} s",
                )
