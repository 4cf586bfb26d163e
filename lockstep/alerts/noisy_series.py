"""Find machines whose series scatter so much that small changes stay hidden. There, "no changes" says little."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

#: Noise from commit to commit (standard deviation of the logarithm) from which a series counts as noisy.
NOISY = 0.05


@dataclass(frozen=True)
class Scatter:
    """Noisy series of one machine.

    Attributes:
        series: the number of noisy series.
        median: the median noise of these series, a standard deviation of the logarithm.
    """

    series: int
    median: float

    def sentence(self, machine: str) -> str:
        """Return a warning for readers of this machine's changes."""
        return (
            f"{machine}: {self.series} series scatter{'s' if self.series == 1 else ''} by {100 * NOISY:.0f} % or more "
            f"from commit to commit (median {100 * self.median:.0f} %): small changes are found late there or not at "
            "all; if unlike runners share this name, give each its own"
        )


def scatter_of(noise: Iterable[float]) -> Scatter | None:
    """Return the noisy series among all series, given each series' noise (standard deviation of the logarithm).

    ``None`` if no series is noisy.
    """
    noisy = [scale for scale in noise if scale >= NOISY]
    return Scatter(len(noisy), statistics.median(noisy)) if noisy else None
