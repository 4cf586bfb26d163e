"""Find the machines whose series scatter so much that small changes stay hidden.

On such a machine, the absence of alerts does not mean that nothing changed.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

#: Noise from commit to commit (standard deviation of the logarithm) from which a series counts as noisy.
NOISY = 0.05


@dataclass(frozen=True)
class Scatter:
    """How many series of a machine are noisy, and how noisy they are.

    Attributes:
        series: the number of noisy series.
        median: the median noise of these series, a standard deviation of the logarithm.
    """

    series: int
    median: float

    def sentence(self, machine: str) -> str:
        """Return a warning for readers that noise hides small changes on this machine."""
        return (
            f"{machine}: {self.series} series scatter{'s' if self.series == 1 else ''} by {100 * NOISY:.0f} % or more "
            f"from commit to commit (median {100 * self.median:.0f} %): small changes are found late there or not at "
            "all; if different runners share this machine name, give each runner its own name"
        )


def scatter_of(noise: Iterable[float]) -> Scatter | None:
    """Count the noisy series; ``None`` if no series is noisy.

    ``noise`` is the noise of each series of a machine (standard deviation of the logarithm).
    """
    noisy = [scale for scale in noise if scale >= NOISY]
    return Scatter(len(noisy), statistics.median(noisy)) if noisy else None
