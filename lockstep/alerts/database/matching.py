"""Find the stored alert of a change that an analysis reports under a new name.

The name of a change consists of its series and the commit at which it was first reported. The name stays the same while
new commits follow. But if older commits are measured later, or the detector is changed, the same change may be reported
at another commit. Then its commit range and its size decide to which stored change it corresponds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row

from lockstep.alerts.database.alert_as_json import member_of
from lockstep.alerts.database.states_and_actions import ACCEPTED
from lockstep.alerts.model import Alert, FoundChange
from lockstep.history.parameter_text import comparable
from lockstep.record.series_name import SeriesName

#: A change may move by this many measured commits between two analyses and still count as the same change.
NEAR = 3

#: An accepted change stays accepted unless its log factor grows by more than this factor.
_ACCEPTED = 2.0

#: Added to the distance of a withdrawn change, so that changes that are not withdrawn come first.
_WITHDRAWN = 100.0


@dataclass(frozen=True)
class _StoredChange:
    """A change of an alert in the database. Positions are among the machine's commits; ``end`` is the last possible
    position.
    """

    number: int
    key: str
    start: int
    end: int
    size: float
    withdrawn: bool
    accepted: bool


def owners(
    rows: Iterable[Row[Any]], alerts: Iterable[Alert], names: Iterable[str], places: Mapping[str, Mapping[str, int]]
) -> dict[str, int]:
    """Return the numbers of the alerts to which changes with new names belong, by ``FoundChange.key``.

    Changes that no alert owns are left out.

    Args:
        rows: the alerts in the database.
        alerts: the alerts of this analysis.
        names: the keys of the changes with new names. Only the series of these changes are considered.
        places: the position of each commit, by machine.
    """
    new = set(names)
    members_by_place: dict[tuple[SeriesName, bool], list[FoundChange]] = defaultdict(list)
    for alert in alerts:
        for member in alert.members:
            members_by_place[_comparable(member.series), member.size > 0].append(member)
    renamed_members = {
        place: members for place, members in members_by_place.items() if any(member.key in new for member in members)
    }
    known: dict[tuple[SeriesName, bool], list[_StoredChange]] = defaultdict(list)
    for row in rows if renamed_members else ():
        for content in row.content["members"]:
            place = _comparable(SeriesName(**content["series"])), content["size"] > 0
            if place in renamed_members:
                known[place].append(_known(row, content, places[row.machine]))
    pairs: dict[str, int] = {}
    for place, members in renamed_members.items():
        if place in known:
            pairs |= _aligned(known[place], members, places[place[0].machine])
    return pairs


def _comparable(series: SeriesName) -> SeriesName:
    case = comparable(series.case)
    return series if case == series.case else replace(series, case=case)


def _known(row: Row[Any], content: Mapping[str, Any], places: Mapping[str, int]) -> _StoredChange:
    series = SeriesName(**content["series"])
    key = member_of({**content, "series": series, "cause": None}).key
    # Older versions stored no range for a series. Other machines may have narrowed the range of the alert.
    before, after = content.get("before") or row.content["before"], content.get("after")
    measured = [places[commit] for commit in row.content["commits"] if commit in places]
    end = places.get(after or "", measured[-1] if measured else places.get(content["reported_at"], -1))
    start = min(places.get(before, end - 1) + 1, end)
    withdrawn = row.state == "resolved" and row.ending == "withdrawn"
    accepted = row.state == "resolved" and row.ending in ACCEPTED
    return _StoredChange(row.id, key, start, end, content["size"], withdrawn, accepted)


def _aligned(
    known: Sequence[_StoredChange], members: Sequence[FoundChange], places: Mapping[str, int]
) -> dict[str, int]:
    """Pair the stored changes of a series with the changes of this analysis, in the order of the commits.

    As many changes as possible are paired. Among such pairings, the one with the least total distance is chosen.
    """
    old = sorted(known, key=lambda change: (change.end, change.start))
    spans = {member.key: (places.get(member.before, -1) + 1, places.get(member.after, -1)) for member in members}
    new = sorted(members, key=lambda member: spans[member.key][::-1])
    # best[i][j]: the best pairs among the first i old and j new changes. More pairs are better, then a smaller
    # distance.
    best: list[list[tuple[int, float, dict[str, int]]]] = [[(0, 0.0, {})] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i, stored in enumerate(old):
        for j, member in enumerate(new):
            options = [best[i][j + 1], best[i + 1][j]]
            distance = _distance(stored, member, spans[member.key])
            if distance is not None:
                count, closeness, pairs = best[i][j]
                options.append((count + 1, closeness - distance, pairs | {member.key: stored.number}))
            best[i + 1][j + 1] = max(options, key=lambda option: option[:2])
    return best[-1][-1][2]


def _distance(known: _StoredChange, member: FoundChange, span: tuple[int, int]) -> float | None:
    """Return the distance of two changes in measured commits; ``None`` if they are not the same change."""
    gap = float(max(span[0] - known.end, known.start - span[1], 0))
    if known.key != member.key:
        if gap > NEAR or (known.accepted and abs(member.size) > _ACCEPTED * abs(known.size)):
            return None
        # The distance of the ends decides between overlapping ranges.
        gap += min(abs(span[1] - known.end), NEAR) / 10 + 0.1
    return gap + (_WITHDRAWN if known.withdrawn else 0.0)
