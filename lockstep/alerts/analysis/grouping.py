"""Group the changes of one family on one machine whose commit ranges overlap into one alert.

A commit that slows a kernel changes dozens of cases, and each case has a slightly different commit range. A reader
wants one message for all of them. The range of the alert consists of the commits that the ranges of its cases share.
"""

from __future__ import annotations

import datetime
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lockstep.alerts.alert_ranking import loss_of_change
from lockstep.alerts.analysis.same_step import Levels, with_stories
from lockstep.alerts.cause.commit_ranges import Unknown
from lockstep.alerts.cause.found_change import Cause, Kind, Sense
from lockstep.alerts.model import Alert, FoundChange, Topic, Waiver
from lockstep.record.quantity import APART
from lockstep.record.series_name import SeriesName


def group(changes: Iterable[FoundChange], order: Sequence[str] = (), levels: Levels | None = None) -> list[Alert]:
    """Group changes into alerts, in the order of machine, family and range.

    Args:
        changes: the changes of any machines and families.
        order: all commits, oldest first. If several series narrow a range, the order decides which of their good
            commits is the newest before the range.
        levels: see ``with_stories``.
    """
    position = {commit: index for index, commit in enumerate(order)}
    # A wrong result is not a slowdown, and a slow host is not a slow kernel. So these form groups of their own even if
    # the same commits caused them.
    families: dict[tuple[str, str, str], list[FoundChange]] = defaultdict(list)
    for change in changes:
        series = change.series
        families[series.machine, series.family, APART.get(series.quantity, "")].append(change)
    alerts = [
        _alert(machine, family, gathered, position)
        for (machine, family, _), members in sorted(families.items())
        for gathered in _gather(members)
    ]
    return with_stories(alerts, position, levels or {})


def _gather(changes: Sequence[FoundChange]) -> list[list[FoundChange]]:
    """Divide changes into groups in which all ranges share a commit.

    A gain joins a slowdown's alert if its range ends among the commits that all of the alert's slowdowns share. A gain
    that ends later may come from a later commit, and would make the slowdown look harmless.
    """
    groups = _by_range(change for change in changes if change.sense == "worse")
    alone: list[FoundChange] = []
    for gain in (change for change in changes if change.sense != "worse"):
        shared = (max(one.first for one in of) <= gain.last <= min(one.last for one in of) for of in groups)
        joined = next(itertools.compress(groups, shared), alone)
        joined.append(gain)
    return sorted([*groups, *_by_range(alone)], key=lambda gathered: gathered[0].last)


def _by_range(changes: Iterable[FoundChange]) -> list[list[FoundChange]]:
    """Divide changes into the fewest groups in which all ranges share a commit.

    The ranges are taken in the order of their ends, the narrowest first. A range joins the newest group if it contains
    the end of the group's first range. So a wide range joins narrow ones of its own end, and not an earlier group.
    """
    groups: list[list[FoundChange]] = []
    for change in sorted(changes, key=lambda change: (change.last, -change.first)):
        if not groups or change.first > groups[-1][0].last:
            groups.append([])
        groups[-1].append(change)
    return groups


def _alert(machine: str, family: str, changes: Sequence[FoundChange], position: Mapping[str, int]) -> Alert:
    urgent = [change for change in changes if change.sense == "worse"]
    members = tuple(sorted(changes, key=_loudest))
    worst = members[0]
    topic: Topic = _TOPIC[worst.sense]
    leading = [member for member in members if member.sense == worst.sense]
    # A series took another step if its range does not contain the worst change's likeliest commit.
    same = [change for change in changes if worst.commit in change.between or change is worst]
    # An unknown range lists only measured commits, so it must not narrow a known range.
    known = [change for change in same if not change.unknown] or same
    narrowest = min(known, key=lambda change: len(change.between))
    shared = set.intersection(*(set(change.between) for change in known))
    commits = tuple(c for c in narrowest.between if c in shared) or narrowest.between
    before = _latest_before([change.before for change in known], commits, position) or narrowest.before
    old = all(change.too_old for change in changes)
    best_moved, best_takes = _best(worst) if topic == "slower" and not old else (None, "")
    return Alert(
        topic=topic,
        machine=machine,
        family=family,
        before=before,
        commits=commits,
        cause=_main_cause(leading, commits, narrowest.unknown),
        members=members,
        since=max(change.since for change in changes),
        owner=", ".join(sorted({change.owner for change in changes if change.owner})),
        gone=bool(urgent) and all(change.gone for change in urgent),
        old=old,
        waiver=_waiver(urgent),
        unknown=narrowest.unknown,
        best_moved=best_moved,
        best_takes=best_takes,
    )


def _best(worst: FoundChange) -> tuple[float | None, str]:
    """Return ``Alert.best_moved`` and ``Alert.best_takes``, given the worst series of a slowdown."""
    if worst.best_moved is None or worst.best_moved > worst.min_effect:
        return None, ""
    return (worst.best_moved if worst.best_moved < -worst.min_effect else 0.0), worst.best_takes


#: The topic of an alert by the sense of its first series, and the order of the senses.
_TOPIC: Mapping[Sense, Topic] = {"worse": "slower", "changed": "changed", "better": "faster"}
_ORDER = tuple(_TOPIC)


def _loudest(member: FoundChange) -> tuple[int, bool, float, float, SeriesName]:
    """Return the key by which an alert orders its series: by sense, then the largest loss and change first."""
    certain, score = loss.order if (loss := loss_of_change(member)) else (False, 0.0)
    return _ORDER.index(member.sense), not certain, -score, -abs(member.weight), member.series


def _waiver(urgent: Sequence[FoundChange]) -> Waiver | None:
    """Return the waiver that covers every urgent change: the mute that ends first, or else the first acceptance."""
    waivers = [change.waiver for change in urgent if change.waiver]
    if not waivers or len(waivers) < len(urgent):
        return None
    return min(waivers, key=lambda waiver: (waiver.until is None, waiver.until or datetime.date.max))


def _main_cause(members: Sequence[FoundChange], commits: Sequence[str], unknown: Unknown) -> Cause:
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
