"""Define a level shift: a change of a series as the detector follows it, reported or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lockstep.detect.run_lengths import Floats

Silence = Literal["", "modes", "slope"]


@dataclass(frozen=True, slots=True)
class Shift:
    """A change of level in a series, reported or not.

    Attributes:
        index, earliest, latest, reported_at: see ``findings.Change``.
        silent: why the shift is not reported; "" if it is reported.
        unsettled: whether the points from ``index`` on scatter too much to give one level.
    """

    index: int
    earliest: int
    latest: int
    reported_at: int
    silent: Silence = ""
    unsettled: bool = False


def after_last(shifts: Sequence[Shift], values: Floats, *places: int) -> tuple[int, ...]:
    """Return the possible places of a new change, moved behind the last change if they lie before it.

    A place is at least the second point of the last change's level, because its first point belongs to the last change.

    Args:
        shifts: the changes before the change at ``places``.
        values: log values of the series [commits]; NaN where a commit has none.
        places: indices.
    """
    if not shifts or min(places) > shifts[-1].index:
        return places
    first = shifts[-1].index + 1
    first += int(np.isfinite(values[first:]).argmax())
    return tuple(max(place, first) for place in places)
