"""Names of series as numbers that every process and every cache agrees on."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.history.validation import short_name

#: Series that are remembered before ``trim`` forgets them all.
_MOST_REMEMBERED = 500_000

Ids = NDArray[np.int64]


def digest(text: str) -> int:
    """A signed 64-bit number for a text: of a million series, two collide once in 40 million caches."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


class SeriesIds:
    """Numbers for a benchmark's series, remembered because nearly every file has the same.

    ``known`` maps every number given out to the benchmark's name and its parameters' values as JSON.
    """

    def __init__(self) -> None:
        self.known: dict[int, tuple[str, str]] = {}
        self._sets: dict[tuple[Any, ...], Ids] = {}

    def trim(self) -> None:
        """Forget everything if it has become much."""
        if len(self.known) > _MOST_REMEMBERED:
            self._sets.clear()
            self.known.clear()

    def of(self, benchmark: str, axes: Sequence[Sequence[Any]]) -> Ids:
        """A number for each combination of the axes' values (asv's reprs), in ``itertools.product`` order.

        Two combinations have the same number if an axis holds a value twice.
        """
        clean = [tuple(map(_value, axis)) for axis in axes]
        key = (benchmark, *clean)
        found = self._sets.get(key)
        if found is None:
            numbers = [self.one(benchmark, values) for values in itertools.product(*clean)]
            found = self._sets[key] = np.array(numbers, dtype=np.int64)
        return found

    def one(self, benchmark: str, values: Sequence[str]) -> int:
        """The number of a single series."""
        text = json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))
        number = digest(f"{benchmark}\n{text}")
        self.known[number] = (benchmark, text)
        return number


def _value(given: Any) -> str:
    """A parameter's value as one printable line of bearable length; asv writes texts, others what JSON has."""
    return short_name(given if isinstance(given, str) else json.dumps(given, sort_keys=True))
