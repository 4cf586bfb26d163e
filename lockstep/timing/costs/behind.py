"""Time each call behind a fixed ordinary kernel, because real programs run a kernel behind other work.

A chain of calls of one variant favours a kernel that starts before the previous kernel has ended, because both belong
to the same variant. Behind a kernel that lets no other kernel start early, the gain is smaller: for the small products
on an H200, 1.10 to 1.17 times instead of 1.27 to 1.54 times.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from lockstep.timing.arms.bound_arms import Arm, BoundCall
from lockstep.timing.arms.captured_arms import Capturer
from lockstep.timing.costs.meter import CostMeter, Metered
from lockstep.timing.device import Device, DeviceLost
from lockstep.timing.rounds import Pace, time_rounds
from lockstep.timing.rules.changed_shared_code import Trusted
from lockstep.timing.rules.rule import Disqualified

#: Number of bytes that the fixed kernel reads, and number of bytes that it writes.
COPIED = 1 << 20

#: Number of measured rounds in an epoch, and the length of a replay relative to a usual replay.
ROUNDS = 4
PART = 0.5

#: Maximum number of pairs of buffers. The fixed kernel takes them in turn, and together they have twice the bytes of
#: the cache. So the kernel always reads memory, and takes the same time alone as before a call.
MOST_BUFFERS = 64

#: Name of the arm that runs only the fixed kernel; no variant has this name.
_ALONE = "~copies"


def fixed_kernel(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Write the negative of ``source`` into ``target``, and return ``target``.

    ``target.copy_(source)`` would not do: a CUDA graph gets a copy node for it, and a copy node runs no kernel.
    """
    return torch.neg(source, out=target)


def fixed_kernels(device: Device) -> tuple[BoundCall, ...]:
    """Return calls of ``fixed_kernel``, each on its own buffers; together they touch twice the bytes of the cache."""
    buffers = max(1, min(MOST_BUFFERS, device.cache_bytes // COPIED))
    sources = [torch.ones(COPIED // 4, device=device.torch_device) for _ in range(buffers)]
    return tuple(BoundCall(fixed_kernel, {"source": source, "target": torch.empty_like(source)}) for source in sources)


@dataclass
class Behind(CostMeter):
    """Measure the quantities ``behind`` and ``behind_speedup``: an arm's time when each call follows a fixed kernel,
    and the ratio of such times to the baseline.

    Each arm is captured again with the fixed kernel before each call. The time of the fixed kernel alone, measured in
    the same round, is subtracted. ``alike``: see ``lockstep.timing.arms.captured_arms.Capturer``.
    """

    device: Device
    pace: Pace
    trusted: Trusted
    kernels: Sequence[BoundCall] = ()
    alike: bool = False
    name: str = field(default="behind", init=False)

    def __post_init__(self) -> None:
        self._order = random.Random(0)  # a separate generator, so that the rounds of the latency keep their order
        self._pace = replace(self.pace, replay_s=PART * self.pace.replay_s, rounds=min(ROUNDS, self.pace.rounds))
        self._capturer = Capturer(self.device, self._pace.replay_s, self.trusted, self.alike, self._failures)
        self._kernels = tuple(self.kernels) or fixed_kernels(self.device)
        turn = itertools.cycle(self._kernels)
        self._kernel = lambda: next(turn)()

    def epoch(
        self, arms: Sequence[Arm], listener: Callable[[str, str], None], restore: Callable[[], None] | None
    ) -> Metered:
        """Time each arm with the fixed kernel before each call, and time the fixed kernel alone.

        The numbers are seconds per call without those of the fixed kernel, by arm and round. A number may be zero or
        negative if the fixed kernel was disturbed while it ran alone. An arm that breaks the device raises
        ``DeviceLost``, whose ``variant`` is "" if the arm is unknown.
        """
        alone = Arm(_ALONE, self._kernels)
        behind = [replace(arm, before=self._kernel) for arm in arms]
        try:
            captured = self._capturer.capture([alone, *behind], listener)
        except DeviceLost as lost:
            # The fixed kernel is correct, so an unknown arm broke the device before it.
            raise DeviceLost("" if lost.variant == _ALONE else lost.variant, lost.reason, lost.rule) from lost
        listener("time", "")
        try:
            timings = time_rounds(captured, self._pace, self.device, self._order, restore)
        except Disqualified as error:
            # The rounds of the latency decide whether an arm broke a rule; here only the epoch is lost.
            self._failures.setdefault("", error)
            return Metered({})
        copies = timings.pop(_ALONE, [])
        net = {
            name: [replace(one, seconds=one.seconds - copy.seconds) for one, copy in zip(each, copies, strict=True)]
            for name, each in timings.items()
            if copies
        }
        return Metered(net, {arm.name: arm.replay.once for arm in captured if arm.name in net})

    def reason(self, arm: str) -> str:
        """Return why the arm has no time behind the fixed kernel; "" if it has one."""
        if self.estimates(arm):
            return ""
        failure = self._failures.get(arm) or self._failures.get(_ALONE) or self._failures.get("")
        return str(failure) if failure else "the fixed kernel took as long alone as with a call behind it"
