"""Find the runs and the series of one machine, with the numbers under which they are stored."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from lockstep.history.display_names import axes, natural
from lockstep.history.model import Commit, Series
from lockstep.history.reader import Source
from lockstep.history.row_keys import KeyIndex, index_keys
from lockstep.history.series_ids import Ids
from lockstep.history.snapshot_contents import Contents


class MachineIndex:
    """The runs and the series of one machine; of a machine without results if the name is unknown.

    Attributes:
        commits, apart: see ``Results``.
        runs: the index in ``Results.runs`` of the run of each of ``commits``, then of each of ``apart``.
        on_line: whether a commit of the machine is on the line. If not, all its commits are shown in order.
        every: the source of all points. Commits apart have the indices that follow those of ``commits``.
    """

    def __init__(self, name: str, contents: Contents) -> None:
        self._contents = contents
        self._name = name
        self._made: dict[int, Series] = {}
        self._place = {commit.hash: place for place, commit in enumerate(contents.every_commit)}
        runs = [index for index, run in enumerate(contents.runs) if run.machine == name]
        place_of = {index: self._place[contents.runs[index].commit] for index in runs}
        self.on_line = not all(contents.every_commit[place].apart for place in place_of.values())
        split = {index: self.on_line and contents.every_commit[place].apart for index, place in place_of.items()}
        self.runs = sorted(runs, key=lambda index: (split[index], place_of[index]))
        commits = [contents.every_commit[place_of[index]] for index in self.runs]
        on_line = len(commits) - sum(split.values())
        self.commits, self.apart = tuple(commits[:on_line]), tuple(commits[on_line:])
        #: Index in ``commits`` followed by ``apart`` of each commit.
        self.place = {commit.hash: place for place, commit in enumerate(commits)}
        self.every = contents.source(enumerate(self.runs))

    def place_of_base(self, commit: Commit) -> int:
        """Return the index among ``commits`` of the newest one that is an ancestor of a commit apart; −1 if none is."""
        if commit.base not in self._place:
            return -1
        return bisect_right(self.commits, self._place[commit.base], key=lambda known: self._place[known.hash]) - 1

    def newest(self, commits: int | None) -> Source:
        """Return the source of the points at the newest commits of the line; ``None`` for all of its commits."""
        end = len(self.commits)
        return self.every.between(0 if commits is None else max(end - commits, 0), end)

    @cached_property
    def _numbers(self) -> list[int]:
        layouts = {row.layout for index in self.runs for row in self._contents.rows[index]}
        stored = [self._contents.layouts[layout] for layout in layouts]
        numbers: list[int] = np.unique(np.concatenate([np.empty(0, np.int64), *stored])).tolist()
        return numbers

    @property
    def count(self) -> int:
        """The number of the machine's series."""
        return len(self._numbers)

    @cached_property
    def benchmarks(self) -> set[str]:
        """Names of all benchmarks that the machine has measured."""
        return {self._contents.known[number][0] for number in self._numbers}

    def series_at(self, number: int) -> Series:
        """Return the series with this number. For a few series this is faster than ``series``, which sorts all."""
        series = self._made.get(number)
        if series is None:
            name, values = self._contents.known[number]
            named = axes(self._contents.benchmarks[name], values) if values else ()
            series = self._made[number] = Series(self._name, name, named)
        return series

    @cached_property
    def series(self) -> dict[int, Series]:
        """All series of the machine by number, in the order of benchmark and parameters."""
        made = {number: self.series_at(number) for number in self._numbers}
        keys = {text: natural(text) for series in made.values() for _, text in series.axes}
        order = {number: (one.benchmark, [keys[text] for _, text in one.axes]) for number, one in made.items()}
        self._made = {number: made[number] for number in sorted(made, key=order.__getitem__)}
        return self._made

    def series_of(self, benchmark: str) -> Sequence[Series]:
        """Return the series of a benchmark, in order of parameters; () for an unknown benchmark."""
        start = bisect_left(self.keys.series, benchmark, key=_BENCHMARK)
        return self.keys.series[start : bisect_right(self.keys.series, benchmark, start, key=_BENCHMARK)]

    @cached_property
    def numbers(self) -> dict[Series, int]:
        """The stored number of each of the machine's series."""
        return {series: number for number, series in self.series.items()}

    @cached_property
    def keys(self) -> KeyIndex:
        """The keys of the machine's series."""
        return index_keys(tuple(self.series.values()), self._contents.benchmarks)

    def ranks(self, numbers: Ids) -> NDArray[np.intp]:
        """Return the rank of each series, given by its stored number, in the order of ``series``."""
        rising, rank = self._ranked
        ranks: NDArray[np.intp] = rank[np.searchsorted(rising, numbers)]
        return ranks

    @cached_property
    def _ranked(self) -> tuple[Ids, NDArray[np.intp]]:
        """The stored numbers of the series in ascending order, and the rank of each of them in ``series``."""
        numbers = np.fromiter(self.series, dtype=np.int64, count=len(self.series))
        order = np.argsort(numbers)
        return numbers[order], order


_BENCHMARK = attrgetter("benchmark")
