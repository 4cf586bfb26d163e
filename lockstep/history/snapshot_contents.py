"""Read everything in a snapshot except its points: machines, runs, commits, benchmarks and series."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lockstep.history.benchmarks_file import benchmark
from lockstep.history.cache_manifest import Manifest, RunRow
from lockstep.history.machine_identity import machine_names
from lockstep.history.model import Commit, Machine, Run
from lockstep.history.reader import Source
from lockstep.history.series_ids import Ids
from lockstep.history.validation import Problem


class Contents:
    """All data of a snapshot except the points.

    Args:
        manifest: what the cache holds.
        strays: problems of the results folder that do not belong to a single result file.

    Attributes:
        root: the results folder.
        machines: the machines that have points, by name.
        every_commit: all commits that have results, oldest first.
        line_note: what git's history could not tell about the order of commits, in sentences; "" if nothing.
        rows: the manifest's rows for each of ``runs``. A run has several rows, the newest last, if its commit was
            measured several times.
        files: the number of result files, readable or not.
        parts: the folder of the parquet files.
        layouts: series numbers by the layout that a row names.
        benchmarks: the benchmarks, by asv's name.
        known: benchmark and parameter values of each series by number.
        version_texts: texts of the benchmark versions by number.
        problems: the problems of files or parts of files that could not be read.
        notes: the accepted differences from asv's format.
    """

    def __init__(self, root: Path, parts: Path, manifest: Manifest, strays: Sequence[Problem]) -> None:
        self.root, self.parts = root, parts
        self.files = len(manifest.files)
        self.known, self.version_texts, self.line_note = manifest.series, manifest.versions, manifest.line.note
        names = sorted({name for name, _ in manifest.series.values()})
        self.benchmarks = {name: benchmark(name, manifest.benchmarks.get(name)) for name in names}
        self.layouts: Mapping[str, Ids] = {
            layout: np.frombuffer(bytes.fromhex(digits), np.int64) for layout, digits in manifest.layouts.items()
        }
        self.rows, repeated = _by_run([row for row in manifest.runs.values() if row.points], self.layouts)
        commits = _in_order(manifest)
        place = {commit.hash: index for index, commit in enumerate(commits)}
        runs = [replace(run_rows[-1].run, machine=run_rows[0].folder) for run_rows in self.rows]
        machines = machine_names(runs, place)
        folder_of = {name: run.machine for name, run in zip(machines, runs, strict=True)}
        self.runs = tuple(replace(run, machine=name) for name, run in zip(machines, runs, strict=True))
        self.machines = _machines(self.runs, folder_of, place)
        measured = {run.commit for run in runs}
        self.every_commit = tuple(commit for commit in commits if commit.hash in measured)
        found = [*strays, *(one for _, of in sorted(manifest.problems.items()) for one in of), *repeated]
        self.problems = tuple(problem for problem in found if problem.weight != "note")
        self.notes = tuple(problem for problem in found if problem.weight == "note")

    def source(self, runs: Iterable[tuple[int, int]]) -> Source:
        """Return the source of the points of some runs, given by the index of each run's commit and of the run."""
        rows = sorted(
            (row.id, place, index, rank, row.part) for place, index in runs for rank, row in enumerate(self.rows[index])
        )
        numbers = np.array([row[:4] for row in rows], dtype=np.int64).reshape(-1, 4).T
        ids, (commits, indices, ranks) = numbers[0], numbers[1:].astype(np.int32)
        return Source(self.parts, np.array([row[4] for row in rows]), ids, commits, indices, ranks)


def _in_order(manifest: Manifest) -> list[Commit]:
    """Return all commits, oldest first."""
    dates = manifest.commits
    order = [replace(commit, date=dates[commit.hash]) for commit in manifest.line.commits if commit.hash in dates]
    # Another process may still be reading files. It adds them in portions, and orders the commits at the end.
    unordered = dates.keys() - {commit.hash for commit in order}
    return order + [Commit(commit, date) for date, commit in sorted((dates[commit], commit) for commit in unordered)]


def _by_run(rows: Sequence[RunRow], layouts: Mapping[str, Ids]) -> tuple[list[list[RunRow]], list[Problem]]:
    """Group the rows of measurements that belong to the same run: by folder, commit and environment, newest last.

    Return the groups, and notes about repeated measurements.
    """
    rows_by_run: dict[tuple[str, str, str], list[RunRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.run.measured_at, row.run.path)):
        rows_by_run[row.folder, row.run.commit, row.run.environment].append(row)
    notes = []
    for run_rows in rows_by_run.values():
        if len(run_rows) > 1:
            together = np.concatenate([layouts[row.layout] for row in run_rows])
            if len(np.unique(together)) < len(together):
                notes += [Problem(row.run.path, _REPEAT, weight="note") for row in run_rows]
    return list(rows_by_run.values()), notes


_REPEAT = "the file is one of several measurements of its commit in one environment: pages and alerts show the mean"


def _machines(runs: Sequence[Run], folder_of: Mapping[str, str], positions: Mapping[str, int]) -> dict[str, Machine]:
    runs_by_machine: dict[str, list[int]] = defaultdict(list)
    for index in sorted(range(len(runs)), key=lambda index: positions[runs[index].commit]):
        runs_by_machine[runs[index].machine].append(index)
    machines = {}
    for name in sorted(runs_by_machine):
        newest = runs[runs_by_machine[name][-1]]
        machines[name] = Machine(
            name=name,
            folder=folder_of[name],
            environments=tuple(dict.fromkeys(runs[index].environment for index in runs_by_machine[name])),
            strings=newest.strings,
            clock_state=newest.clock_state,
            last_date=newest.date,
        )
    return machines
