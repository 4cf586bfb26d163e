"""Define what the detector knows of one series, and convert it to bytes for a database, and back.

The bytes are not trusted. So they hold only numbers, and no names, objects or code. Forged bytes can cause wrong
numbers, but nothing worse.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.constants import WINDOW

#: A block of new points begins at most ``WINDOW`` points before the first of them, and its noise comes from the
#: ``WINDOW`` points before the block.
NEEDED = 2 * WINDOW


@dataclass(frozen=True, slots=True)
class Shift:
    """A reported change of level.

    Attributes:
        index: first point at the new level.
        earliest, latest: the points between which ``index`` lies with 95 % probability.
        reported_at: the newest point when the shift was first reported.
        reported_as: the index when the shift was first reported.
        plain: whether the shift is plainly there (``lockstep.detect.plain_steps``), so that its place is known.
    """

    index: int
    earliest: int
    latest: int
    reported_at: int
    reported_as: int
    plain: bool


# ``astuple`` takes ten times as long.
_SHIFT = tuple(field.name for field in fields(Shift))


@dataclass(frozen=True, eq=False)
class SeriesState:
    """What the detector knows of a series besides its points.

    Attributes:
        done: number of measured points that were analysed.
        variance, slope, shifts: see ``lockstep.detect.detector.Detector``.
        squares: see ``Detector``, of the last ``NEEDED`` points.
    """

    done: int
    variance: float
    slope: float
    shifts: Sequence[Shift]
    squares: NDArray[np.float64]

    def to_bytes(self) -> bytes:
        """Return the state as bytes."""
        shifts = [[getattr(shift, name) for name in _SHIFT] for shift in self.shifts]
        head = json.dumps([self.done, self.variance, self.slope, *shifts], default=int)
        return head.encode() + b"\n" + self.squares.tobytes()

    @classmethod
    def from_bytes(cls, content: bytes) -> SeriesState:
        """Return the state that ``to_bytes`` converted.

        Raises:
            ValueError, TypeError: the bytes do not have the form that ``to_bytes`` gives.
        """
        head, _, squares = content.partition(b"\n")
        done, variance, slope, *shifts = json.loads(head)
        return cls(done, variance, slope, [Shift(*shift) for shift in shifts], np.frombuffer(squares))
