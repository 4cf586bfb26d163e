"""Machines whose series scatter so much that small changes go unseen, so that a list without changes says little."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

#: Noise from commit to commit (standard deviation of the logarithm) from which on a series is said to be noisy.
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
        """Return what a reader of this machine's changes must know."""
        return (
            f"{machine}: {self.series} series scatter{'s' if self.series == 1 else ''} by {100 * NOISY:.0f} % or more "
            f"from commit to commit (median {100 * self.median:.0f} %): small changes are found late there or not at "
            "all; if unlike runners share this name, give each its own"
        )


def scatter_of(noise: Iterable[float]) -> Scatter | None:
    """Return the noisy among series with this noise (standard deviations of the logarithm); None if there are none."""
    noisy = [scale for scale in noise if scale >= NOISY]
    return Scatter(len(noisy), statistics.median(noisy)) if noisy else None
