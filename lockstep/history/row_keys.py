"""Map each series of a machine to its key, and to the number of a stored row that the series shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from lockstep.history.display_names import natural
from lockstep.history.model import Benchmark, Ints, Part, Series, SeriesKey

#: Parts in the order of their codes in arrays.
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, eq=False)
class KeyIndex:
    """The keys of a machine's series. Series that show different numbers of the same rows share a key.

    Attributes:
        series: all series in the order of ``Results.series``.
        benchmarks: for each series in order, its benchmark.
        keys: each key once, in the order of the series.
        key_at: for each series in order, the index of its key in ``keys``.
        part_at: for each series in order, the code of its part, see ``PARTS``.
    """

    series: Sequence[Series]
    benchmarks: Sequence[Benchmark]
    keys: tuple[SeriesKey, ...]
    key_at: Ints
    part_at: NDArray[np.uint8]

    @cached_property
    def place(self) -> Mapping[SeriesKey, int]:
        """Index of each series key in ``keys``."""
        return {key: place for place, key in enumerate(self.keys)}

    @cached_property
    def of_suite(self) -> Mapping[str, Sequence[SeriesKey]]:
        """The keys of each suite, in the order of ``keys``."""
        keys: dict[str, list[SeriesKey]] = defaultdict(list)
        for key in self.keys:
            keys[key.suite].append(key)
        return dict(keys)

    def series_of(self, keys: Iterable[SeriesKey]) -> Sequence[Series]:
        """Return all series with these keys, in the order of ``series``. Unknown keys have no series."""
        places = [self.place[key] for key in keys if key in self.place]
        return [self.series[rank] for rank in np.flatnonzero(np.isin(self.key_at, places)).tolist()]

    @cached_property
    def exact(self) -> NDArray[np.bool_]:
        """For each series in order, whether it is an exact quantity."""
        return np.array([benchmark.exact for benchmark in self.benchmarks], dtype=bool)

    @cached_property
    def foreign(self) -> NDArray[np.bool_]:
        """For each series in order, whether its benchmark is another project's."""
        return np.array([not benchmark.of_suite for benchmark in self.benchmarks], dtype=bool)

    @cached_property
    def shape(self) -> Ints:
        """The rank of each series key by suite, then case (small before large), then cache state."""
        order = {case: natural(case) for case in {key.case for key in self.keys}}
        return _ranks([(key.suite, order[key.case], key.l2) for key in self.keys])

    @cached_property
    def suite(self) -> Ints:
        """The rank of each series key by suite."""
        return _ranks([key.suite for key in self.keys])

    @cached_property
    def case(self) -> Ints:
        """The rank of each series key by case, small before large."""
        order = {case: (natural(case), case) for case in {key.case for key in self.keys}}
        return _ranks([order[key.case] for key in self.keys])

    @cached_property
    def variant(self) -> Ints:
        """The rank of each series key by variant."""
        return _ranks([key.variant for key in self.keys])


def _ranks(values: Sequence[Any]) -> Ints:
    """Return the rank of each value among the distinct values, from 0 on; equal values have equal ranks."""
    rank = {value: place for place, value in enumerate(sorted(set(values)))}
    return np.array([rank[value] for value in values], dtype=np.int32)


def index_keys(series: Sequence[Series], benchmarks: Mapping[str, Benchmark]) -> KeyIndex:
    """Return the keys of a machine's series. ``series`` is in the order of ``Results.series``."""
    own = tuple(benchmarks[one_series.benchmark] for one_series in series)
    place: dict[SeriesKey, int] = {}
    keys = map(key_of, series, own)
    key_at = np.array([place.setdefault(key, len(place)) for key in keys], dtype=np.int32)
    part_at = np.array([PARTS.index(benchmark.part) for benchmark in own], dtype=np.uint8)
    return KeyIndex(series, own, tuple(place), key_at, part_at)


def key_of(series: Series, benchmark: Benchmark) -> SeriesKey:
    """Return the key that pages, comparisons and addresses use for a series of this benchmark."""
    if not series.axes:
        return SeriesKey(series.machine, benchmark.key_suite)
    named = dict(series.axes)
    variant, l2 = named.pop("variant", ""), named.pop("l2", "")
    case = named["case"] if list(named) == ["case"] else ",".join(f"{name}={value}" for name, value in named.items())
    return SeriesKey(series.machine, benchmark.key_suite, variant, case, l2)
