"""Group the changes of one family on one machine whose commit ranges overlap into one alert.

A commit that slows a kernel changes dozens of cases, and each case has a slightly different commit range. A reader
wants one message for all of them. The range of the alert consists of the commits that the ranges of all cases share.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lockstep.alerts.cause.attribution import Cause, Kind
from lockstep.alerts.cause.change_facts import Step
from lockstep.alerts.cause.commit_ranges import Unknown
from lockstep.alerts.model import Alert, Member, Topic, Waiver
from lockstep.detect.findings import Sense
from lockstep.record.quantity import APART
from lockstep.record.series_name import SeriesName


@dataclass(frozen=True)
class ReportedStep:
    """A step that passed the thresholds, with its owner, its age and its waiver.

    Attributes:
        step: the change.
        cause: the cause of the change.
        owner: the owner of the series.
        since: date of the step's last possible culprit, ms since 1970.
        small: relative change within which a series counts as back at its old level.
        old: whether the step is too old to be reported.
        waiver: why the step needs no action; ``None`` if it has no waiver.
    """

    step: Step
    cause: Cause
    owner: str = ""
    since: int = 0
    small: float = 0.01
    old: bool = False
    waiver: Waiver | None = None

    @property
    def gone(self) -> bool:
        """Whether the series recovered: at most a fifth of the step is left."""
        left = abs(self.step.left) if self.step.sense == "changed" else self.step.left
        return left <= max(self.small * self.step.scale, abs(self.step.size) / 5)

    @property
    def urgent(self) -> bool:
        """Whether the change may be bad news: it is worse, or nobody has stated which direction is better."""
        return self.step.sense != "better"


@dataclass
class _Group:
    """Steps whose commit ranges share a commit."""

    end: int
    steps: list[ReportedStep] = field(default_factory=list)


def group(steps: Iterable[ReportedStep], order: Sequence[str] = ()) -> list[Alert]:
    """Group steps into alerts, in the order of machine, family and range.

    Args:
        steps: the steps of any machines and families.
        order: all commits, oldest first. If several series narrow a range, the order decides which of their good
            commits is the newest before the range.
    """
    position = {commit: index for index, commit in enumerate(order)}
    # A wrong result is not a slowdown, and a slow host is not a slow kernel. So these form groups of their own even if
    # the same commits caused them.
    families: dict[tuple[str, str, str], list[ReportedStep]] = defaultdict(list)
    for reported in steps:
        series = reported.step.series
        families[series.machine, series.family, APART.get(series.quantity, "")].append(reported)
    alerts = [
        _alert(machine, family, gathered.steps, position)
        for (machine, family, _), members in sorted(families.items())
        for gathered in _gather(members)
    ]
    return _across_machines(alerts, position)


def _gather(steps: Iterable[ReportedStep]) -> list[_Group]:
    """Divide steps into the fewest groups in which all ranges share a commit.

    The ranges are taken in the order of their ends. A range joins the newest group if it contains the end of the
    group's first range.
    """
    groups: list[_Group] = []
    for reported in sorted(steps, key=lambda reported: (reported.step.last, reported.step.first)):
        if not groups or reported.step.first > groups[-1].end:
            groups.append(_Group(reported.step.last))
        groups[-1].steps.append(reported)
    return groups


def _alert(machine: str, family: str, steps: Sequence[ReportedStep], position: Mapping[str, int]) -> Alert:
    urgent = [reported for reported in steps if reported.urgent]
    members = tuple(sorted(map(_member, steps), key=_loudest))
    topic: Topic = _TOPIC[members[0].sense]
    leading = [member for member in members if member.sense == members[0].sense]
    # An unknown range lists only measured commits, so it must not narrow a known range.
    known = [reported for reported in steps if not reported.step.unknown] or steps
    narrowest = min(known, key=lambda reported: len(reported.step.between))
    shared = set.intersection(*(set(reported.step.between) for reported in known))
    commits = tuple(c for c in narrowest.step.between if c in shared) or narrowest.step.between
    before = _latest_before([reported.step.good for reported in known], commits, position) or narrowest.step.good
    return Alert(
        topic=topic,
        machine=machine,
        family=family,
        before=before,
        commits=commits,
        cause=_main_cause(leading, commits, narrowest.step.unknown),
        members=members,
        since=max(reported.since for reported in steps),
        owner=", ".join(sorted({reported.owner for reported in steps if reported.owner})),
        gone=bool(urgent) and all(reported.gone for reported in urgent),
        old=all(reported.old for reported in steps),
        waiver=_waiver(urgent),
        unknown=narrowest.step.unknown,
    )


#: The topic of an alert by the sense of its first series, and the order of the senses.
_TOPIC: Mapping[Sense, Topic] = {"worse": "slower", "changed": "changed", "better": "faster"}
_ORDER = tuple(_TOPIC)


def _loudest(member: Member) -> tuple[int, float, SeriesName]:
    """Return the key by which an alert orders its series: by sense, then the largest change first."""
    return _ORDER.index(member.sense), -abs(member.weight), member.series


def _waiver(urgent: Sequence[ReportedStep]) -> Waiver | None:
    """Return the waiver that covers every urgent change: the mute that ends first, or else the first acceptance."""
    waivers = [reported.waiver for reported in urgent if reported.waiver]
    if not waivers or len(waivers) < len(urgent):
        return None
    return min(waivers, key=lambda waiver: (waiver.until is None, waiver.until or datetime.date.max))


def _member(reported: ReportedStep) -> Member:
    step = reported.step
    return Member(
        series=step.series,
        reported_at=step.reported_at,
        size=step.size,
        low=step.low,
        high=step.high,
        confidence=step.confidence,
        cause=reported.cause,
        left=step.left,
        before=step.good,
        after=step.end,
        old=step.old,
        new=step.new,
        better=step.better,
        measure=step.measure,
    )


def _main_cause(members: Sequence[Member], commits: Sequence[str], unknown: Unknown) -> Cause:
    """Return the cause that explains the largest part of the change, with the sentence of its worst series."""
    weight: dict[Kind, float] = defaultdict(float)
    for member in members:
        weight[member.cause.kind] += abs(member.weight)
    if not unknown and len(weight) > 1:
        # Another series of the group has a known range, so the alert's range is known.
        weight.pop("unknown range", None)
    kind = max(weight, key=lambda kind: weight[kind])
    cause = next(member.cause for member in members if member.cause.kind == kind)
    return _narrowed(cause, commits)


def _narrowed(cause: Cause, commits: Sequence[str]) -> Cause:
    """Return the cause without the evidence that names commits outside the alert's range."""
    left = tuple(fact for fact in cause.evidence if fact.what != "commit" or fact.after in commits)
    return replace(cause, evidence=left) if len(left) < len(cause.evidence) else cause


def _across_machines(alerts: Sequence[Alert], position: Mapping[str, int]) -> list[Alert]:
    """Narrow the range of each alert by the alerts of the same family on other machines that share a commit with it."""
    at: dict[tuple[str, Topic, str], list[Alert]] = defaultdict(list)
    for alert in alerts:
        for commit in _culprits(alert):
            at[alert.family, alert.topic, commit].append(alert)
    narrowed = []
    for alert in alerts:
        own_culprits = _culprits(alert)
        meeting = [other for commit in own_culprits for other in at[alert.family, alert.topic, commit]]
        others = [other for other in meeting if other.machine != alert.machine]
        if not others:
            narrowed.append(alert)
            continue
        shared = set(alert.commits).intersection(*(other.commits for other in others))
        commits = tuple(commit for commit in alert.commits if commit in shared) or alert.commits
        machines = tuple(sorted({other.machine for other in others}))
        before = _latest_before([alert.before, *(other.before for other in others)], commits, position) or alert.before
        narrowed.append(
            replace(alert, commits=commits, before=before, also_on=machines, cause=_narrowed(alert.cause, commits))
        )
    return narrowed


def _culprits(alert: Alert) -> tuple[str, ...]:
    """Return the commits that may have changed the family's own code; () if no commit did, or if they are unknown."""
    return alert.commits if alert.cause.kind in ("own commit", "unknown cause") and not alert.unknown else ()


def _latest_before(candidates: Sequence[str], commits: Sequence[str], position: Mapping[str, int]) -> str:
    """Return the newest candidate that lies before the range; "" if there is none.

    Args:
        candidates: commits that are known to be good.
        commits: the commits of the range.
        position: the position of each commit in the history.
    """
    bound = min((position[commit] for commit in commits if commit in position), default=0)
    earlier = [commit for commit in candidates if position.get(commit, bound) < bound]
    return max(earlier, key=lambda commit: position[commit], default="")
