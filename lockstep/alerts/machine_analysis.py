"""One machine: its followed series analysed, and every change of them seen with its surroundings.

The next analysis goes on from what this one leaves in files: a machine whose results are what they were is not read at
all, and of one with more commits only their points are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.alerts.analysis_cache import AnalysisCache
from lockstep.alerts.change_cache import Noted, Notes, place_of, read_notes, write_notes
from lockstep.alerts.commit_ranges import Ranges
from lockstep.alerts.detector_state import Remembered, analyse, extend, holds
from lockstep.alerts.extract import WINDOW, StepBuilder, sized
from lockstep.alerts.followed_series import Followed, baselines_said, followed, name_in, voted
from lockstep.alerts.freshness import MachineReports
from lockstep.alerts.reported_points import Reported
from lockstep.alerts.steps import Step
from lockstep.history.model import Trend
from lockstep.history.snapshot import Results

#: More commits than this are read with all the others.
_MOST_NEW = 50


@dataclass(frozen=True)
class ChangedSeries:
    """The changes of one series under one version of its ruler (see ``Followed.row``), oldest first."""

    row: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class MachineChanges:
    """What there is to know of a machine before thresholds and calendar have a say.

    Attributes:
        machine: its name.
        changed: those with changes.
        reports: of every series.
    """

    machine: str
    changed: tuple[ChangedSeries, ...]
    reports: MachineReports


def analyse_machine(
    results: Results, machine: str, ranges: Ranges, kept: AnalysisCache, processes: int = 1
) -> MachineChanges:
    """Analyse a machine.

    Args:
        results: what was measured.
        machine: one of its machines.
        ranges: the repository whose commits they are.
        kept: where to go on from, and what to go on from is left.
        processes: that share the work of series that are not known.
    """
    state, detector = results.state(machine), kept.detector(machine)
    notes = read_notes(kept.notes(machine))
    hashes = [commit.hash for commit in results.commits(machine)]
    ranges.learn(hashes)
    # A repository that was fetched, or is a full clone now, knows ranges that it did not know.
    if notes and (notes.ranges, notes.lacking) != (ranges.text, ranges.lacking(hashes[: notes.commits])):
        notes = None
    if not (notes and notes.state == state and holds(detector, state)):
        one = _Watch(results, machine, ranges, detector, notes)
        notes = one.appended() or one.whole(processes)
        write_notes(kept.notes(machine), notes)
    commits = [(commit.hash, commit.date) for commit in results.commits(machine)]
    measured_at = max((run.measured_at for run in results.runs_of(machine)), default=0)
    reports = MachineReports(machine, commits, measured_at, notes.reported.reports(), notes.measured)
    changed = tuple(ChangedSeries(row, tuple(one.steps.values())) for row, one in notes.changed.items())
    return MachineChanges(machine, changed, reports)


class _Watch:
    """One analysis of a machine: of all its points, or of those that were appended."""

    def __init__(self, results: Results, machine: str, ranges: Ranges, path: Path, notes: Notes | None) -> None:
        self.results = results
        self.machine = machine
        self.ranges = ranges
        self.path = path
        self.state = results.state(machine)
        self.commits = len(results.commits(machine))
        # What was noted holds for the commits that it was noted of, if those are the first ones now.
        same = notes and notes.commits <= self.commits and results.state(machine, notes.commits) == notes.state
        self.notes = notes if same else None

    def whole(self, processes: int) -> Notes:
        """Read every point; the detector still knows the series whose first points are what they were."""
        order = {series: place for place, series in enumerate(self.results.series(machine=self.machine))}
        trends = sorted(self.results.trends(order), key=lambda trend: order[trend.series])
        said = baselines_said(self.results, self.machine)
        baselines = voted((self.results.benchmarks[one.benchmark].suite, text) for one, text in said.items())
        series = {one.row: one for one in followed(trends, baselines)}
        done = analyse(self.path, self.state, list(series), [one.values for one in series.values()], processes)
        numbers = {self.results.number(one): text for one, text in said.items()}
        reported = Reported.of(self.results, trends, series, numbers)
        return self._noted(reported, _measured(trends), done, series)

    def appended(self) -> Notes | None:
        """Read the points of new commits alone; ``None`` if more than that is new."""
        notes = self.notes
        if notes is None or not 0 < (more := self.commits - notes.commits) <= _MOST_NEW:
            return None
        new = self.results.newest(self.machine, more)
        added = notes.reported.added(new, self.results)
        done = extend(self.path, notes.state, self.state, added[1]) if added else None
        if added is None or done is None:
            return None
        measured = {family: list(at) for family, at in notes.measured.items()}
        for family, commits in added[0].measured(new).items():
            measured[family] = [*measured.get(family, ()), *commits]
        return self._noted(added[0], measured, done, {})

    def _noted(
        self,
        reported: Reported,
        measured: Mapping[str, Sequence[int]],
        done: Remembered,
        series: Mapping[str, Followed],
    ) -> Notes:
        return Notes(
            state=self.state,
            commits=self.commits,
            ranges=self.ranges.text,
            lacking=self.ranges.lacking([commit.hash for commit in self.results.commits(self.machine)]),
            measured=measured,
            reported=reported,
            changed=self._changed(done, series, reported),
        )

    def _changed(self, done: Remembered, series: Mapping[str, Followed], reported: Reported) -> dict[str, Noted]:
        """The changes of every row with their surroundings; those that stay what they were noted as are taken over."""
        old = self.notes.changed if self.notes else {}
        lengths = done.monitor.replay.length.tolist()
        told = []
        for place, some in done.monitor.changes().items():
            row = done.names[place]
            noted = old.get(row)
            changes = {place_of(change): change for change in some}
            taken = {
                at: step
                for at, step in (noted.steps.items() if noted else ())
                # Points that were measured since may belong to what is looked at around a change.
                if at in changes and noted and at[0] + WINDOW <= noted.length
            }
            told.append((place, row, changes, taken))
        missing = [row for _, row, changes, taken in told if len(taken) < len(changes)]
        if missing and not series:
            series = self._read(missing, reported)
        closer = StepBuilder(self.results, self.machine, self.ranges)
        found = {}
        for place, row, changes, taken in told:
            better = done.monitor.better[place]
            steps = {
                at: sized(taken[at], better, change) if at in taken else closer.step(series[row], change)
                for at, change in changes.items()
            }
            found[row] = Noted(lengths[place], steps)
        return found

    def _read(self, rows: Sequence[str], reported: Reported) -> dict[str, Followed]:
        """These rows, with all that is looked at to explain their changes."""
        places = {(one.suite, one.case, one.l2) for one in map(name_in, rows)}
        each = zip(reported.number.tolist(), reported.name, strict=True)
        numbers = [number for number, one in each if (one.suite, one.case, one.l2) in places]
        trends = list(self.results.trends_of(self.machine, numbers))
        return {one.row: one for one in followed(trends, reported.baselines)}


def _measured(trends: Sequence[Trend]) -> dict[str, list[int]]:
    """Positions of the commits that measured something, by family."""
    found: dict[str, set[int]] = defaultdict(set)
    for trend in trends:
        found[trend.benchmark.family].update(trend.commit.tolist())
    return {family: sorted(at) for family, at in found.items()}
