"""Assign numbers to series. Every process and every cache assigns the same number to the same series."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.history.parameter_text import parameter_texts

#: Number of remembered series above which ``trim`` forgets all of them.
_MOST_REMEMBERED = 500_000

Ids = NDArray[np.int64]


def digest(text: str) -> int:
    """Return a signed 64-bit digest of a text.

    Of caches with a million series each, one in 40 million has two series with the same digest.
    """
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


class SeriesIds:
    """Assigns numbers to series, and remembers them because nearly every file has the same series.

    ``known`` maps every number to the benchmark's name and the parameter values.
    """

    def __init__(self) -> None:
        self.known: dict[int, tuple[str, tuple[str, ...]]] = {}
        self._sets: dict[tuple[Any, ...], Ids] = {}

    def trim(self) -> None:
        """Forget the numbers of all series if more than ``_MOST_REMEMBERED`` are known."""
        if len(self.known) > _MOST_REMEMBERED:
            self._sets.clear()
            self.known.clear()

    def of(self, benchmark: str, axes: Sequence[Sequence[Any]]) -> Ids:
        """Return the number of the series for each combination of parameter values, in ``itertools.product`` order.

        ``axes`` holds the values (asv's reprs) of each parameter. If a parameter has the same value twice, the numbers
        of the two combinations are equal.
        """
        clean = [parameter_texts(axis) for axis in axes]
        key = (benchmark, *clean)
        ids = self._sets.get(key)
        if ids is None:
            numbers = [self.number(benchmark, values) for values in itertools.product(*clean)]
            ids = self._sets[key] = np.array(numbers, dtype=np.int64)
        return ids

    def number(self, benchmark: str, values: Sequence[str]) -> int:
        """Return the number of the series of a benchmark with these parameter values."""
        text = json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))
        number = digest(f"{benchmark}\n{text}")
        self.known[number] = (benchmark, tuple(values))
        return number
