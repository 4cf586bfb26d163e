"""Assign numbers to series. Every process and every cache assigns the same number to the same series."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.history.parameter_text import parameter_texts

Ids = NDArray[np.int64]

#: The name of a benchmark, and the values of its parameters.
Parameters = tuple[str, tuple[str, ...]]


def digest(text: str) -> int:
    """Return a signed 64-bit digest of a text.

    Of caches with a million series each, one in 40 million has two series with the same digest.
    """
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


@cache
def series_id(benchmark: str, values: tuple[str, ...]) -> int:
    """Return the number of the series of a benchmark with these parameter values."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return digest(f"{benchmark}\n{text}")


def series_ids(benchmark: str, axes: Sequence[Sequence[Any]]) -> tuple[Ids, Mapping[int, Parameters]]:
    """Return the number of the series for each combination of parameter values, and the parameters by number.

    ``axes``: the values (asv's reprs) of each parameter. Combinations come in ``itertools.product`` order. If a
    parameter has the same value twice, the numbers of the two combinations are equal.
    """
    return _series_ids(benchmark, tuple(map(parameter_texts, axes)))


@cache
def _series_ids(benchmark: str, axes: tuple[tuple[str, ...], ...]) -> tuple[Ids, Mapping[int, Parameters]]:
    combinations = list(itertools.product(*axes))
    numbers = [series_id(benchmark, values) for values in combinations]
    known = {number: (benchmark, values) for number, values in zip(numbers, combinations, strict=True)}
    return np.array(numbers, dtype=np.int64), known


def forget() -> None:
    """Forget the numbers of all series, which are remembered because nearly every file has the same series."""
    series_id.cache_clear()
    _series_ids.cache_clear()
