"""Convert an alert to its row in the database and back, apply actions to it, and write its log."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import pydantic_core
from pydantic import TypeAdapter
from sqlalchemy import Connection, Row, insert, select, update

from lockstep.alerts.database.schema import ALERT, EVENT
from lockstep.alerts.database.states_and_actions import OPEN, STATEMENTS, Act, State, step_to
from lockstep.alerts.model import Alert, FoundChange
from lockstep.processes.exit_status import UsageError

#: Fields of a change that its analysis alone needs, so they are not stored.
_NOT_STORED = tuple(field.name for field in fields(FoundChange) if not field.compare)


class DamagedContent(ValueError):
    """A stored content is not that of an alert. ``Database`` says which database, and what to do."""


class NoSuchAlert(UsageError):
    """No alert has this number."""


@dataclass(frozen=True)
class Event:
    """One line of an alert's log.

    Attributes:
        at: ms since 1970.
        state: the alert's state after the action.
    """

    id: int
    at: int
    who: str
    what: str
    state: State
    note: str


@dataclass(frozen=True)
class Tracked:
    """An alert with its state.

    Attributes:
        fingerprint: see ``Alert.fingerprint``.
        alert: the alert as the newest analysis reports it.
        state: see ``lockstep.alerts.database.states_and_actions``.
        ending: see ``lockstep.alerts.database.states_and_actions``; "" unless the alert is resolved.
        muted_until: the last day of the alert's mute.
        opened_at, changed_at: ms since 1970.
    """

    id: int
    fingerprint: str
    alert: Alert
    state: State
    ending: str
    muted_until: datetime.date | None
    opened_at: int
    changed_at: int

    @property
    def open(self) -> bool:
        """Whether the alert is in a state that needs action: new, acknowledged or reopened."""
        return self.state in OPEN


def perform(connection: Connection, alert: Tracked, act: Act, newest: str, today: datetime.date) -> None:
    """Apply an action to an alert and log the action.

    ``newest`` is the newest commit that the alert's machine has measured.

    Raise ``LifecycleError`` if the alert's state does not allow the action.
    """
    state = step_to(alert.state, act, today)
    values: dict[str, Any] = {
        "state": state,
        "ending": (act.ending or "fixed") if state == "resolved" else "",
        "muted_until": act.until if state == "muted" else None,
        "closed_at_commit": newest if state == "resolved" else "",
        "changed_at": now_ms(),
    }
    connection.execute(update(ALERT).where(ALERT.c.id == alert.id).values(values))
    note = f"until {act.until}: {act.note}" if state == "muted" else act.note
    write_log(connection, alert.id, act.who, act.ending if act.ending in STATEMENTS else state, state, note)


def write_log(connection: Connection, number: int, who: str, what: str, state: str, note: str) -> None:
    """Add a line to an alert's log."""
    connection.execute(insert(EVENT).values(log_line(number, who, what, state, note)))


def log_line(number: int, who: str, what: str, state: str, note: str) -> dict[str, Any]:
    """Return a line of an alert's log by column, with the current time."""
    return {"alert_id": number, "at": now_ms(), "who": who, "what": what, "state": state, "note": note}


def read_alert(connection: Connection, number: int) -> Tracked:
    """Return the alert of this number.

    Raise ``NoSuchAlert`` if no alert has this number.
    """
    row = connection.execute(select(ALERT).where(ALERT.c.id == number)).one_or_none()
    if row is None:
        raise NoSuchAlert(f"there is no alert {number}; `lockstep alerts list --all` lists all alerts")
    return tracked(row)


def tracked(row: Row[Any]) -> Tracked:
    """Return the alert that a row of the table ``ALERT`` holds.

    Raise ``DamagedContent`` if the content is not that of an alert.
    """
    try:
        alert = from_json(row.content)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        text = f"the content of alert {row.id} cannot be read ({type(error).__name__}: {error})"
        raise DamagedContent(text) from error
    return Tracked(
        row.id, row.fingerprint, alert, row.state, row.ending, row.muted_until, row.opened_at, row.changed_at
    )


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def today_utc() -> datetime.date:
    """Return the current day, UTC."""
    return datetime.datetime.now(datetime.UTC).date()


def to_json(alert: Alert) -> dict[str, Any]:
    """Return the alert as dicts, lists, texts and numbers, equal to what ``json.loads`` reads back."""
    content: dict[str, Any] = pydantic_core.from_json(pydantic_core.to_json(alert, inf_nan_mode="constants"))
    for member in content["members"]:
        for name in _NOT_STORED:
            del member[name]
    # The field has the name that the first version gave it.
    content["excuse"] = content.pop("waiver")
    return content


def from_json(content: Mapping[str, Any]) -> Alert:
    """Return the alert that ``to_json`` converted. Fields that only an older version had are left out."""
    return _alert().validate_python({**content, "waiver": content["excuse"]})


@cache
def _alert() -> TypeAdapter[Alert]:
    return TypeAdapter(Alert)
