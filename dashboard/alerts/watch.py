"""From results to alerts: every series analysed, its changes explained, grouped, and the store brought in step."""

from __future__ import annotations

import datetime
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dashboard.alerts.attribution import Cause, attribute
from dashboard.alerts.followed import Followed, followed, name_of
from dashboard.alerts.freshness import MachineReports, Reports, freshness, is_old
from dashboard.alerts.grouping import Alert, Excuse, Told, group
from dashboard.alerts.look import Look
from dashboard.alerts.ranges import Ranges
from dashboard.alerts.steps import SeriesName, Step
from dashboard.alerts.sync import Seen
from dashboard.changes import Analysis, Noise, analyse_many
from dashboard.results.model import STATES, Trend
from dashboard.results.picture import Results
from lockstep.thresholds import Threshold, Thresholds

#: More series than this are worth the start of a second process.
_MANY = 2000


@dataclass(frozen=True)
class Found:
    """A change that was found, why, and whether it is worth telling.

    Attributes:
        step, cause: what and why.
        noise: of its series.
        threshold: of its series.
        quiet: why it is not told: "small", "unsure", "noise" (its code did not change, or did less than changes
            of unchanged code do); "" it is.
    """

    step: Step
    cause: Cause
    noise: Noise
    threshold: Threshold
    quiet: Literal["", "small", "unsure", "noise"]


@dataclass(frozen=True)
class Picture:
    """What the results say now.

    Attributes:
        found: every change of every followed series, in the order of the series.
        alerts: those worth telling, grouped, and the freshness of everything.
        commits: of each machine that was looked at, oldest first.
        analyses: of each followed series.
    """

    found: tuple[Found, ...]
    alerts: tuple[Alert, ...]
    commits: Mapping[str, tuple[str, ...]]
    analyses: Mapping[SeriesName, Analysis]

    @property
    def seen(self) -> Seen:
        """As ``AlertStore.sync`` takes it."""
        return Seen(self.alerts, self.commits)

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


def look(
    results: Results,
    thresholds: Thresholds,
    ranges: Ranges,
    now: datetime.datetime,
    machines: Sequence[str] | None = None,
) -> Picture:
    """Analyse the results of these machines (``None``: of all).

    Args:
        results: what was measured.
        thresholds: what counts.
        ranges: the repository whose commits they are.
        now: for mutes and for machines that are silent.
        machines: names.
    """
    found: list[Found] = []
    stale: list[Alert] = []
    commits: dict[str, tuple[str, ...]] = {}
    analyses: dict[SeriesName, Analysis] = {}
    for machine in results.machines if machines is None else machines:
        trends = list(results.trends(results.series(machine=machine)))
        series = followed(results, machine, trends)
        processes = 2 if len(series) > _MANY else 1
        analysed = analyse_many([one.values for one in series], processes=processes)
        analyses |= {one.name: analysis for one, analysis in zip(series, analysed, strict=True)}
        found += _found(results, machine, series, analysed, thresholds, ranges)
        stale += freshness(_reports(results, machine, trends), int(now.timestamp() * 1000))
        commits[machine] = tuple(commit.hash for commit in results.commits(machine))
    tell = _Teller(results, thresholds, now.date())
    told = [tell(one) for one in found if not one.quiet]
    order = [commit.hash for commit in results.commits()]
    return Picture(tuple(found), (*group(told, order), *stale), commits, analyses)


def _found(
    results: Results,
    machine: str,
    series: Sequence[Followed],
    analysed: Sequence[Analysis],
    thresholds: Thresholds,
    ranges: Ranges,
) -> list[Found]:
    closer = Look(results, machine, ranges)
    found = []
    for one, analysis in zip(series, analysed, strict=True):
        steps = [closer.step(one, analysis, change) for change in analysis.changes]
        causes = [attribute(step) for step in steps]
        name = one.name
        threshold = thresholds.of(name.suite, name.variant, name.case, name.l2)
        # What unchanged code does by itself, changed code must outdo.
        meter = max((abs(s.size) for s, c in zip(steps, causes, strict=True) if c.kind == "noise"), default=0.0)
        for step, cause in zip(steps, causes, strict=True):
            found.append(Found(step, cause, analysis.noise, threshold, _quiet(step, cause, threshold, meter)))
    return found


def _quiet(step: Step, cause: Cause, threshold: Threshold, meter: float) -> Literal["", "small", "unsure", "noise"]:
    if cause.kind == "noise" or (abs(step.size) <= meter and cause.kind in ("own commit", "unexplained")):
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

    def __call__(self, one: Found) -> Told:
        step, name = one.step, one.step.series
        commits = self._commits[name.machine]
        place = (name.suite, name.variant, name.case, name.l2)
        about = [text for commit in step.between for text in (commit, self._subjects.get(commit, ""))]
        accept = self._thresholds.accepted(*place, math.expm1(step.size), about) if step.size > 0 else None
        mute = self._thresholds.muted(*place, self._today)
        excuse = Excuse(accept.because) if accept else Excuse(mute.because, mute.until) if mute else None
        return Told(
            step,
            one.cause,
            owner=one.threshold.owner,
            since=commits[step.last][1],
            small=one.threshold.min_effect,
            old=is_old(step.last, commits),
            excuse=excuse,
        )


def _reports(results: Results, machine: str, trends: Sequence[Trend]) -> MachineReports:
    runs = results.runs_of(machine)
    return MachineReports(
        machine,
        [(commit.hash, commit.date) for commit in results.commits(machine)],
        max((run.measured_at for run in runs), default=0),
        [
            _report(results, trend)
            for trend in trends
            if trend.benchmark.quantity != "speedup" or not trend.benchmark.ours
        ],
    )


_REPORTED: dict[str, Literal["number", "failed", "na"]] = {"na": "na", "failed": "failed"}


def _report(results: Results, trend: Trend) -> Reports:
    return Reports(
        name_of(trend.series, trend.benchmark),
        trend.commit.tolist(),
        [_REPORTED.get(STATES[state], "number") for state in trend.state],
        [results.versions[version] for version in trend.version],
    )
