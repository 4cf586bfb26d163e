"""One machine: its followed series analysed, and every change of them seen with its surroundings.

Where files are kept, the next analysis goes on from this one: a machine whose results are what they were is not read
at all, and of one with more commits only their points are.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dashboard.alerts.followed import (
    Followed,
    baselines_of,
    by_version,
    followed,
    name_in,
    name_of,
    paired_numbers,
    values_of,
)
from dashboard.alerts.freshness import MachineReports, Reports, Said
from dashboard.alerts.look import WINDOW, Look, sized
from dashboard.alerts.memory import Remembered, analyse, extend
from dashboard.alerts.notes import Entry, Noted, Notes, place_of, read_notes, write_notes
from dashboard.alerts.ranges import Ranges
from dashboard.alerts.steps import SeriesName, Step
from dashboard.changes import Analysis, Noise
from dashboard.changes import Trend as Values
from dashboard.kept import Kept
from dashboard.results.model import STATES, Series, Trend
from dashboard.results.picture import Results
from dashboard.shown import write_series

#: More commits than this are read with all the others.
_MOST_NEW = 50


@dataclass(frozen=True)
class Changed:
    """The changes of one series under one version of its ruler, oldest first, and the noise that they stand in."""

    noise: Noise
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Watched:
    """What there is to know of a machine before thresholds and calendar have a say.

    Attributes:
        machine: its name.
        followed: how many series are; one whose ruler changed counts as often.
        changed: those with changes.
        reports: of every series.
        analyses: of each followed series under its newest ruler; empty where nothing had to be analysed.
    """

    machine: str
    followed: int
    changed: tuple[Changed, ...]
    reports: MachineReports
    analyses: Mapping[SeriesName, Analysis]


def watch(results: Results, machine: str, ranges: Ranges, kept: Kept | None = None, processes: int = 1) -> Watched:
    """Analyse a machine.

    Args:
        results: what was measured.
        machine: one of its machines.
        ranges: the repository whose commits they are.
        kept: where to go on from, and what to go on from is left; ``None`` starts anew and leaves nothing.
        processes: that share the work of series that are not known.
    """
    state = results.state(machine)
    notes = read_notes(kept.notes(machine)) if kept else None
    if notes and notes.ranges != ranges.text:
        notes = None
    if kept and notes and notes.state == state and kept.series(machine, state).exists():
        return _watched(results, machine, notes, {})
    ranges.learn([commit.hash for commit in results.commits(machine)])
    look = _Watch(results, machine, ranges, kept.detector(machine) if kept else None, notes)
    found = look.appended() or look.whole(processes)
    if kept:
        write_series(kept.series(machine, state), found[1])
        write_notes(kept.notes(machine), found[0])
    return _watched(results, machine, *found)


def _watched(results: Results, machine: str, notes: Notes, analyses: Mapping[SeriesName, Analysis]) -> Watched:
    changed = tuple(Changed(one.noise, tuple(one.steps.values())) for one in notes.changed.values())
    return Watched(machine, notes.followed, changed, _reports(results, machine, notes), analyses)


def _reports(results: Results, machine: str, notes: Notes) -> MachineReports:
    names = {_text(one): one for one in results.series(machine=machine)}
    commits = [(commit.hash, commit.date) for commit in results.commits(machine)]
    reports = []
    for text, entry in notes.series.items():
        series = names[text]
        benchmark = results.benchmarks[series.benchmark]
        if benchmark.quantity != "speedup" or not benchmark.ours:
            reports.append(Reports(name_of(series, benchmark), entry.commits, entry.states, entry.versions))
    measured_at = max((run.measured_at for run in results.runs_of(machine)), default=0)
    return MachineReports(machine, commits, measured_at, reports, notes.measured)


class _Watch:
    """One analysis of a machine: of all its points, or of those that were appended."""

    def __init__(self, results: Results, machine: str, ranges: Ranges, path: Path | None, notes: Notes | None) -> None:
        self.results = results
        self.machine = machine
        self.ranges = ranges
        self.path = path
        self.state = results.state(machine)
        self.commits = len(results.commits(machine))
        # What was noted holds for the commits that it was noted of, if those are the first ones now.
        same = notes and notes.commits <= self.commits and results.state(machine, notes.commits) == notes.state
        self.notes = notes if same else None
        self.baselines = baselines_of(results, machine)

    def whole(self, processes: int) -> tuple[Notes, dict[SeriesName, Analysis]]:
        """Read every point; the detector still knows the series whose first points are what they were."""
        trends = list(self.results.trends(self.results.series(machine=self.machine)))
        series = {one.row: one for one in followed(self.results, self.machine, trends)}
        done = analyse(self.path, self.state, list(series), [one.values for one in series.values()], processes)
        rows = {(one.trend.series, int(one.trend.version[0])): one for one in series.values()}
        entries = {_text(trend.series): self._entry(trend, rows) for trend in trends}
        return self._noted(entries, _measured(trends), done, series)

    def appended(self) -> tuple[Notes, dict[SeriesName, Analysis]] | None:
        """Read the points of new commits alone; ``None`` if more than that is new."""
        notes = self.notes
        if notes is None or self.path is None or notes.baselines != self.baselines:
            return None
        more = self.commits - notes.commits
        if not 0 < more <= _MOST_NEW:
            return None
        entries, new = dict(notes.series), {}
        tails = list(self.results.trends(self.results.series(machine=self.machine), last=more))
        for tail in tails:
            text = _text(tail.series)
            entry = entries.get(text)
            values = self._more(tail, entry) if entry else None
            if entry is None or values is None:
                return None
            if len(values):
                new[entry.row] = values
            said = _said(tail, self.results, entry)
            entries[text] = replace(entry, **said)
        done = extend(self.path, notes.state, self.state, new)
        if done is None:
            return None
        measured = {family: set(at) for family, at in notes.measured.items()}
        for family, at in _measured(tails).items():
            measured.setdefault(family, set()).update(at)
        return self._noted(entries, {family: sorted(at) for family, at in measured.items()}, done, {})

    def _noted(
        self,
        entries: dict[str, Entry],
        measured: Mapping[str, list[int]],
        done: Remembered,
        series: dict[str, Followed],
    ) -> tuple[Notes, dict[SeriesName, Analysis]]:
        notes = Notes(
            state=self.state,
            commits=self.commits,
            ranges=self.ranges.text,
            baselines=self.baselines,
            measured=measured,
            series=entries,
            followed=len(done.names),
            changed=self._changed(done, series),
        )
        return notes, {name_in(row): analysis for row, analysis in zip(done.names, done.analyses, strict=True)}

    def _changed(self, done: Remembered, series: dict[str, Followed]) -> dict[str, Noted]:
        """The changes of every row with their surroundings; those that stay what they were noted as are taken over."""
        old = self.notes.changed if self.notes else {}
        told = []
        for row, better, analysis in zip(done.names, done.better, done.analyses, strict=True):
            changes = {place_of(change): change for change in analysis.changes}
            noted = old.get(row)
            taken = {
                at: step
                for at, step in (noted.steps.items() if noted else ())
                # Points that were measured since may belong to what is looked at around a change.
                if at in changes and noted and at[0] + WINDOW <= noted.length
            }
            if changes:
                told.append((row, better, analysis, changes, taken))
        missing = [row for row, _, _, changes, taken in told if len(taken) < len(changes)]
        if missing and not series:
            series = self._read(missing)
        closer = Look(self.results, self.machine, self.ranges)
        found = {}
        for row, better, analysis, changes, taken in told:
            steps = {
                at: sized(taken[at], better, analysis, change)
                if at in taken
                else closer.step(series[row], analysis, change)
                for at, change in changes.items()
            }
            found[row] = Noted(analysis.levels[-1].stop, analysis.noise, steps)
        return found

    def _read(self, rows: Sequence[str]) -> dict[str, Followed]:
        """These rows, with all that is looked at to explain their changes."""
        every = self.results.series(machine=self.machine)
        wanted = {name_in(row) for row in rows}
        places = {(one.suite, one.case, one.l2) for one in wanted}
        series = []
        for one in every:
            name = name_of(one, self.results.benchmarks[one.benchmark])
            if (name.suite, name.case, name.l2) in places:
                series.append(one)
        return {one.row: one for one in followed(self.results, self.machine, list(self.results.trends(series)))}

    def _entry(self, trend: Trend, rows: Mapping[tuple[Series, int], Followed]) -> Entry:
        points = by_version(trend)
        # Not the last that came up: a ruler may be taken up again.
        newest = max(points, key=lambda one: int(one.commit[-1]), default=None)
        row = None if newest is None else rows.get((trend.series, int(newest.version[0])))
        entry = Entry(
            row.row if row else "",
            self.results.versions[newest.version[0]] if newest is not None else "",
            row is not None and paired_numbers(row.trend),
            *((), (), ()),
        )
        return replace(entry, **_said(trend, self.results, entry))

    def _more(self, tail: Trend, entry: Entry) -> Values | None:
        """Points to go on with, perhaps none; ``None`` if they do not just go on what was followed."""
        points = by_version(tail)
        if not points:
            return Values(np.empty(0))
        [first, *others] = points
        if not entry.row:
            # A latency beside a paired ratio, and the baseline's ratio to itself, are not followed whatever comes.
            ours, ratio = tail.benchmark.ours, tail.benchmark.quantity == "speedup"
            base = tail.series.axis("variant") == self.baselines.get(tail.benchmark.suite)
            return Values(np.empty(0)) if ours and entry.version and (base or not ratio) else None
        if others or self.results.versions[first.version[0]] != entry.version:
            return None
        if entry.paired and not paired_numbers(first):
            return None
        return values_of(first, entry.paired)


def _text(series: Series) -> str:
    """The series' name among those of its machine."""
    return json.dumps([series.benchmark, *series.axes])


def _measured(trends: Sequence[Trend]) -> dict[str, list[int]]:
    """Positions of the commits that measured something, by family."""
    found: dict[str, set[int]] = defaultdict(set)
    for trend in trends:
        found[trend.benchmark.family].update(trend.commit.tolist())
    return {family: sorted(at) for family, at in found.items()}


_SAID: dict[str, Said] = {"na": "na", "failed": "failed"}


def _said(trend: Trend, results: Results, before: Entry) -> dict[str, Any]:
    """What a series reported after what is known, without reports that are like the one before and the one after."""
    # Codes first: ten million points are too many for texts.
    code = trend.state.astype(np.int64) * (len(results.versions) + 1) + trend.version
    turns = np.flatnonzero(np.diff(code))
    at = np.unique(np.concatenate([[0], turns, turns + 1, [len(code) - 1]])) if len(code) else turns
    commits = [*before.commits, *trend.commit[at].tolist()]
    states = [*before.states, *(_SAID.get(STATES[state], "number") for state in trend.state[at].tolist())]
    versions = [*before.versions, *(results.versions[version] for version in trend.version[at].tolist())]
    alike = list(zip(states, versions, strict=True))
    keep = [i for i in range(len(alike)) if alike[i - 1 : i + 2] != [alike[i]] * 3]
    return {
        "commits": tuple(commits[i] for i in keep),
        "states": tuple(states[i] for i in keep),
        "versions": tuple(versions[i] for i in keep),
    }
