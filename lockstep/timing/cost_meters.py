"""What the meters of costs have in common: a cost is measured in epochs of a comparison, after the epoch's rounds.

The rounds come first and are the same with and without costs, so that costs change no latency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lockstep.record.model import CostEstimate
from lockstep.timing.arms import Arm

#: Number of epochs, of those that a comparison takes at least, in which a cost is measured. More take longer than a
#: history has.
EPOCHS = 5


class CostMeter(Protocol):
    """Measures one cost of every arm."""

    @property
    def name(self) -> str:
        """The cost, a name of ``lockstep.record.quantity.COSTS``; also the stage that its time counts for."""

    def epoch(
        self, arms: Sequence[Arm], listener: Callable[[str, str], None], restore: Callable[[], None] | None
    ) -> Any:
        """Measure the arms of an epoch, and return what ``add`` takes.

        Args:
            arms: the arms, on the buffers of the epoch.
            listener, restore: see ``lockstep.timing.interleave.compare``.

        Raises:
            DeviceLost: an arm broke the device.
        """

    def add(self, measured: Any) -> None:
        """Count what ``epoch`` returned; an epoch that is void is not added."""

    def estimates(self, arm: str) -> Mapping[str, CostEstimate]:
        """Return the arm's quantities by name, in their units; {} if it has none."""

    def reason(self, arm: str) -> str:
        """Return why the arm has no number; "" if it has one."""


@dataclass(frozen=True)
class Unavailable:
    """The meter of a cost that this machine cannot measure."""

    name: str
    why: str

    def epoch(
        self, arms: Sequence[Arm], listener: Callable[[str, str], None], restore: Callable[[], None] | None
    ) -> None:
        """Measure nothing."""

    def add(self, measured: Any) -> None:
        """Count nothing."""

    def estimates(self, arm: str) -> Mapping[str, CostEstimate]:
        """Return nothing."""
        return {}

    def reason(self, arm: str) -> str:
        """Return why this machine cannot measure it."""
        return self.why


def is_measured(epoch: int, epochs: int) -> bool:
    """Return whether costs are measured in an epoch.

    Args:
        epoch: number of epochs before it.
        epochs: number of epochs that the comparison takes at least.
    """
    return epoch % math.ceil(epochs / EPOCHS) == 0
