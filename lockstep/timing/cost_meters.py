"""Define meters: objects that measure a cost of each variant besides its latency, such as energy or host time.

A cost is measured in some epochs of a comparison, after the epoch's rounds and controls. Rounds and controls are the
same with and without costs, so measuring costs does not change any latency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lockstep.record.model import CostEstimate
from lockstep.record.quantity import PAIRED
from lockstep.timing.arms.bound_arms import Arm, ArmReplay
from lockstep.timing.intervals import estimated

#: Number of epochs in which a cost is measured, out of the minimum number of epochs of a comparison. With more epochs,
#: a history would take too long.
EPOCHS = 5


@dataclass(frozen=True)
class Metered:
    """The result of one meter for one epoch.

    Attributes:
        numbers: the measurements, for ``CostMeter.add``.
        replays: the replays that ran, by arm. They hold the epoch's buffers, because their outputs are verified later.
    """

    numbers: Any
    replays: Mapping[str, ArmReplay] = field(default_factory=dict)


class CostMeter(Protocol):
    """Measures one cost of every arm; ``lockstep.timing.interleave.Comparison`` calls it in some of the epochs."""

    @property
    def name(self) -> str:
        """Return the name of the cost in ``lockstep.record.quantity.COSTS``.

        The time that a run spends on the cost is reported under this name.
        """

    def epoch(
        self, arms: Sequence[Arm], listener: Callable[[str, str], None], restore: Callable[[], None] | None
    ) -> Metered:
        """Measure the cost of each arm in one epoch.

        Args:
            arms: the arms, on the buffers of the epoch.
            listener, restore: see ``lockstep.timing.interleave.Source``.

        Raises:
            DeviceLost: an arm broke the device.
        """

    def add(self, measured: Any) -> None:
        """Store the numbers that ``epoch`` returned. Not called for an epoch that the comparison discards."""

    def estimates(self, arm: str) -> Mapping[str, CostEstimate]:
        """Return the estimates of the arm's quantities by name, in their units; {} if nothing was measured."""

    def reason(self, arm: str) -> str:
        """Return why the arm has no number of this cost; "" if it has one."""


@dataclass
class LoggedMeter:
    """Base class of meters of a cost that is one quantity: one positive number per arm and epoch."""

    name: str = field(default="", init=False)
    _logs: dict[str, list[float]] = field(default_factory=dict, init=False)
    _failures: dict[str, Exception] = field(default_factory=dict, init=False)

    def add(self, measured: Mapping[str, float]) -> None:
        """Store the numbers of an epoch, by arm."""
        for name, value in measured.items():
            self._logs.setdefault(name, []).append(math.log(value))

    def estimates(self, arm: str) -> Mapping[str, CostEstimate]:
        """Return the estimate of the arm's cost by its name; {} if the arm failed or was not measured."""
        usable = arm in self._logs and arm not in self._failures
        return {self.name: estimated(self._logs[arm])} if usable else {}

    def reason(self, arm: str) -> str:
        """Return why the arm has no number of this cost; "" if it has one."""
        if arm in self._failures:
            return str(self._failures[arm])
        return "" if arm in self._logs else "it was not measured"


def estimates_of(meters: Sequence[CostMeter], arm: str, paired: bool) -> dict[str, CostEstimate]:
    """Return the estimates of all quantities that the meters measured for an arm, by the quantity's name.

    Args:
        paired: whether to include ratios to the baseline.
    """
    estimates = {name: estimate for meter in meters for name, estimate in meter.estimates(arm).items()}
    return {name: estimate for name, estimate in estimates.items() if paired or name not in PAIRED.values()}


def reasons_of(meters: Sequence[CostMeter], arm: str) -> Iterator[str]:
    """Yield a sentence for each cost of the arm that has no number, with the reason."""
    for meter in meters:
        if reason := meter.reason(arm):
            yield f"no {meter.name}: {reason}"


def is_measured(epoch: int, epochs: int) -> bool:
    """Return whether costs, such as energy and host time, are measured in an epoch.

    Args:
        epoch: number of earlier epochs.
        epochs: minimum number of epochs of the comparison.
    """
    return epoch % math.ceil(epochs / EPOCHS) == 0
