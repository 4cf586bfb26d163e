"""The interface of meters of costs. A cost is measured in some epochs of a comparison, after the epoch's rounds.

The rounds come first and are the same with and without costs, so measuring costs does not change any latency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lockstep.record.model import CostEstimate
from lockstep.timing.arms import Arm

#: Number of epochs in which a cost is measured, out of the minimum number of epochs of a comparison. With more epochs,
#: a history would take too long.
EPOCHS = 5


class CostMeter(Protocol):
    """Measures one cost of every arm."""

    @property
    def name(self) -> str:
        """Return the name of the cost in ``lockstep.record.quantity.COSTS``; the time spent on it is reported under
        this name.
        """

    def epoch(
        self, arms: Sequence[Arm], listener: Callable[[str, str], None], restore: Callable[[], None] | None
    ) -> Any:
        """Measure the arms of an epoch, and return the measurements for ``add``.

        Args:
            arms: the arms, on the buffers of the epoch.
            listener, restore: see ``lockstep.timing.interleave.compare``.

        Raises:
            DeviceLost: an arm broke the device.
        """

    def add(self, measured: Any) -> None:
        """Add the measurements that ``epoch`` returned. They are not added if the epoch is void."""

    def estimates(self, arm: str) -> Mapping[str, CostEstimate]:
        """Return the arm's quantities by name, in their units; {} if the arm has none."""

    def reason(self, arm: str) -> str:
        """Return why the arm has no number; "" if it has one."""


@dataclass(frozen=True)
class Unavailable:
    """A meter of a cost that this machine cannot measure."""

    name: str
    why: str

    def epoch(
        self, arms: Sequence[Arm], listener: Callable[[str, str], None], restore: Callable[[], None] | None
    ) -> None:
        """Measure nothing."""

    def add(self, measured: Any) -> None:
        """Add nothing."""

    def estimates(self, arm: str) -> Mapping[str, CostEstimate]:
        """Return no quantities."""
        return {}

    def reason(self, arm: str) -> str:
        """Return why this machine cannot measure the cost."""
        return self.why


def is_measured(epoch: int, epochs: int) -> bool:
    """Return whether costs are measured in an epoch.

    Args:
        epoch: number of earlier epochs.
        epochs: minimum number of epochs of the comparison.
    """
    return epoch % math.ceil(epochs / EPOCHS) == 0
