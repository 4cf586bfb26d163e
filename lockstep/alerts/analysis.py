"""From results to alerts: every series analysed, its changes explained, grouped, and the store brought in step."""

from __future__ import annotations

import datetime
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lockstep.alerts.analysis_cache import AnalysisCache
from lockstep.alerts.attribution import Cause, Kind, attribute
from lockstep.alerts.commit_ranges import Ranges
from lockstep.alerts.freshness import dead_machines, freshness, is_old
from lockstep.alerts.grouping import ReportedStep, group
from lockstep.alerts.machine_analysis import ChangedSeries, MachineChanges, analyse_machine
from lockstep.alerts.model import Alert, Waiver
from lockstep.alerts.steps import Step
from lockstep.alerts.sync import CurrentAlerts
from lockstep.history.snapshot import Results
from lockstep.processes.children import pool
from lockstep.suite.thresholds import Threshold, Thresholds

#: More points than this are worth a second process: they take half a second.
_MUCH = 50_000

#: Causes that changed machine code outdoes, and unchanged machine code may look like.
_CODE: tuple[Kind, ...] = ("own commit", "unknown range", "unknown cause", "unexplained")

#: Points that take as long to analyse as a series that is known and goes on.
_GOES_ON = 15


@dataclass(frozen=True)
class FoundChange:
    """A change that was found, why, and whether it is worth telling.

    Attributes:
        row: of its series, see ``lockstep.alerts.followed_series.Followed``.
        step, cause: what and why.
        threshold: of its series.
        quiet: why it is not told: "small", "unsure", "noise" (its code did not change, or did less than changes
            of unchanged code do); "" it is.
    """

    row: str
    step: Step
    cause: Cause
    threshold: Threshold
    suppressed: Literal["", "small", "unsure", "noise"]


@dataclass(frozen=True)
class AnalysisResult:
    """What the results say now.

    Attributes:
        found: every change of every followed series, in the order of the series.
        alerts: those worth telling, grouped, and the freshness of everything.
        commits: of each machine that was looked at, oldest first.
        series: number of series that have a number, by machine, family and suite; versions of one count once.
        dead: machines that stopped while others went on, see ``lockstep.alerts.freshness.dead_machines``.
    """

    found: tuple[FoundChange, ...]
    alerts: tuple[Alert, ...]
    commits: Mapping[str, tuple[str, ...]]
    series: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()

    @property
    def current_alerts(self) -> CurrentAlerts:
        """As ``AlertStore.sync`` takes it."""
        return CurrentAlerts(self.alerts, self.commits, self.dead)

    @property
    def meter(self) -> dict[str, tuple[int, float]]:
        """By machine: how many changes were found in unchanged code, and their root mean square (log)."""
        sizes: dict[str, list[float]] = defaultdict(list)
        for one in self.found:
            if one.cause.kind == "noise":
                sizes[one.step.series.machine].append(one.step.size)
        return {
            machine: (len(some), math.sqrt(sum(size * size for size in some) / len(some)))
            for machine, some in sizes.items()
        }


def analyse_results(
    results: Results,
    thresholds: Thresholds,
    ranges: Ranges,
    now: datetime.datetime,
    kept: AnalysisCache,
    machines: Sequence[str] | None = None,
) -> AnalysisResult:
    """Analyse the results of these machines (``None``: of all).

    Args:
        results: what was measured.
        thresholds: what counts.
        ranges: the repository whose commits they are.
        now: for mutes and for machines that are silent.
        kept: where to go on from, and what to go on from is left.
        machines: names.
    """
    found: list[FoundChange] = []
    stale: list[Alert] = []
    commits: dict[str, tuple[str, ...]] = {}
    series: Counter[tuple[str, str, str]] = Counter()
    for one in _watch_all(results, list(results.machines) if machines is None else machines, ranges, kept):
        found += _found(one.changed, thresholds)
        stale += freshness(one.reports, int(now.timestamp() * 1000))
        commits[one.machine] = tuple(commit for commit, _ in one.reports.commits)
        names = (report.series for report in one.reports.series if report.last_number is not None)
        series.update((name.machine, name.family, name.suite) for name in names)
    tell = _Teller(results, thresholds, now.date())
    told = [tell(one) for one in found if not one.suppressed]
    order = [commit.hash for commit in results.commits()]
    newest: dict[str, int] = {}
    for run in results.runs:
        newest[run.machine] = max(newest.get(run.machine, 0), run.measured_at)
    return AnalysisResult(tuple(found), (*group(told, order), *stale), commits, series, dead_machines(newest))


def _watch_all(
    results: Results, machines: Sequence[str], ranges: Ranges, kept: AnalysisCache
) -> Iterator[MachineChanges]:
    """Every machine; two at a time where there is much to analyse."""
    work = {one: _points(results, one, kept) for one in machines}
    if len(machines) < 2 or sum(work.values()) < _MUCH:
        yield from (analyse_machine(results, one, ranges, kept, 2 if work[one] > _MUCH else 1) for one in machines)
        return
    # Forked, so that they have the results; what they found lies in files, and only what alerts need comes back.
    with pool(2, "fork", _take, (results, ranges, kept)) as workers:
        yield from workers.map(_watch_taken, machines)


def _points(results: Results, machine: str, kept: AnalysisCache) -> int:
    """About how many points a machine's analysis has to look at."""
    series = results.count(machine)
    return series * (_GOES_ON if kept.notes(machine).exists() else len(results.commits(machine)))


_TAKEN: list[tuple[Results, Ranges, AnalysisCache]] = []


def _take(*what: Any) -> None:
    _TAKEN[:] = [what]


def _watch_taken(machine: str) -> MachineChanges:
    [(results, ranges, kept)] = _TAKEN
    return analyse_machine(results, machine, ranges, kept)


def _found(changed: Sequence[ChangedSeries], thresholds: Thresholds) -> Iterator[FoundChange]:
    for one in changed:
        causes = [attribute(step) for step in one.steps]
        name = one.steps[0].series
        threshold = thresholds.of(name.suite, name.variant, name.case, name.l2)
        # What unchanged code does by itself, changed code must outdo.
        meter = max((abs(s.size) for s, c in zip(one.steps, causes, strict=True) if c.kind == "noise"), default=0.0)
        for step, cause in zip(one.steps, causes, strict=True):
            yield FoundChange(one.row, step, cause, threshold, _quiet(step, cause, threshold, meter))


def _quiet(step: Step, cause: Cause, threshold: Threshold, meter: float) -> Literal["", "small", "unsure", "noise"]:
    if cause.kind == "noise" or (abs(step.size) <= meter and cause.kind in _CODE):
        return "noise"
    if abs(math.expm1(step.size)) < threshold.min_effect:
        return "small"
    return "unsure" if step.confidence < threshold.confidence else ""


class _Teller:
    """Adds to a change what the thresholds and the calendar say of it."""

    def __init__(self, results: Results, thresholds: Thresholds, today: datetime.date) -> None:
        self._thresholds = thresholds
        self._today = today
        self._subjects = {commit.hash: commit.subject for commit in results.commits()}
        self._commits = {name: [(one.hash, one.date) for one in results.commits(name)] for name in results.machines}

    def __call__(self, one: FoundChange) -> ReportedStep:
        step, name = one.step, one.step.series
        commits = self._commits[name.machine]
        place = (name.suite, name.variant, name.case, name.l2)
        about = [text for commit in step.between for text in (commit, self._subjects.get(commit, ""))]
        accept = self._thresholds.accepted(*place, math.expm1(step.size), about) if step.size > 0 else None
        mute = self._thresholds.muted(*place, self._today)
        waiver = Waiver(accept.because) if accept else Waiver(mute.because, mute.until) if mute else None
        return ReportedStep(
            step,
            one.cause,
            owner=one.threshold.owner,
            since=commits[step.last][1],
            small=one.threshold.min_effect,
            old=is_old(step.last, commits),
            waiver=waiver,
        )
