"""Answer queries about the results of a folder, as they were at one refresh."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.history.columns import COLUMNS
from lockstep.history.hex_digits import packed, unpacked
from lockstep.history.model import (
    NO_NUMBER,
    STATES,
    Benchmark,
    Commit,
    Ints,
    Machine,
    Point,
    Run,
    Series,
    SeriesKey,
    Trend,
)
from lockstep.history.reader import Reader, Rows, Source, errors, log_ratios, lookup
from lockstep.history.row_keys import KeyIndex, index_keys, key_of
from lockstep.history.snapshot_contents import Contents, MachineIndex
from lockstep.timing.intervals import standard_error


class Results:
    """A snapshot: all results of a folder at one refresh. Several threads may use it.

    Attributes:
        root: the folder.
        machines: the machines that have points, by name.
        runs: every run, for each machine that shows it. The line of a later branch is a machine of its own.
        benchmarks: the benchmarks, by asv's name.
        versions: texts of the benchmarks' versions; ``Trend.version`` holds indices.
        files: the number of result files, readable or not.
        problems: the problems of files or parts of files that could not be read.
        notes: the accepted differences from asv's format.
        refused: why rules ``[[same]]`` of thresholds.toml were not applied, as sentences without full stops.
        machines_were: the names of today of joined machines, by the earlier names.
        renamed: the earlier series and benchmark, and those of today, of each joined series; without the machine.
        line_note: what git's history could not tell about the order of commits, in sentences; "" if nothing.
    """

    def __init__(self, contents: Contents, reader: Reader) -> None:
        self.root: Path = contents.root
        self.machines: Mapping[str, Machine] = MappingProxyType(dict(contents.machines))
        self.runs: tuple[Run, ...] = contents.runs
        self.benchmarks: Mapping[str, Benchmark] = contents.benchmarks
        self.files: int = contents.files
        self.line_note: str = contents.line_note
        self.problems = tuple(problem for problem in contents.problems if problem.weight != "note")
        self.notes = tuple(problem for problem in contents.problems if problem.weight == "note")
        self._version_ids = np.array(sorted(contents.versions), dtype=np.int64)
        self.versions: tuple[str, ...] = tuple(contents.versions[number] for number in self._version_ids.tolist())
        self.refused: tuple[str, ...] = contents.refused
        self.machines_were: Mapping[str, str] = contents.machines_were
        self.renamed = contents.renamed
        self._contents = contents
        self._reader = reader
        self._machines = {name: MachineIndex(name, contents) for name in self.machines}
        self._states: dict[str, str] = {}

    def commits(self, machine: str | None = None) -> tuple[Commit, ...]:
        """Return the commits that have results, oldest first; () for an unknown machine.

        ``machine`` restricts them to the commits of the line (``lockstep.history.line``) that this machine measured. A
        machine that measured only commits apart has these.
        """
        if machine is None:
            return self._contents.commits
        return self._machines[machine].commits if machine in self._machines else ()

    def apart(self, machine: str) -> tuple[Commit, ...]:
        """Return the other commits that a machine measured, which are off the line, oldest first."""
        return self._machines[machine].apart if machine in self._machines else ()

    def on_line(self, machine: str) -> bool:
        """Return whether a machine measured a commit of the line."""
        return machine in self._machines and self._machines[machine].on_line

    def begins(self, machine: str) -> int:
        """Return the index among ``commits(machine)`` of the first commit that no line of an earlier branch holds."""
        branch = self.machines[machine].branch
        return next(at for at, commit in enumerate(self.commits(machine)) if not branch or commit.lines[0] == branch)

    def place_of(self, machine: str, commit: str) -> int:
        """Return the index among ``commits(machine)`` of a commit (full hash), or of the fork point of a commit apart.

        The fork point is the newest measured commit of the line that is an ancestor. −1 if unknown.
        """
        index = self._machines.get(machine)
        if index is None:
            return -1
        place = next((at for at, known in enumerate(index.commits) if known.hash == commit), None)
        if place is not None:
            return place
        apart = next((known for known in index.apart if known.hash == commit), None)
        return -1 if apart is None else index.place_of_base(apart)

    def commit_of(self, digits: int) -> str:
        """Return the full hash of a commit from its packed digits, 16 digits if it has no results, and "" for 0."""
        return self._hashes.get(digits, unpacked(digits))

    @cached_property
    def _hashes(self) -> dict[int, str]:
        return {packed(commit.hash): commit.hash for commit in self._contents.commits}

    def runs_of(self, machine: str) -> tuple[Run, ...]:
        """Return the runs of a machine, one for each of ``commits(machine)``; () for an unknown machine."""
        return tuple(self.runs[index] for index in self._machines[machine].runs) if machine in self._machines else ()

    def run_at(self, machine: str, commit: str) -> Run | None:
        """Return the run of a machine at a commit (full hash), also at a commit apart; ``None`` if there is none."""
        return next((run for run in self.runs if (run.machine, run.commit) == (machine, commit)), None)

    def state(self, machine: str) -> str:
        """Return a text that changes whenever the points of a machine change; "" for an unknown machine.

        Compare only texts from the same cache, because a rebuilt cache gives another text for the same results.
        """
        index = self._machines.get(machine)
        if index is None:
            return ""
        if machine not in self._states:
            runs = zip(index.runs, index.commits, strict=True)
            parts = [f"{index.ids(run)} {commit.hash} {commit.subject}" for run, commit in runs]
            parts.append(repr(sorted(self._contents.joined.series.items())) if self._contents.joined.series else "")
            parts += [repr(self.benchmarks[name]) for name in sorted(index.benchmarks)]
            text = "\n".join(parts).encode("utf-8", "surrogateescape")
            self._states[machine] = blake2b(text, digest_size=16).hexdigest()
        return self._states[machine]

    def series(
        self,
        machine: str | None = None,
        family: str | None = None,
        suite: str | None = None,
        benchmark: str | None = None,
        quantity: str | None = None,
        axes: Mapping[str, str] | None = None,
    ) -> tuple[Series, ...]:
        """Return the series that were ever measured, sorted by machine, benchmark and parameters.

        Args:
            machine, family, suite, benchmark, quantity: exact names, see ``Machine`` and ``Benchmark``; ``None`` for
                all.
            axes: required value by parameter name.
        """
        required_axes = (axes or {}).items()
        indices = [index for name, index in self._machines.items() if machine in (None, name)]
        # Pages query one benchmark after another, so a query by benchmark must not go through all series.
        named = (
            series
            for index in indices
            for series in (index.series.values() if benchmark is None else index.series_of(benchmark))
        )
        if required_axes:
            named = (series for series in named if all(pair in series.axes for pair in required_axes))
        if not (family is None and suite is None and quantity is None):
            benchmark_names = {
                entry.name
                for entry in self.benchmarks.values()
                if family in (None, entry.family)
                and suite in (None, entry.suite)
                and quantity in (None, entry.quantity)
            }
            named = (series for series in named if series.benchmark in benchmark_names)
        return tuple(named)

    def trends(self, series: Iterable[Series] | None = None, last: int | None = None) -> Iterator[Trend]:
        """Yield the trend of each series that has points, machine by machine, in any order within a machine.

        Request many series in one call, because the call reads all of them in few passes.

        Args:
            series: the series; ``None`` for all.
            last: the number of the machine's newest commits to cover; ``None`` for all commits.
        """
        requested: dict[str, set[int]] = defaultdict(set)
        if series is None:
            requested |= {name: set(index.series) for name, index in self._machines.items()}
        else:
            for one_series in series:
                index = self._machines.get(one_series.machine)
                if index and one_series in index.numbers:
                    requested[one_series.machine].add(index.numbers[one_series])
        for name, numbers in requested.items():
            index = self._machines[name]
            source = index.source if last is None else index.newest(last)
            for batch in self._reader.numbers(source, sorted(numbers)):
                yield from self._trends(batch, index)

    def count(self, machine: str) -> int:
        """Return the number of a machine's series; 0 for an unknown machine."""
        return self._machines[machine].count if machine in self._machines else 0

    def numbers(self, machine: str) -> Mapping[Series, int]:
        """Return the number of each series of a machine, the same in every cache; {} for an unknown machine."""
        return self._machines[machine].numbers if machine in self._machines else {}

    def points_of(self, machine: str, columns: Rows) -> Iterator[Point]:
        """Yield points of a machine, given by all of their ``columns``, in the same order.

        Rows are converted column by column, which is fast enough for the thousands of points on a page.
        """
        for start in range(0, len(columns.get("series", ())), _AT_ONCE):
            portion = {name: values[start : start + _AT_ONCE] for name, values in columns.items()}
            yield from self._portion(portion, self._machines[machine])

    def keys(self, machine: str) -> KeyIndex:
        """Return the keys of a machine's series; no keys for an unknown machine."""
        return self._machines[machine].keys if machine in self._machines else index_keys((), {})

    def current(self, key: SeriesKey) -> SeriesKey:
        """Return the key of today of a series that an old address names, see ``KeyIndex.current``."""
        contents = self._contents
        machine = contents.machines_were.get(key.machine, key.machine)
        plain = key._replace(machine="")
        today = next((key_of(*new) for old, new in self.renamed if key_of(*old) == plain), plain)
        suite = contents.benchmarks_were.get(today.suite, today.suite)
        return self.keys(machine).current(today._replace(machine=machine, suite=suite))

    def columns(
        self,
        machine: str,
        names: Collection[str],
        commit: str | None = None,
        series: Iterable[Series] | None = None,
        apart: bool = False,
    ) -> Rows:
        """Return points of a machine as columns, sorted as ``series()`` and then by commit; {} if there are no points.

        Args:
            machine: the machine whose points are returned; an unknown machine has no points.
            names: the names of stored columns (``lockstep.history.columns``).
            commit: the full hash of the commit whose points are returned; ``None`` for each series' newest point.
            series: the series of which every point is returned. If given, ``commit`` has no effect.
            apart: return the points of ``series`` at the commits apart instead of those on the line.

        Returns:
            the columns, and three more: "rank", the index of the point's series in ``series(machine)``; "commit", an
            index into ``commits(machine)`` followed by ``apart(machine)``; "error", the standard error of log("value").
            "version" holds indices into ``versions``.
        """
        index = self._machines.get(machine)
        if index is None or (apart and not index.apart):
            return {}
        names = {*_IDENTITY, *names}
        apart = apart or any(known.hash == commit for known in index.apart)
        source = index.apart_source if apart else index.source
        if series is not None:
            numbers = [index.numbers[one_series] for one_series in series if one_series in index.numbers]
            rows = self._reader.rows(source, series=numbers, names=names) if numbers else {}
        elif commit is None:
            rows = self._reader.latest(source, index.count, names)
        else:
            ids = index.ids_at.get(commit)
            rows = self._reader.rows(source, runs=ids, names=names) if ids else {}
        if not rows:
            return {}
        order, commits, ranks = _in_order(rows, index, source)
        rows["error"] = errors(rows)
        rows["version"] = np.searchsorted(self._version_ids, rows["version"]).astype(np.int32)
        columns = {name: rows.pop(name)[order] for name in tuple(rows)}
        return columns | {"rank": ranks, "commit": commits}

    def latest(self, machine: str) -> list[Point]:
        """Return the newest point of each series of a machine, in the order of ``series()``.

        [] for an unknown machine.
        """
        return list(self.points_of(machine, self.columns(machine, COLUMNS)))

    def at(self, commit: str, machine: str | None = None) -> list[Point]:
        """Return every point at a commit (full hash), in the order of ``series()``.

        ``machine`` restricts them to the points of this machine.
        """
        machines = self.machines if machine is None else [machine]
        return [point for name in machines for point in self.points_of(name, self.columns(name, COLUMNS, commit))]

    def page(self, machine: str, commit: str, start: int, count: int) -> tuple[list[Point], int]:
        """Return one page of a machine's points at a commit, and how many points all pages together have.

        The points are in the order of ``series()``.

        Args:
            machine: one of ``machines``.
            commit: full hash.
            start: index of the first point to return.
            count: the maximum number of points to return.
        """
        columns = self.columns(machine, COLUMNS, commit)
        page = {name: values[start : start + count] for name, values in columns.items()}
        return list(self.points_of(machine, page)), len(columns.get("series", ()))

    def _trends(self, columns: Rows, index: MachineIndex) -> Iterator[Trend]:
        numbers = columns.pop("series")
        columns["version"] = np.searchsorted(self._version_ids, columns["version"]).astype(np.int32)
        starts = np.flatnonzero(np.append(True, np.diff(numbers))) if len(numbers) else numbers
        for start, end in pairwise([*starts.tolist(), len(numbers)]):
            series = index.series_at(int(numbers[start]))
            points = {name: values[start:end] for name, values in columns.items()}
            yield Trend(series, self.benchmarks[series.benchmark], **points)

    def _portion(self, rows: Rows, index: MachineIndex) -> Iterator[Point]:
        """Yield a ``Point`` for each of some rows."""
        runs = index.runs_of(rows["run"])
        states = [STATES[state] for state in rows["state"].tolist()]
        columns: dict[str, list[Any]] = {name: _known(rows[name]) for name in _NUMBERS}
        columns |= {name: rows[name].tolist() for name in _AS_STORED}
        columns |= {
            "series": [index.series[series] for series in rows["series"].tolist()],
            "commit": rows["commit"].tolist(),
            "run": [self.runs[run] for run in runs.tolist()],
            "state": states,
            "version": [self.versions[version] for version in rows["version"].tolist()],
            "error": _known(rows["error"]),
            "log_ratio": _known(log_ratios(rows)),
            "ratio_error": _known(standard_error(rows["ratio_low"], rows["ratio_high"], rows["epochs"])),
            "samples": [tuple(samples) for samples in rows["samples"].tolist()],
            "reason": [
                reason or NO_NUMBER.get(state, "")
                for reason, state in zip(rows["reason"].tolist(), states, strict=True)
            ],
            "clock_reasons": [tuple(text.split("\n")) if text else () for text in rows["clock_reasons"].tolist()],
            "same_work_as": [self.commit_of(digits) for digits in rows["same_work_as"].tolist()],
            "gpu": [unpacked(digits)[:8] for digits in rows["gpu"].tolist()],
        }
        return map(Point, *(columns[field.name] for field in fields(Point)))


#: Columns that name a point, and those from which its number and its error follow.
_IDENTITY = ("series", "run", "version", "state", "value", "low", "high", "epochs", "same_work_as", "gpu")

#: Number of points that are made together. It limits the memory for their columns, which are lists of objects.
_AT_ONCE = 4096

_NUMBERS = (
    *("value", "low", "high", "mde", "q25", "q75", "floor_s"),
    *("sm_mhz", "sm_mhz_low", "temperature_c", "power_w"),
    *("check_error", "worst_row", "deterministic"),
)
_AS_STORED = (
    *("number", "repeat", "epochs", "note", "baseline", "flops", "bytes"),
    *("floor_source", "bound", "code", "measured_at"),
)


def _in_order(rows: Rows, index: MachineIndex, source: Source) -> tuple[NDArray[np.intp], Ints, Ints]:
    """Return the indices that sort the rows by series and commit, and the sorted rows' commits and series."""
    place, _ = lookup(source.ids, rows["run"])
    commits, ranks = source.commits[place], index.ranks(rows["series"]).astype(np.int32)
    order = np.lexsort((commits, ranks))
    return order, commits[order], ranks[order]


def _known(numbers: NDArray[np.float64]) -> list[float | None]:
    """Return the numbers as a list with ``None`` for NaN."""
    missing = np.isnan(numbers)
    if missing.all():
        return [None] * len(numbers)
    objects = numbers.astype(object)
    objects[missing] = None
    known: list[float | None] = objects.tolist()
    return known
