"""Compare the newest points of an alert's series with their levels before the change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lockstep.alerts.analysis.followed_series import by_version, paired_numbers, series_by_name, values_of
from lockstep.alerts.analysis.machine_findings import MachineFindings
from lockstep.alerts.model import Alert, FoundChange
from lockstep.detect import Analysis
from lockstep.history.model import Commit, Floats, Trend
from lockstep.history.snapshot import Results
from lockstep.record.series_name import SeriesName


@dataclass(frozen=True)
class MemberLevel:
    """Where a series of an alert stands today, compared with its level before the change.

    Attributes:
        before: the level before the change, as a number of ``lockstep.alerts.analysis.step_facts.worse_numbers``.
        newest: by how much the newest point is worse than the level before the change, measured like
            ``FoundChange.size``.
        returned: number of consecutive newest points that are nearer to the level before the change than to the newest
            level. 0 if the newest level itself has returned to the level before the change.
    """

    before: float
    newest: float
    returned: int


def member_levels(
    results: Results, alert: Alert, findings: MachineFindings | None, limit: int
) -> dict[SeriesName, MemberLevel]:
    """Return the levels of the ``limit`` worst series of an alert, without series that the detector does not follow."""
    if findings is None or not alert.members:
        return {}
    members = {member.series: member for member in alert.members[:limit]}
    behaviours = findings.behaviours(list(members))
    names = series_by_name(results, alert.machine)
    series = {names[name]: name for name in members if name in names and name in behaviours}
    commits = results.commits(alert.machine)
    levels = {}
    for trend in results.trends(series):
        name = series[trend.series]
        level = _level(members[name], trend, behaviours[name], commits)
        if level is not None:
            levels[name] = level
    return levels


def _level(member: FoundChange, trend: Trend, analysis: Analysis, commits: tuple[Commit, ...]) -> MemberLevel | None:
    versions = by_version(trend)
    if not versions or not analysis.levels or analysis.levels[-1].stop != versions[-1].value.size:
        return None
    points = versions[-1]
    values = values_of(points, paired_numbers(points))
    worse = -1.0 if member.better == "higher" else 1.0
    ratio = member.measure == "ratio"
    changes = (
        change
        for change in analysis.changes
        if commits[int(points.commit[change.reported_at])].hash == member.reported_at
    )
    change = next(changes, None)
    if change is None or change.measure != member.measure:
        return None
    level = next(segment for segment in analysis.levels if segment.start <= change.last_before < segment.stop)
    before = worse * (math.log(level.value) if ratio else level.value)
    left = worse * change.left
    distances = worse * (np.log(values.values) if ratio else values.values) - before
    return MemberLevel(before, float(distances[-1]), _returned(distances[change.index :], left, member.size))


def _returned(distances: Floats, left: float, size: float) -> int:
    """Count the newest points that are nearer to 0 than to ``left``; 0 if ``left`` itself is nearer to 0."""
    if left / size < 0.5:
        return 0
    away = np.flatnonzero(distances / left > 0.5)
    return distances.size - 1 - int(away[-1]) if away.size else int(distances.size)


def returned(alert: Alert, levels: Mapping[SeriesName, MemberLevel]) -> str:
    """Return a sentence for readers if the newest points of the worst series are near its old level; otherwise ""."""
    level = levels.get(alert.members[0].series) if alert.members else None
    if level is None or not level.returned:
        return ""
    points = (
        "point of the worst series is" if level.returned == 1 else f"{level.returned} points of the worst series are"
    )
    return f"The newest {points} nearer to the level before the change, but too few to be sure that it recovered"
