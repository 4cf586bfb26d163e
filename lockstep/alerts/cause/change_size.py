"""Define what the size of a change says: its sense, its share, and the change of the number itself."""

from __future__ import annotations

import math

from lockstep.detect.findings import Measure, Sense
from lockstep.record.quantity import Better
from lockstep.record.series_name import SeriesName


class ChangeSize:
    """The size of a change of a series, which ``Step`` and ``FoundChange`` inherit.

    Attributes:
        series: the name of the series.
        size: by how much the series became *worse*; if ``better`` is "neither", by how much its number grew. If
            ``measure`` is "ratio", the natural log of a factor: 0.05 is 5 % slower. Otherwise a difference in the
            unit of the series.
        low, high: interval of ``size``.
        better: the better direction of the number.
        measure: how ``size`` and its interval are measured.
        old, new: the numbers of an exact quantity, or the levels of a series whose changes are differences; otherwise
            ``None``.
    """

    __slots__ = ()

    series: SeriesName
    size: float
    low: float
    high: float
    better: Better
    measure: Measure
    old: float | None
    new: float | None

    @property
    def sense(self) -> Sense:
        """Whether the series became worse or better, or only changed because no direction is better."""
        if self.better == "neither":
            return "changed"
        return "worse" if self.size > 0 else "better"

    @property
    def counted(self) -> bool:
        """Whether the quantity is exact, so that ``old`` and ``new`` are its numbers and every difference counts."""
        return self.old is not None and self.measure == "ratio"

    @property
    def scale(self) -> float:
        """The divisor that makes ``size`` relative: 1 for a ratio, the larger level for a difference."""
        if self.measure == "ratio":
            return 1.0
        return max(abs(self.old or 0.0), abs(self.new or 0.0)) or 1.0

    @property
    def weight(self) -> float:
        """The size for comparisons between series: the log of a ratio, or a difference divided by the larger level."""
        return self.size / self.scale

    @property
    def share(self) -> float:
        """The relative change of the number without its sign: 0.3 if ``GB/s`` fall by 30 %."""
        return abs(self.weight) if self.measure == "difference" else abs(math.expm1(self.of_number(self.size)))

    def of_number(self, size: float) -> float:
        """Convert a size that is positive for worse into one that is positive for a larger number.

        The speedup of a Lockstep suite stands for a time, so its sizes are those of the time.
        """
        return -size if self.better == "higher" and not self.series.ours else size
