"""Define meters: objects that measure a cost of each variant besides its latency, such as energy or host time.

A cost is measured in some epochs of a comparison, after the epoch's rounds and controls. Rounds and controls are the
same with and without costs, so measuring costs does not change any latency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lockstep.record.model import TWIN, CostEstimate
from lockstep.record.quantity import PAIRED
from lockstep.timing.arms.bound_arms import Arm, ArmReplay
from lockstep.timing.clock_correction import midmean
from lockstep.timing.device import Timing
from lockstep.timing.estimates import Series, rival_of
from lockstep.timing.intervals import estimated

#: Number of epochs in which a cost is measured, out of the minimum number of epochs of a comparison. With more epochs,
#: a history would take too long.
EPOCHS = 5


@dataclass(frozen=True)
class Metered:
    """The result of one meter for one epoch.

    Attributes:
        numbers: the measurements, by arm: one, or one for each round. A meter of energy gives joules as seconds.
        replays: the replays that ran, by arm. They hold the epoch's buffers, because their outputs are verified later.
    """

    numbers: Mapping[str, Sequence[Timing]]
    replays: Mapping[str, ArmReplay] = field(default_factory=dict)


@dataclass
class CostMeter:
    """Measures one cost of every arm; ``lockstep.timing.epochs.Comparison`` calls it in some of the epochs.

    Attributes:
        name: name of the cost in ``lockstep.record.quantity.COSTS``. The time that a run spends on the cost is reported
            under this name.
        reference_mhz: for each arm, the clock that its ratio is normalised to.
    """

    name: str = field(default="", init=False)
    baseline: str = field(default="", init=False)
    reference_mhz: Mapping[str, float] = field(default_factory=dict, init=False)
    _series: dict[str, Series] = field(default_factory=dict, init=False)
    _failures: dict[str, Exception] = field(default_factory=dict, init=False)

    def epoch(
        self, arms: Sequence[Arm], listener: Callable[[str, str], None], restore: Callable[[], None] | None
    ) -> Metered:
        """Measure the cost of each arm in an epoch (see ``epochs.Source``); ``DeviceLost`` if an arm breaks the GPU."""
        raise NotImplementedError

    def add(self, numbers: Mapping[str, Sequence[Timing]]) -> None:
        """Store the numbers that ``epoch`` returned. Not called for an epoch that the comparison discards."""
        for name, own in numbers.items():
            clocks = self.reference_mhz.get(name), self.reference_mhz.get(self.baseline)
            series = self._series.setdefault(name, Series(clocks, again=name.endswith(TWIN)))
            series.add(own, numbers.get(rival_of(name, self.baseline), ()))

    def estimates(self, arm: str) -> Mapping[str, CostEstimate]:
        """Return the estimates of the arm's quantities by name, in their units; {} if nothing was measured."""
        series = self._series.get(arm)
        if series is None or not series.latency or arm in self._failures:
            return {}
        ratios = [midmean(epoch) for epoch in series.ratios()] if self.name in PAIRED else []
        paired = {PAIRED[self.name]: estimated(ratios)} if ratios else {}
        return {self.name: estimated(series.latency)} | paired

    def reason(self, arm: str) -> str:
        """Return why the arm has no number of this cost; "" if it has one."""
        if arm in self._failures:
            return str(self._failures[arm])
        return "" if self.estimates(arm) else "it was not measured"


def estimates_of(meters: Sequence[CostMeter], arm: str, paired: bool) -> dict[str, CostEstimate]:
    """Return the estimates of all quantities that the meters measured for an arm, by the quantity's name."""
    estimates = {name: estimate for meter in meters for name, estimate in meter.estimates(arm).items()}
    return {name: estimate for name, estimate in estimates.items() if paired or name not in PAIRED.values()}


def reasons_of(meters: Sequence[CostMeter], arm: str) -> Iterator[str]:
    """Yield a sentence for each cost of the arm that has no number, with the reason."""
    for meter in meters:
        if reason := meter.reason(arm):
            yield f"no {meter.name}: {reason}"


def is_measured(epoch: int, epochs: int) -> bool:
    """Return whether costs are measured in an epoch after ``epoch`` others, of at least ``epochs`` in a comparison."""
    return epoch % math.ceil(epochs / EPOCHS) == 0
