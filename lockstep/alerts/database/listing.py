"""List the stored alerts. The database filters, orders and counts them, so that a request does not read all alerts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, and_, case, func, or_, select

from lockstep.alerts.alert_ranking import rank_of
from lockstep.alerts.database.alert_row import Tracked
from lockstep.alerts.database.schema import ALERT
from lockstep.alerts.database.states_and_actions import State
from lockstep.alerts.model import Alert

#: "urgent": open alerts first, then by what is lost (``lockstep.alerts.alert_ranking``). "newest": by date of the last
#: possible culprit.
#: "largest": the largest slowdown first. "family": by family and machine, then as "urgent".
Order = Literal["urgent", "newest", "largest", "family"]

#: Number of an alert's series whose names a search covers. The worst series come first.
_SEARCHED = 20


@dataclass(frozen=True)
class Choice:
    """A filter that selects the alerts of a list.

    Attributes:
        states: the states of the alerts; ``None`` for all states.
        family, machine, owner: exact names; "" for any.
        search: words that must all occur, in any letter case, in family, machine, owner, cause, range or series.
    """

    states: frozenset[State] | None = None
    family: str = ""
    machine: str = ""
    owner: str = ""
    search: str = ""


@dataclass(frozen=True)
class Page:
    """One page of a list of alerts, with the totals of the whole list.

    Attributes:
        total: number of rows of the whole list.
        slower: number of rows of the whole list that report a slowdown which is not doubted.
        doubted: number of rows of the whole list that are doubted (``lockstep.alerts.alert_ranking``).
    """

    alerts: tuple[Tracked, ...]
    total: int
    slower: int
    doubted: int = 0


@dataclass(frozen=True)
class Names:
    """The families, machines and owners that occur among the alerts, sorted. A filter offers them as choices."""

    family: tuple[str, ...]
    machine: tuple[str, ...]
    owner: tuple[str, ...]


@dataclass(frozen=True)
class OpenAlerts:
    """The open alerts that are not doubted, for the overview of one machine.

    Attributes:
        first: the most urgent open alerts of the machine.
        states: number of the machine's open alerts by state.
        elsewhere: number of open alerts by machine, for the other machines.
        muted: number of the machine's muted alerts.
        gravest: the most urgent open alert of all other machines; ``None`` if there is none.
    """

    first: tuple[Tracked, ...]
    states: Mapping[State, int]
    elsewhere: Mapping[str, int]
    muted: int = 0
    gravest: Tracked | None = None

    @property
    def total(self) -> int:
        """Number of the machine's open alerts."""
        return sum(self.states.values())


def columns_of(alert: Alert) -> dict[str, Any]:
    """Return the columns of ``ALERT`` that lists use to filter and order."""
    size = alert.members[0].weight if alert.members else 0.0
    if alert.topic == "slower":
        size = abs(size)
    labels = [member.series.label for member in alert.members[:_SEARCHED]]
    texts = [alert.family, alert.machine, alert.topic, alert.cause.kind, alert.owner, alert.range, alert.text, *labels]
    return {
        "owner": alert.owner,
        "since": alert.since,
        "size": size if math.isfinite(size) else 0.0,
        "search": " ".join(part for part in texts if part).lower(),
        "rank": rank_of(alert),
        "story": alert.story,
    }


_URGENT = case(
    (ALERT.c.state.in_(["new", "reopened"]), 0),
    (ALERT.c.state == "acknowledged", 1),
    (ALERT.c.state == "muted", 2),
    else_=3,
)
#: Freshness alerts of a machine have no commit and therefore no commit date.
_DATE = case((ALERT.c.since == 0, ALERT.c.opened_at), else_=ALERT.c.since)


def order_by(order: Order) -> list[ColumnElement[Any]]:
    """Return the expressions by which a query puts alerts in an order."""
    urgent: list[ColumnElement[Any]] = [_URGENT, ALERT.c.rank.desc(), _DATE.desc(), ALERT.c.id.desc()]
    if order == "newest":
        return [_DATE.desc(), ALERT.c.id.desc()]
    if order == "largest":
        return [ALERT.c.size.desc(), ALERT.c.id.desc()]
    return [ALERT.c.family, ALERT.c.machine, *urgent] if order == "family" else urgent


def first_of_stories(conditions: Sequence[ColumnElement[bool]]) -> ColumnElement[bool]:
    """Return the condition for alerts that fulfil the ``conditions``; of those of one story, for the gravest."""
    place = func.row_number().over(partition_by=ALERT.c.story, order_by=(ALERT.c.rank.desc(), ALERT.c.id))
    several = select(ALERT.c.id, place.label("place")).where(*conditions, ALERT.c.story != "").subquery()
    return and_(*conditions, or_(ALERT.c.story == "", ALERT.c.id.in_(select(several.c.id).where(several.c.place == 1))))


def conditions_of(choice: Choice) -> list[ColumnElement[bool]]:
    """Return the conditions of a query for the alerts that a choice selects."""
    conditions: list[ColumnElement[bool]] = []
    if choice.states is not None:
        conditions.append(ALERT.c.state.in_(sorted(choice.states)))
    for column, value in ((ALERT.c.family, choice.family), (ALERT.c.machine, choice.machine)):
        if value:
            conditions.append(column == value)
    if choice.owner:
        conditions.append(ALERT.c.owner == choice.owner)
    conditions += [ALERT.c.search.contains(word, autoescape=True) for word in choice.search.lower().split()]
    return conditions
