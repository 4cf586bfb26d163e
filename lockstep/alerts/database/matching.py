"""Find the stored alert of a change that an analysis reports under a new name.

The name of a change consists of its series and the commit at which it was first reported. The name stays the same while
new commits follow. But if older commits are measured later, or the detector is changed, the same change may be reported
at another commit. Then its commit range and its size decide to which stored change it corresponds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sqlalchemy import Row

from lockstep.alerts.cause.found_change import change_key
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


def owners(
    rows: Iterable[Row[Any]], alerts: Iterable[Alert], names: Iterable[str], places: Mapping[str, Mapping[str, int]]
) -> dict[str, int]:
    """Return the numbers of the alerts to which changes with new names belong, by ``FoundChange.key``.

    Changes that no alert owns are left out.

    Args:
        rows: the alerts in the database.
        names: the keys of the changes with new names. Only the series of these changes are considered.
        places: the position of each commit, by machine.
    """
    new = set(names)
    members: dict[tuple[SeriesName, bool], list[FoundChange]] = defaultdict(list)
    for alert in alerts:
        for member in alert.members:
            members[_comparable(member.series), member.size > 0].append(member)
    renamed = {place: found for place, found in members.items() if any(member.key in new for member in found)}
    stored: dict[tuple[SeriesName, bool], list[tuple[Row[Any], Mapping[str, Any]]]] = defaultdict(list)
    for row in rows if renamed else ():
        for content in row.content["members"]:
            stored[_comparable(SeriesName(**content["series"])), content["size"] > 0].append((row, content))
    owned: dict[str, int] = {}
    for place, found in renamed.items():
        known = stored.get(place, [])
        distances = [[_distance(*one, member, places[one[0].machine]) for member in found] for one in known]
        owned |= {found[new].key: known[old][0].id for old, new in _pairs(distances)}
    return owned


def _pairs(distances: Sequence[Sequence[float | None]]) -> list[tuple[int, int]]:
    """Pair rows with columns: as many as possible, with the least total distance. ``None``: they cannot be paired."""
    # Imported here: scipy is slow to import, and most analyses find no change under a new name.
    from scipy.optimize import linear_sum_assignment

    never = 1e6
    costs = np.array([[never if one is None else one for one in row] for row in distances], ndmin=2)
    return [
        (row, column) for row, column in zip(*linear_sum_assignment(costs), strict=True) if costs[row, column] < never
    ]


def _comparable(series: SeriesName) -> SeriesName:
    case = comparable(series.case)
    return series if case == series.case else replace(series, case=case)


def _distance(
    row: Row[Any], content: Mapping[str, Any], member: FoundChange, places: Mapping[str, int]
) -> float | None:
    """Return the distance in measured commits of a stored change of an alert from a change of the same series.

    ``None`` if they are not the same change.
    """
    # Older versions stored no range for a series.
    before, after = content.get("before") or row.content["before"], content.get("after")
    measured = [places[commit] for commit in row.content["commits"] if commit in places]
    end = places.get(after or "", measured[-1] if measured else places.get(content["reported_at"], -1))
    start = min(places.get(before, end - 1) + 1, end)
    first, last = places.get(member.before, -1) + 1, places.get(member.after, -1)
    gap = float(max(first - end, start - last, 0))
    if change_key(SeriesName(**content["series"]), content["reported_at"]) != member.key:
        accepted = row.state == "resolved" and row.ending in ACCEPTED
        if gap > NEAR or (accepted and abs(member.size) > _ACCEPTED * abs(content["size"])):
            return None
        # The distance of the ends decides between overlapping ranges.
        gap += min(abs(last - end), NEAR) / 10 + 0.1
    return gap + (_WITHDRAWN if row.state == "resolved" and row.ending == "withdrawn" else 0.0)
