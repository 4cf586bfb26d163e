"""Define a shift: a change of level as the detector follows it, by positions among the measured points of a series."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shift:
    """A reported change of level.

    Attributes:
        index: first point at the new level.
        earliest, latest: the points between which ``index`` lies with 95 % probability.
        reported_at: the newest point when the shift was first reported.
        reported_as: the index when the shift was first reported.
        plain: whether the shift is plainly there (``lockstep.detect.plain``), so that its place is known.
    """

    index: int
    earliest: int
    latest: int
    reported_at: int
    reported_as: int
    plain: bool
