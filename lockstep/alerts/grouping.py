"""One alert out of many changes: those of one family in one commit range on one machine.

A commit that slows a kernel shows in dozens of cases, each of which places it a little differently.
They are one event for the person who gets the message, and the range that they all share is narrower
than each of theirs.
"""

from __future__ import annotations

import datetime
import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from lockstep.alerts.attribution import Cause, Kind
from lockstep.alerts.commit_ranges import Unknown
from lockstep.alerts.steps import SeriesName, Step

#: What an alert is about. The last five are no change of a number: see ``lockstep.alerts.freshness``.
Topic = Literal["slower", "faster", "stopped", "silent", "vanished", "renamed", "version"]


@dataclass(frozen=True)
class Member:
    """One series' part in an alert.

    Attributes:
        series: which.
        reported_at: commit at which its change was first told; with the series it names the change for good.
        size, low, high: natural log of the factor by which it became worse, and its interval.
        confidence: of the detector.
        cause: of this change.
        left: log of the factor by which its newest level is still worse than before.
        before, after: the measured commits between which it came; "" where an older version stored it.
        unsettled: the points after it agree on no level, see ``Step``.
    """

    series: SeriesName
    reported_at: str
    size: float
    low: float
    high: float
    confidence: float
    cause: Cause
    left: float
    before: str = ""
    after: str = ""
    unsettled: bool = False

    @property
    def key(self) -> str:
        """Identity of the change, whatever later data say of its place and size."""
        s = self.series
        return "\x1f".join((s.machine, s.suite, s.variant, s.case, s.l2, s.quantity, self.reported_at))

    @property
    def factor(self) -> float:
        """How many times worse it became; below 1 it became better."""
        return math.exp(self.size)


@dataclass(frozen=True)
class Waiver:
    """Why nobody has to act: ``thresholds.toml`` accepts the change, or mutes it up to a day."""

    because: str
    until: datetime.date | None = None


@dataclass(frozen=True)
class Alert:
    """What a person is told of, as the data have it now.

    Attributes:
        topic: "slower" if anything became slower, else "faster"; or what a freshness alert is about.
        machine, family: where; ``family`` is "" if the whole machine is meant.
        before: newest commit that is known to be good; "" unknown.
        commits: the culprit is one of them, oldest first; the range is ``before..commits[-1]``. If the range is
            ``unknown``, and of a freshness alert, they are the measured ones alone, and the culprit may be any other.
        unknown: why the commits of the range are not known; "" they are.
        cause: what explains most of it.
        members: the series, worst first.
        since: date of ``commits[-1]``, ms since 1970.
        also_on: other machines on which the family changed in commits that overlap with these.
        owner: from the thresholds; "" nobody.
        gone: whether the data have gone back to what they were.
        old: whether it lies so far back that nobody has to be told.
        waiver: of everything that became slower; ``None`` if any of it has none.
        text: what a freshness alert says; "" for a change, which says it in numbers.
    """

    topic: Topic
    machine: str
    family: str
    before: str
    commits: tuple[str, ...]
    cause: Cause
    members: tuple[Member, ...] = ()
    since: int = 0
    also_on: tuple[str, ...] = ()
    owner: str = ""
    gone: bool = False
    old: bool = False
    waiver: Waiver | None = None
    text: str = ""
    unknown: Unknown = ""

    @property
    def after(self) -> str:
        """The newest commit that can be the culprit; "" if there is none."""
        return self.commits[-1] if self.commits else ""

    @property
    def known(self) -> bool:
        """Whether the culprit is one of ``commits``."""
        return bool(self.members) and not self.unknown

    @property
    def narrowed(self) -> bool:
        """Whether the range is narrower than this machine's own measurements make it."""
        own = {one.before for one in self.members}, {one.after for one in self.members}
        return bool(self.also_on) and "" not in own[0] and (self.before not in own[0] or self.after not in own[1])

    @property
    def range(self) -> str:
        """The culprit range as git takes it: ``before..after``, or the one commit if it can be no other."""
        after = self.after[:8]
        return f"{self.before[:8]}..{after}" if self.before and not (self.known and len(self.commits) == 1) else after

    @property
    def suspects(self) -> tuple[str, ...]:
        """Those of ``commits`` that touch the packages under test, or all; () if the range is not known."""
        if not self.known:
            return ()
        named = tuple(one.after for one in self.cause.evidence if one.what == "commit")
        return named or self.commits

    @property
    def fingerprint(self) -> str:
        """What makes it this alert and no other, when it is first seen: 32 hex digits."""
        about = self.members[0].key if self.members else ""
        text = "\x1e".join((self.topic, self.machine, self.family, self.before, self.after, about))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class ReportedStep:
    """A step that is worth telling, and what the thresholds and the calendar say of it.

    Attributes:
        step, cause: what and why.
        owner: of the series.
        since: date of its last possible culprit, ms since 1970.
        small: log of the factor up to which a series counts as back at its old level.
        old: whether it lies too far back to be told.
        waiver: see ``Alert``.
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
        """Whether the newest level is as good as the one before: no more than a fifth of the step is left."""
        return self.step.left <= max(self.small, self.step.size / 5)


@dataclass
class _Group:
    """Steps whose ranges all share a commit, while they are gathered."""

    end: int
    told: list[ReportedStep] = field(default_factory=list)


def group(told: Iterable[ReportedStep], order: Sequence[str] = ()) -> list[Alert]:
    """Alerts out of steps, in the order of machine, family and range.

    Args:
        told: steps of any machines and families.
        order: commits oldest first, to find the good commit before a range that several series narrow.
    """
    position = {commit: index for index, commit in enumerate(order)}
    families: dict[tuple[str, str], list[ReportedStep]] = defaultdict(list)
    for one in told:
        families[one.step.series.machine, one.step.series.family].append(one)
    alerts = [
        _alert(machine, family, gathered.told, position)
        for (machine, family), members in sorted(families.items())
        for gathered in _gather(members)
    ]
    return _across_machines(alerts, position)


def _gather(told: Iterable[ReportedStep]) -> list[_Group]:
    """Fewest groups whose ranges share a commit: sorted by their ends, each range joins if it holds the group's end."""
    groups: list[_Group] = []
    for one in sorted(told, key=lambda one: (one.step.last, one.step.first)):
        if not groups or one.step.first > groups[-1].end:
            groups.append(_Group(one.step.last))
        groups[-1].told.append(one)
    return groups


def _alert(machine: str, family: str, told: Sequence[ReportedStep], position: Mapping[str, int]) -> Alert:
    slower = [one for one in told if one.step.size > 0]
    # The largest change of the sense that the alert is about comes first.
    sign = -1 if slower else 1
    members = tuple(_member(one) for one in sorted(told, key=lambda one: (sign * one.step.size, one.step.series)))
    worse = members[: len(slower)]
    # Measured commits of an unknown range say nothing of those in between, and do not narrow a range that is known.
    sure = [one for one in told if not one.step.unknown] or told
    narrowest = min(sure, key=lambda one: len(one.step.between))
    shared = set.intersection(*(set(one.step.between) for one in sure))
    commits = tuple(c for c in narrowest.step.between if c in shared) or narrowest.step.between
    before = _latest_before([one.step.good for one in sure], commits, position) or narrowest.step.good
    return Alert(
        topic="slower" if worse else "faster",
        machine=machine,
        family=family,
        before=before,
        commits=commits,
        cause=_main_cause(worse or members, commits, narrowest.step.unknown),
        members=members,
        since=max(one.since for one in told),
        owner=", ".join(sorted({one.owner for one in told if one.owner})),
        gone=bool(slower) and all(one.gone for one in slower),
        old=all(one.old for one in told),
        waiver=_waiver(slower),
        unknown=narrowest.step.unknown,
    )


def _waiver(slower: Sequence[ReportedStep]) -> Waiver | None:
    """Return the waiver that covers every slowdown: the mute that ends first, or else the first acceptance."""
    waivers = [one.waiver for one in slower if one.waiver]
    if not waivers or len(waivers) < len(slower):
        return None
    return min(waivers, key=lambda waiver: (waiver.until is None, waiver.until or datetime.date.max))


def _member(told: ReportedStep) -> Member:
    step = told.step
    return Member(
        series=step.series,
        reported_at=step.reported_at,
        size=step.size,
        low=step.low,
        high=step.high,
        confidence=step.confidence,
        cause=told.cause,
        left=step.left,
        before=step.good,
        after=step.end,
        unsettled=step.unsettled,
    )


def _main_cause(members: Sequence[Member], commits: Sequence[str], unknown: Unknown) -> Cause:
    """The cause that most of the change has, told of its worst series; a commit range as the group has narrowed it."""
    weight: dict[Kind, float] = defaultdict(float)
    for member in members:
        weight[member.cause.kind] += abs(member.size)
    if not unknown and len(weight) > 1:
        # Other series of the group know the range.
        weight.pop("unknown range", None)
    kind = max(weight, key=lambda one: weight[one])
    cause = next(member.cause for member in members if member.cause.kind == kind)
    return _narrowed(cause, commits)


def _narrowed(cause: Cause, commits: Sequence[str]) -> Cause:
    """The cause without the commits that are out of the range."""
    left = tuple(one for one in cause.evidence if one.what != "commit" or one.after in commits)
    return replace(cause, evidence=left) if len(left) < len(cause.evidence) else cause


def _across_machines(alerts: Sequence[Alert], position: Mapping[str, int]) -> list[Alert]:
    """Each alert with its range narrowed by the other machines on which a commit in it changed the same family."""
    at: dict[tuple[str, Topic, str], list[Alert]] = defaultdict(list)
    for alert in alerts:
        for commit in _culprits(alert):
            at[alert.family, alert.topic, commit].append(alert)
    narrowed = []
    for alert in alerts:
        own = _culprits(alert)
        meeting = [other for commit in own for other in at[alert.family, alert.topic, commit]]
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
    """The commits one of which may have changed the family's own code; () if none did, or if they are not known."""
    return alert.commits if alert.cause.kind in ("own commit", "unknown cause") and not alert.unknown else ()


def _latest_before(candidates: Sequence[str], commits: Sequence[str], position: Mapping[str, int]) -> str:
    """The newest of the commits known to be good that lies before the range; "" if none is known to."""
    bound = min((position[commit] for commit in commits if commit in position), default=0)
    good = [commit for commit in candidates if position.get(commit, bound) < bound]
    return max(good, key=lambda commit: position[commit], default="")
