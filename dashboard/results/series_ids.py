"""Names of series as numbers that every process and every cache agrees on."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashboard.results.guards import Unreadable

#: Characters of a parameter's value; what is longer is cut, and told apart by a digest.
LONGEST_VALUE = 300

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

    def of(self, benchmark: str, axes: Sequence[Sequence[str]]) -> Ids:
        """A number for each combination of the axes' values (asv's reprs), in ``itertools.product`` order.

        Raises:
            Unreadable: a value is not text, or two of an axis are the same.
        """
        key = (benchmark, *(tuple(axis) for axis in axes))
        try:
            found = self._sets.get(key)
        except TypeError as error:  # a list or an object where a value belongs
            raise Unreadable("has parameters that are not text") from error
        if found is None:
            found = self._sets[key] = self._made(benchmark, axes)
        return found

    def one(self, benchmark: str, values: Sequence[str]) -> int:
        """The number of a single series."""
        text = json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))
        number = digest(f"{benchmark}\n{text}")
        self.known[number] = (benchmark, text)
        return number

    def _made(self, benchmark: str, axes: Sequence[Sequence[str]]) -> Ids:
        clean = [[_value(text) for text in axis] for axis in axes]
        if any(len(set(axis)) < len(axis) for axis in clean):
            raise Unreadable("has a parameter with the same value twice")
        return np.array([self.one(benchmark, values) for values in itertools.product(*clean)], dtype=np.int64)


def _value(given: Any) -> str:
    """A parameter's value as one printable line of bearable length."""
    if not isinstance(given, str):
        raise Unreadable("has parameters that are not text")
    text = given if given.isprintable() else given.encode("unicode_escape").decode("ascii")
    if len(text) > LONGEST_VALUE:
        mark = blake2b(text.encode(), digest_size=4).hexdigest()
        return f"{text[: LONGEST_VALUE - 10]}…{mark}"
    return text
