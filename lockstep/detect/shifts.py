"""Level shifts: the changes of a series as the detector follows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Silence = Literal["", "modes", "slope"]


@dataclass(frozen=True, slots=True)
class Shift:
    """A level that another level followed.

    Attributes:
        index, earliest, latest, reported_at: see ``findings.Change``.
        silent: why the shift is not reported; "" if it is.
        unsettled: the points from ``index`` on agree on no level.
    """

    index: int
    earliest: int
    latest: int
    reported_at: int
    silent: Silence = ""
    unsettled: bool = False
