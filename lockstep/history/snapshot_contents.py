"""Read everything in a snapshot except its points: machines, runs, commits, benchmarks and series."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.history import display_names as names
from lockstep.history.benchmarks_file import benchmark
from lockstep.history.cache_manifest import Manifest, RunRow
from lockstep.history.joined_series import Joined, same_series, version_joins
from lockstep.history.machine_identity import Folders, hardware, joined_folders, machine_names
from lockstep.history.model import Benchmark, Commit, Control, Machine, Run, Series
from lockstep.history.problems import Problem
from lockstep.history.reader import Reader, Source
from lockstep.history.row_keys import KeyIndex, index_keys
from lockstep.history.series_ids import Ids
from lockstep.suite.thresholds import Same


@dataclass(frozen=True)
class Contents:
    """All data of a snapshot except the points.

    Attributes:
        machines, runs, benchmarks, problems: see ``Results``.
        commits: all commits that have results, oldest first.
        line_note: see ``Results``.
        rows: the manifest's rows for each of ``runs``. A run has several rows, the newest last, if its commit was
            measured several times.
        files: the number of result files.
        parts: parquet files by folder.
        layouts: series numbers by the layout that a row names.
        known: benchmark and parameter values of each series by number.
        joined: which stored series belong to which series.
        refused: why rules ``[[same]]`` were not applied, as sentences.
        renamed: see ``Results``.
        machines_were, benchmarks_were: the names of today of what was joined, by the earlier names.
        versions: texts of the benchmark versions by number.
    """

    root: Path
    machines: Mapping[str, Machine]
    commits: tuple[Commit, ...]
    line_note: str
    runs: tuple[Run, ...]
    rows: Sequence[Sequence[RunRow]]
    files: int
    parts: Mapping[str, tuple[Path, ...]]
    layouts: Mapping[str, Ids]
    benchmarks: Mapping[str, Benchmark]
    known: Mapping[int, tuple[str, tuple[str, ...]]]
    versions: Mapping[int, str]
    problems: tuple[Problem, ...]
    joined: Joined = field(default_factory=Joined)
    refused: tuple[str, ...] = ()
    machines_were: Mapping[str, str] = field(default_factory=dict)
    benchmarks_were: Mapping[str, str] = field(default_factory=dict)
    renamed: tuple[tuple[tuple[Series, Benchmark], tuple[Series, Benchmark]], ...] = ()


class MachineIndex:
    """The runs and the series of one machine, with the numbers under which they are stored."""

    def __init__(self, name: str, contents: Contents) -> None:
        self._contents = contents
        self._name = name
        self._made: dict[int, Series] = {}
        place = {commit.hash: place for place, commit in enumerate(contents.commits)}
        run_indices = [index for index, run in enumerate(contents.runs) if run.machine == name]
        run_indices.sort(key=lambda index: place[contents.runs[index].commit])
        every = [contents.commits[place[contents.runs[index].commit]] for index in run_indices]
        #: Whether a commit of the machine is on the line. If not, all its commits are shown in order.
        self.on_line = not all(commit.apart for commit in every)
        split = [self.on_line and commit.apart for commit in every]
        #: Indices into the snapshot's runs, in the order of commits.
        self.runs = [index for index, apart in zip(run_indices, split, strict=True) if not apart]
        self.apart_runs = [index for index, apart in zip(run_indices, split, strict=True) if apart]
        self.commits = tuple(commit for commit, apart in zip(every, split, strict=True) if not apart)
        self.apart = tuple(commit for commit, apart in zip(every, split, strict=True) if apart)
        #: Stored numbers by commit.
        self.ids_at = {contents.runs[index].commit: self.ids(index) for index in run_indices}
        self._place = place

    def place_of_base(self, commit: Commit) -> int:
        """Return the index among ``commits`` of the newest one that is an ancestor of a commit apart; −1 if none is."""
        if commit.base not in self._place:
            return -1
        return bisect_right(self._places, self._place[commit.base]) - 1

    @cached_property
    def _places(self) -> list[int]:
        return [self._place[commit.hash] for commit in self.commits]

    def ids(self, index: int) -> tuple[int, ...]:
        """Return the stored numbers of a run, given by its index."""
        return tuple(row.id for row in self._contents.rows[index])

    @cached_property
    def source(self) -> Source:
        """The source of all points of the machine: their files and runs."""
        every = (*self.runs, *self.apart_runs)
        folders = {row.folder for index in every for row in self._contents.rows[index]}
        parts = tuple(path for folder in sorted(folders) for path in self._contents.parts[folder])
        return self._source(parts, self.runs, 0)

    @cached_property
    def apart_source(self) -> Source:
        """The source of the points at the commits apart, whose indices follow those of ``commits``."""
        return self._source(self.source.parts, self.apart_runs, len(self.runs))

    def newest(self, commits: int) -> Source:
        """Return the source of the points at the newest commits, without parts that hold none of these points."""
        first = max(len(self.runs) - commits, 0)
        part_names = {row.part for index in self.runs[first:] for row in self._contents.rows[index]}
        chosen = tuple(part for part in self.source.parts if part.name in part_names)
        return self._source(chosen, self.runs[first:], first)

    def _source(self, parts: tuple[Path, ...], run_indices: Sequence[int], first: int) -> Source:
        """Return the source of the points of some runs; ``first`` is the index of the first run's commit."""
        ranked_rows = [
            (row.id, index, place, rank)
            for place, index in enumerate(run_indices, first)
            for rank, row in enumerate(self._contents.rows[index])
        ]
        ids, runs, commits, ranks = np.array(sorted(ranked_rows), dtype=np.int64).T
        places = runs.astype(np.int32), commits.astype(np.int32), ranks.astype(np.int32)
        return Source(parts, ids, *places, self._contents.joined)

    @cached_property
    def _numbers(self) -> list[int]:
        every = (*self.runs, *self.apart_runs)
        layouts = {row.layout for index in every for row in self._contents.rows[index]}
        stored = np.unique(np.concatenate([self._contents.layouts[layout] for layout in layouts]))
        numbers: list[int] = np.unique(self._contents.joined.own(stored)).tolist()
        return numbers

    def runs_of(self, ids: Ids) -> NDArray[np.int32]:
        """Return the index of the run in ``Results.runs`` to which each stored number belongs."""
        stored, runs = self._run_of_id
        found: NDArray[np.int32] = runs[np.searchsorted(stored, ids)]
        return found

    @cached_property
    def _run_of_id(self) -> tuple[Ids, NDArray[np.int32]]:
        pairs = sorted((number, run) for run in (*self.runs, *self.apart_runs) for number in self.ids(run))
        stored, runs = np.array(pairs, dtype=np.int64).T
        return stored, runs.astype(np.int32)

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
            series, _ = _named(self._contents.known[number], self._contents.benchmarks, self._name)
            self._made[number] = series
        return series

    @cached_property
    def series(self) -> dict[int, Series]:
        """All series of the machine by number, in the order of benchmark and parameters."""
        series_of_number = {number: self.series_at(number) for number in self._numbers}
        keys = {text: names.natural(text) for series in series_of_number.values() for _, text in series.axes}
        order = sorted(series_of_number, key=lambda number: _order(series_of_number[number], keys))
        self._made = {number: series_of_number[number] for number in order}
        return self._made

    def series_of(self, benchmark: str) -> Sequence[Series]:
        """Return the series of a benchmark, in order of parameters; () for an unknown benchmark."""
        start = bisect_left(self._in_order, benchmark, key=_BENCHMARK)
        return self._in_order[start : bisect_right(self._in_order, benchmark, start, key=_BENCHMARK)]

    @cached_property
    def _in_order(self) -> tuple[Series, ...]:
        return tuple(self.series.values())

    @cached_property
    def numbers(self) -> dict[Series, int]:
        """The stored number of each of the machine's series."""
        return {series: number for number, series in self.series.items()}

    @cached_property
    def keys(self) -> KeyIndex:
        """The keys of the machine's series."""
        return index_keys(self._in_order, self._contents.benchmarks)

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


def _named(
    known: tuple[str, tuple[str, ...]], benchmarks: Mapping[str, Benchmark], machine: str = ""
) -> tuple[Series, Benchmark]:
    """Return the series with a benchmark's name and parameter values, and the benchmark."""
    name, values = known
    return Series(machine, name, names.axes(benchmarks[name], values) if values else ()), benchmarks[name]


_BENCHMARK = attrgetter("benchmark")


def _order(series: Series, keys: Mapping[str, Any]) -> tuple[Any, ...]:
    return series.benchmark, [keys[text] for _, text in series.axes]


def load(root: Path, parts: Path, manifest: Manifest, strays: Sequence[Problem], rules: Sequence[Same]) -> Contents:
    """Return the contents of a snapshot from the manifest.

    Args:
        parts: folder of the parquet files.
        strays: problems of the results folder that do not belong to a single result file.
        rules: the rules of thresholds.toml that join what was renamed.
    """
    dates = manifest.commits
    order = [replace(commit, date=dates[commit.hash]) for commit in manifest.line.commits if commit.hash in dates]
    # Another process may still be reading files. It adds them in portions, and orders the commits at the end.
    unordered = dates.keys() - {commit.hash for commit in order}
    order += [Commit(commit, date) for date, commit in sorted((dates[commit], commit) for commit in unordered)]
    place = {commit.hash: index for index, commit in enumerate(order)}
    layouts = {layout: np.frombuffer(bytes.fromhex(digits), np.int64) for layout, digits in manifest.layouts.items()}
    files = [row for row in manifest.runs.values() if row.points]
    joined = joined_folders({row.folder for row in files}, rules)
    rows, repeated = _by_run(files, joined, layouts)
    runs = [_run(run_rows) for run_rows in rows]
    folders = [joined.of(run_rows[0].folder) for run_rows in rows]
    shown_as = _on_lines(runs, folders, {commit.hash: commit.lines or ("",) for commit in order}, place, joined)
    rows, folders = [rows[index] for index, _, _ in shown_as], [folders[index] for index, _, _ in shown_as]
    runs = [replace(runs[index], machine=name) for index, name, _ in shown_as]
    measured_commits = {run.commit for run in runs}
    of_folder: dict[str, list[Path]] = defaultdict(list)
    for _, part in sorted(manifest.parts.items()):
        of_folder[part.folder].append(parts / part.name)
    known, table = manifest.series, manifest.benchmarks
    strays = [*strays, *(Problem(path, what, weight="part") for path, what in manifest.table_faults)]
    files_at = [
        (run.machine, run.commit, row.layout) for run, run_rows in zip(runs, rows, strict=True) for row in run_rows
    ]
    benchmarks = {name: benchmark(name, table.get(name)) for name in sorted({name for name, _ in known.values()})}
    same = same_series(rules, known, benchmarks, files_at, layouts)
    entries = {new: table[old] for old, new in same.benchmarks_were.items() if old in table and new not in table}
    for name in sorted({name for name, _ in same.known.values()} - benchmarks.keys()):
        benchmarks[name] = benchmark(name, entries.get(name))
    branches = {name: branch for _, name, branch in shown_as}
    shown = {run.machine: folder for run, folder in zip(runs, folders, strict=True) if not branches[run.machine]}
    return Contents(
        root=root,
        machines=_machines(runs, folders, place, branches),
        commits=tuple(commit for commit in order if commit.hash in measured_commits),
        line_note=manifest.line.note,
        runs=tuple(runs),
        rows=rows,
        files=len(manifest.files),
        parts={folder: tuple(paths) for folder, paths in of_folder.items()},
        layouts=layouts,
        benchmarks={name: benchmarks[name] for name in sorted({name for name, _ in same.known.values()})},
        known=same.known,
        versions=manifest.versions,
        problems=(*strays, *(one for _, found in sorted(manifest.problems.items()) for one in found), *repeated),
        joined=Joined(same.series),
        refused=(*joined.refused, *joined.apart(shown), *same.refused),
        machines_were={old: new for old, new in joined.machine.items() if old != new},
        benchmarks_were=same.benchmarks_were,
        renamed=tuple(
            (_named(known[old], benchmarks), _named(same.known[new], benchmarks)) for old, new in same.series.items()
        ),
    )


def _on_lines(
    runs: Sequence[Run],
    folders: Sequence[str],
    lines: Mapping[str, Sequence[str]],
    place: Mapping[str, int],
    joined: Folders,
) -> list[tuple[int, str, str]]:
    """Return each run of each line: the run's index, the name of its machine, and the branch ("" for the first).

    The line of a later branch is a machine of its own. The runs from before the fork belong to several machines.

    Args:
        lines: the lines of each commit, see ``Commit``. A commit apart is shown beside the first.
    """
    found = []
    for branch in dict.fromkeys(["", *(name for held in lines.values() for name in held)]):
        here = [index for index, run in enumerate(runs) if branch in lines[run.commit]]
        machines = machine_names([runs[at] for at in here], [folders[at] for at in here], place, joined.ruled)
        own = {name for at, name in zip(here, machines, strict=True) if lines[runs[at].commit][0] == branch}
        suffix = f" (branch {branch})" if branch else ""
        found += [(at, name + suffix, branch) for at, name in zip(here, machines, strict=True) if name in own]
    return found


def with_versions(contents: Contents, reader: Reader) -> Contents:
    """Return the contents with the versions that count for the points of joined series."""
    if not contents.joined.series:
        return contents
    place = {commit.hash: place for place, commit in enumerate(contents.commits)}
    at = {row.id: place[run.commit] for run, rows in zip(contents.runs, contents.rows, strict=True) for row in rows}
    ids = np.array(sorted(at), dtype=np.int64)
    places = np.array([at[number] for number in ids.tolist()], dtype=np.int32)
    parts = tuple(path for paths in contents.parts.values() for path in paths)
    source = Source(parts, ids, places, places, np.zeros_like(places))
    involved = sorted({*contents.joined.series, *contents.joined.series.values()})
    versions = version_joins(contents.joined.series, reader.version_ends(source, involved))
    return replace(contents, joined=replace(contents.joined, versions=versions))


def _by_run(
    rows: Sequence[RunRow], folders: Folders, layouts: Mapping[str, Ids]
) -> tuple[list[list[RunRow]], list[Problem]]:
    """Group the rows of measurements that belong to the same run: by machine, commit and environment, newest last.

    Copies of a file are left out. Return the groups, and notes about copies and repeated measurements.
    """
    rows_by_run: dict[tuple[Any, ...], list[RunRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.path):
        machine = folders.of(row.folder)
        # A rule joins machines whose hardware may differ; only measurements on equal hardware are repetitions.
        kind = tuple(sorted(hardware(_facts(row.facts)["strings"]).items())) if machine in folders.ruled else ()
        rows_by_run[machine, kind, row.commit, row.environment].append(row)
    notes = []
    for run_rows in rows_by_run.values():
        first: dict[str, RunRow] = {}
        for row in run_rows:
            if first.setdefault(row.content, row) is not row:
                message = f"the file holds the same measurements as {first[row.content].path}, so they count once"
                notes.append(Problem(row.path, message, _COPY, "note"))
        run_rows[:] = sorted(first.values(), key=lambda row: row.measured_at)
        if len(run_rows) > 1:
            together = np.concatenate([layouts[row.layout] for row in run_rows])
            if len(np.unique(together)) < len(together):
                notes += [Problem(row.path, _REPEAT, weight="note") for row in run_rows]
    return list(rows_by_run.values()), notes


_COPY = "the file holds the same measurements as another file, so they count once"
_REPEAT = "the file is one of several measurements of its commit in one environment: pages and alerts show the mean"


def _run(rows: Sequence[RunRow]) -> Run:
    row = rows[-1]
    facts = _facts(row.facts)
    controls = {
        int(gpu): {name: Control(**control) for name, control in measured.items()}
        for gpu, measured in json.loads(row.controls).items()
    }
    return Run(
        machine="",
        commit=row.commit,
        date=row.date,
        environment=row.environment,
        path=row.path,
        measured_at=row.measured_at,
        controls=controls.pop(0, {}),
        gpu_controls=controls,
        **facts,
    )


@lru_cache(maxsize=1024)
def _facts(text: str) -> dict[str, Any]:
    """Decode the facts of a run from JSON. Runs with equal texts share one dictionary, which saves memory."""
    facts: dict[str, Any] = json.loads(text)
    return facts


def _machines(
    runs: Sequence[Run], folders: Sequence[str], positions: Mapping[str, int], branches: Mapping[str, str]
) -> dict[str, Machine]:
    runs_by_machine: dict[str, list[int]] = defaultdict(list)
    for index in sorted(range(len(runs)), key=lambda index: positions[runs[index].commit]):
        runs_by_machine[runs[index].machine].append(index)
    machines = {}
    for name in sorted(runs_by_machine):
        newest = runs[runs_by_machine[name][-1]]
        machines[name] = Machine(
            name=name,
            folder=folders[runs_by_machine[name][0]],
            environments=tuple(dict.fromkeys(runs[index].environment for index in runs_by_machine[name])),
            strings=newest.strings,
            clock_state=newest.clock_state,
            last_date=newest.date,
            branch=branches[name],
        )
    return machines
