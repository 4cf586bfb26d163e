"""Time calls behind a fixed ordinary kernel, as they run behind other work.

A chain of calls of one variant flatters a kernel that starts before the one ahead of it ends, because both are its own.
Behind a kernel that lets nothing start early the gain is smaller: 1.10 to 1.17 instead of 1.27 to 1.54 times for the
small products of an H200.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import torch

from lockstep.record.model import TWIN, CostEstimate
from lockstep.timing.arms import Arm, BoundCall
from lockstep.timing.captured_arms import capture_arms
from lockstep.timing.clock_correction import Pair, midmean
from lockstep.timing.device import Device, DeviceLost, Timing
from lockstep.timing.estimates import Series
from lockstep.timing.interleave import Plan, rival_of, rounds_that_fit, time_rounds
from lockstep.timing.intervals import estimated
from lockstep.timing.rules import Disqualified
from lockstep.timing.trusted import Trusted

#: Bytes that the fixed kernel reads, and writes.
COPIED = 1 << 20

#: Rounds of an epoch that count, and the part of a usual replay's seconds that a replay takes.
ROUNDS = 4
PART = 0.5

#: Name of the arm of fixed kernels alone; no variant has it.
_ALONE = "~copies"

Epoch = Mapping[str, Sequence[Timing]]


def fixed_kernel(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Write the negative of ``source`` into ``target``, and return it.

    It is not a copy: torch copies a whole tensor by the driver, whose node in a graph is not a kernel.
    """
    return torch.neg(source, out=target)


@dataclass
class Behind:
    """The meter of ``behind`` and ``behind_speedup``.

    Each arm is captured again with the fixed kernel before each call. The seconds of a call behind it are those of the
    pair, less the seconds of the kernel in a replay that has nothing else, from the same round.

    Attributes:
        device, plan: where and how long to measure.
        baseline: the arm that ratios refer to.
        names: the arms.
        reference_mhz: clock that an arm's ratio is normalised to, by arm.
        trusted: see ``lockstep.timing.interleave.compare``.
    """

    device: Device
    plan: Plan
    baseline: str
    names: Sequence[str]
    reference_mhz: Mapping[str, float]
    trusted: Trusted
    name: str = field(default="behind", init=False)
    _failures: dict[str, Exception] = field(default_factory=dict, init=False)
    _per_call: dict[str, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        usual = self.reference_mhz
        clock = usual.get(self.baseline)
        self._series = {name: Series((usual.get(name), clock), again=name.endswith(TWIN)) for name in self.names}
        self._order = random.Random(0)  # its own, so that the rounds of the latency keep their order
        self._plan = replace(self.plan, replay_s=PART * self.plan.replay_s, rounds=min(ROUNDS, self.plan.rounds))
        source = torch.ones(COPIED // 4, device=self.device.torch_device)
        target = torch.empty_like(source)
        self._kernel = BoundCall(fixed_kernel, {"source": source, "target": target})

    def epoch(
        self, arms: Sequence[Arm], listener: Callable[[str, str], None], restore: Callable[[], None] | None
    ) -> Epoch:
        """Time each arm behind the kernel, and the kernel alone; return seconds of a call by arm and round.

        Raises:
            DeviceLost: an arm broke the device; ``variant`` is "" if it is not known which.
        """
        alone = Arm(_ALONE, (self._kernel,) * len(arms[0].calls))
        behind = [replace(arm, before=self._kernel) for arm in arms if arm.name not in self._failures]
        per_call, failures, replay_s = self._per_call, self._failures, self._plan.replay_s
        try:
            captured = capture_arms([alone, *behind], self.device, replay_s, per_call, failures, self.trusted, listener)
        except DeviceLost as lost:
            # The kernel alone breaks no device: something before it did.
            raise DeviceLost("" if lost.variant == _ALONE else lost.variant, lost.reason, lost.rule) from lost
        listener("time", "")
        try:
            rounds = rounds_that_fit(captured, self._per_call, self._plan)
            return time_rounds(captured, rounds, self.device, self._order, restore)
        except Disqualified as error:
            # The rounds of the latency decide whether an arm broke a rule. Here an epoch is lost.
            self._failures.setdefault("", error)
            return {}

    def add(self, measured: Epoch) -> None:
        """Count an epoch: its latency is a median of rounds, its ratio is taken round by round."""
        alone = measured.get(_ALONE, ())
        seconds = {
            name: [replace(pair, seconds=pair.seconds - copy.seconds) for pair, copy in zip(own, alone, strict=True)]
            for name, own in measured.items()
            if alone and name in self._series
        }
        for name, mine in seconds.items():
            series = self._series[name]
            # A round that was disturbed while the kernel ran alone may leave nothing, which has no logarithm.
            logs = [math.log(one.seconds) for one in mine if one.seconds > 0]
            if logs:
                series.latency.append(median(logs))
            rival = seconds.get(rival_of(name, self.baseline), ())
            both = [pair for pair in zip(mine, rival, strict=False) if min(one.seconds for one in pair) > 0]
            if both:
                series.pairs.append(Pair(*zip(*both, strict=True)))

    def estimates(self, arm: str) -> Mapping[str, CostEstimate]:
        """Return ``behind`` in seconds, and ``behind_speedup`` where the baseline has a number as well."""
        series = self._series[arm]
        if not series.latency:
            return {}
        ratios = [midmean(epoch) for epoch in series.ratios()]
        found = {"behind": estimated(series.latency)}
        return found | ({"behind_speedup": estimated(ratios)} if ratios else {})

    def reason(self, arm: str) -> str:
        """Return why the arm has no time behind the kernel."""
        if self._series[arm].latency:
            return ""
        failure = self._failures.get(arm) or self._failures.get(_ALONE) or self._failures.get("")
        return str(failure) if failure else "no more than the time of the kernel alone"
