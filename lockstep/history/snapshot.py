"""Answer queries about the results of a folder, as they were at one refresh."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.history.cache_manifest import Manifest
from lockstep.history.hex_digits import packed, unpacked
from lockstep.history.machine_index import MachineIndex
from lockstep.history.model import NO_NUMBER, STATES, Commit, Point, Run, Series, Trend
from lockstep.history.point_columns import COLUMNS
from lockstep.history.reader import Reader, Rows, errors, log_ratios
from lockstep.history.row_keys import KeyIndex
from lockstep.history.snapshot_contents import Contents
from lockstep.history.validation import Problem
from lockstep.timing.intervals import standard_error


class Results(Contents):
    """A snapshot: all results of a folder at one refresh. Several threads may use it.

    ``versions``: texts of the benchmarks' versions; ``Trend.version`` holds indices.
    """

    def __init__(self, reader: Reader, root: Path, parts: Path, manifest: Manifest, strays: Sequence[Problem]) -> None:
        super().__init__(root, parts, manifest, strays)
        self._reader = reader
        self._version_ids = np.array(sorted(self.version_texts), dtype=np.int64)
        self.versions: tuple[str, ...] = tuple(self.version_texts[number] for number in self._version_ids.tolist())
        self._machines = {name: MachineIndex(name, self) for name in self.machines}
        self._unknown = MachineIndex("", self)
        self._states: dict[str, str] = {}

    def _of(self, machine: str) -> MachineIndex:
        return self._machines.get(machine, self._unknown)

    def commits(self, machine: str | None = None) -> tuple[Commit, ...]:
        """Return the commits that have results, oldest first; () for an unknown machine.

        ``machine`` restricts them to the commits of the line (``lockstep.history.line``) that this machine measured. A
        machine that measured only commits apart has these.
        """
        return self.every_commit if machine is None else self._of(machine).commits

    def apart(self, machine: str) -> tuple[Commit, ...]:
        """Return the other commits that a machine measured, which are off the line, oldest first."""
        return self._of(machine).apart

    def on_line(self, machine: str) -> bool:
        """Return whether a machine measured a commit of the line."""
        return self._of(machine).on_line

    def place_of(self, machine: str, commit: str) -> int:
        """Return the index among ``commits(machine)`` of a commit (full hash), or of the fork point of a commit apart.

        The fork point is the newest measured commit of the line that is an ancestor. −1 if unknown.
        """
        index = self._of(machine)
        place = index.place.get(commit, -1)
        return place if place < len(index.commits) else index.place_of_base(index.apart[place - len(index.commits)])

    def commit_of(self, digits: int) -> str:
        """Return the full hash of a commit from its packed digits, 16 digits if it has no results, and "" for 0."""
        return self._hashes.get(digits, unpacked(digits))

    @cached_property
    def _hashes(self) -> dict[int, str]:
        return {packed(commit.hash): commit.hash for commit in self.every_commit}

    def runs_of(self, machine: str) -> tuple[Run, ...]:
        """Return the runs of a machine, one for each of ``commits(machine)``; () for an unknown machine."""
        index = self._of(machine)
        return tuple(self.runs[run] for run in index.runs[: len(index.commits)])

    def run_at(self, machine: str, commit: str) -> Run | None:
        """Return the run of a machine at a commit (full hash), also at a commit apart; ``None`` if there is none."""
        index = self._of(machine)
        return self.runs[index.runs[index.place[commit]]] if commit in index.place else None

    def state(self, machine: str) -> str:
        """Return a text that changes whenever the points of a machine change; "" for an unknown machine.

        Compare only texts from the same cache, because a rebuilt cache gives another text for the same results.
        """
        if machine in self._machines and machine not in self._states:
            index = self._machines[machine]
            ids = (tuple(row.id for row in self.rows[run]) for run in index.runs)
            parts = [f"{ids} {commit.hash} {commit.subject}" for ids, commit in zip(ids, index.commits, strict=False)]
            parts += [repr(self.benchmarks[name]) for name in sorted(index.benchmarks)]
            text = "\n".join(parts).encode("utf-8", "surrogateescape")
            self._states[machine] = blake2b(text, digest_size=16).hexdigest()
        return self._states.get(machine, "")

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
            index, ordered = self._machines[name], sorted(numbers)
            source = index.newest(last)
            portion = max(1, _MOST_POINTS // max(1, len(source.ids)))
            for start in range(0, len(ordered), portion):
                rows = self._reader.rows(source, series=ordered[start : start + portion], names=_OF_TREND)
                columns: Rows = {column: rows[column] for column in _UNCHANGED} | {
                    "version": np.searchsorted(self._version_ids, rows["version"]).astype(np.int32),
                    "error": errors(rows),
                    "log_ratio": log_ratios(rows),
                    "ratio_error": standard_error(rows["ratio_low"], rows["ratio_high"], rows["epochs"]),
                }
                # The rows are sorted by series and commit.
                starts = np.flatnonzero(np.diff(rows["series"], prepend=rows["series"][:1] - 1))
                for first, end in pairwise([*starts.tolist(), len(rows["series"])]):
                    own = index.series_at(int(rows["series"][first]))
                    points = {column: values[first:end] for column, values in columns.items()}
                    yield Trend(own, self.benchmarks[own.benchmark], **points)

    def count(self, machine: str) -> int:
        """Return the number of a machine's series; 0 for an unknown machine."""
        return self._of(machine).count

    def numbers(self, machine: str) -> Mapping[Series, int]:
        """Return the number of each series of a machine, the same in every cache; {} for an unknown machine."""
        return self._of(machine).numbers

    def points_of(self, machine: str, columns: Rows) -> Iterator[Point]:
        """Yield points of a machine, given by all of their ``columns``, in the same order.

        Rows are converted column by column, which is fast enough for the thousands of points on a page.
        """
        known = self._of(machine).series
        for start in range(0, len(columns.get("series", ())), _AT_ONCE):
            rows = {name: values[start : start + _AT_ONCE] for name, values in columns.items()}
            states = [STATES[state] for state in rows["state"].tolist()]
            made: dict[str, list[Any]] = {name: or_none(rows[name]) for name in _NUMBERS}
            made |= {name: rows[name].tolist() for name in _AS_STORED}
            made |= {
                "series": [known[series] for series in rows["series"].tolist()],
                "commit": rows["commit"].tolist(),
                "run": [self.runs[run] for run in rows["run"].tolist()],
                "state": states,
                "version": [self.versions[version] for version in rows["version"].tolist()],
                "error": or_none(rows["error"]),
                "log_ratio": or_none(log_ratios(rows)),
                "ratio_error": or_none(standard_error(rows["ratio_low"], rows["ratio_high"], rows["epochs"])),
                "samples": [tuple(samples) for samples in rows["samples"].tolist()],
                "reason": [
                    reason or NO_NUMBER.get(state, "")
                    for reason, state in zip(rows["reason"].tolist(), states, strict=True)
                ],
                "clock_reasons": [tuple(text.split("\n")) if text else () for text in rows["clock_reasons"].tolist()],
                "same_work_as": [self.commit_of(digits) for digits in rows["same_work_as"].tolist()],
                "gpu": [unpacked(digits)[:8] for digits in rows["gpu"].tolist()],
                "work": [unpacked(digits) for digits in rows["work"].tolist()],
            }
            yield from map(Point, *(made[field.name] for field in fields(Point)))

    def keys(self, machine: str) -> KeyIndex:
        """Return the keys of a machine's series; no keys for an unknown machine."""
        return self._of(machine).keys

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
            names: the names of stored columns (``lockstep.history.point_columns``).
            commit: the full hash of the commit whose points are returned; ``None`` for each series' newest point.
            series: the series of which every point is returned. If given, ``commit`` has no effect.
            apart: return the points of ``series`` at the commits apart instead of those on the line.

        Returns:
            the columns, and three more: "rank", the index of the point's series in ``series(machine)``; "commit", an
            index into ``commits(machine)`` followed by ``apart(machine)``; "error", the standard error of log("value").
            "run" and "version" hold indices into ``runs`` and ``versions``.
        """
        index, names = self._of(machine), {*_IDENTITY, *names}
        if series is not None:
            end = len(index.runs)
            source = index.every.between(len(index.commits), end) if apart else index.newest(None)
            numbers = [index.numbers[one_series] for one_series in series if one_series in index.numbers]
            rows = self._reader.rows(source, series=numbers, names=names) if numbers and len(source.ids) else {}
        elif commit is None:
            rows = self._reader.latest(index.newest(None), index.count, names) if index.commits else {}
        else:
            place = index.place.get(commit)
            source = index.every if place is None else index.every.between(place, place + 1)
            rows = self._reader.rows(source, runs=source.ids.tolist(), names=names) if place is not None else {}
        if not rows:
            return {}
        ranks = index.ranks(rows["series"]).astype(np.int32)
        rows["error"] = errors(rows)
        rows["version"] = np.searchsorted(self._version_ids, rows["version"]).astype(np.int32)
        order = np.lexsort((rows["commit"], ranks))
        columns = {name: rows.pop(name)[order] for name in tuple(rows)}
        return columns | {"rank": ranks[order]}

    def at(self, commit: str, machine: str | None = None) -> list[Point]:
        """Return every point at a commit (full hash), in the order of ``series()``.

        ``machine`` restricts them to the points of this machine.
        """
        machines = self.machines if machine is None else [machine]
        return [point for name in machines for point in self.points_of(name, self.columns(name, COLUMNS, commit))]


#: Columns that name a point, and those from which its number and its error follow.
_IDENTITY = ("series", "run", "version", "state", "value", "low", "high", "epochs", "same_work_as", "gpu")

#: The stored columns that a trend needs, and those that it takes as they are.
_OF_TREND = (*_IDENTITY, "ratio", "ratio_low", "ratio_high", "mde", "number", "repeat", "bridge")
_UNCHANGED = [field.name for field in fields(Trend)[2:] if field.name in ("commit", *_OF_TREND)]

#: Maximum number of points in memory while trends are read. A point takes about 200 bytes.
_MOST_POINTS = 300_000

#: Number of points that are made together. It limits the memory for their columns, which are lists of objects.
_AT_ONCE = 4096

#: Columns of a point in which NaN becomes ``None``, and those that are as they are stored.
_NUMBERS = [name for name, kind in COLUMNS.items() if kind == "number" and name not in ("flops", "bytes")]
_AS_STORED = [name for name, kind in COLUMNS.items() if kind in ("count", "time", "text")] + ["flops", "bytes"]


def or_none(numbers: NDArray[np.float64]) -> list[float | None]:
    """Return the numbers as a list with ``None`` for NaN."""
    return [None if number != number else number for number in numbers.tolist()]
