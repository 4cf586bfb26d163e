"""Messages between being written and being delivered.

A message is taken out for sending in one transaction and noted as sent in another. Nobody can make
sending and noting one step: if the process dies in between, or the receiver takes the message and then
says nothing, it may or may not have arrived. It is then "in doubt": never sent again by itself, so that
nobody is told twice, and never forgotten, since it is named until somebody sends it again.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Row, insert, select, update

from lockstep.alerts.lifecycle import OPEN
from lockstep.alerts.schema import ALERT, EVENT, OUTBOX
from lockstep.alerts.store import AlertStore
from lockstep.alerts.tracked import tracked
from lockstep.notify.message import Message, Severity, alert_message, digest_message
from lockstep.notify.receivers import Receiver

#: "due": waits for its time. "sending": taken out. "sent". "failed": given up. "doubt": see above. "dropped": no longer
#: of interest before it could be sent.
State = Literal["due", "sending", "sent", "failed", "doubt", "dropped"]

#: Milliseconds after which a message that was taken out and neither sent nor returned is in doubt.
LEASE_MS = 10 * 60_000

#: Attempts, over about half a day, before a message is given up.
ATTEMPTS = 12
_FIRST_WAIT_MS = 30_000
_LONGEST_WAIT_MS = 4 * 3_600_000

#: What happened longer ago is not told to a receiver that comes new.
_NEWS_MS = 7 * 86_400_000

_DAY_MS = 86_400_000


@dataclass(frozen=True)
class QueuedMessage:
    """A message on its way.

    Attributes:
        id: its number. receiver: key of the receiver. alert: number of the alert; ``None`` for a digest.
        state: see ``State``. attempts: so far. error: of the last attempt.
        due_at: when it is due, or while it is sent, when it counts as in doubt; ms since 1970.
    """

    id: int
    receiver: str
    alert: int | None
    message: Message
    state: State
    attempts: int
    error: str
    due_at: int


class Outbox:
    """The outbox in the alerts' database."""

    def __init__(self, store: AlertStore) -> None:
        self._store = store
        self._database = store.database

    def write_alerts(self, receivers: Sequence[Receiver], site: str, now: int) -> int:
        """Write a message for each alert that was opened or reopened, once a receiver; how many were written."""
        news = (
            select(EVENT.c.id.label("event"), ALERT)
            .join(ALERT, ALERT.c.id == EVENT.c.alert_id)
            .where(EVENT.c.what.in_(["opened", "reopened"]), EVENT.c.state.in_(OPEN), EVENT.c.at >= now - _NEWS_MS)
            .where(ALERT.c.state.in_(OPEN))
            .order_by(EVENT.c.id)
        )
        with self._database.write() as connection:
            # Of an alert that was opened and reopened before anybody was told, the last is told.
            rows = {row.id: row for row in connection.execute(news)}
            return sum(
                _put(connection, receiver, f"event-{row.event}", row.id, alert_message(tracked(row), site), now)
                for row in rows.values()
                for receiver in receivers
                if not receiver.digest
            )

    def write_digest(self, receivers: Sequence[Receiver], site: str, now: int) -> int:
        """Write today's digest for those who get one; a second call on the same day (UTC) writes nothing."""
        day = datetime.datetime.fromtimestamp(now / 1000, datetime.UTC).date()
        everything = self._store.alerts()
        doubts = len(self.messages("doubt"))
        written = 0
        with self._database.write() as connection:
            for receiver in receivers:
                if not receiver.digest:
                    continue
                query = select(OUTBOX.c.created_at).where(
                    OUTBOX.c.receiver == receiver.key, OUTBOX.c.alert_id.is_(None)
                )
                # The first one looks two days back: what is to run daily may have had nothing to write and be late.
                last = max((row.created_at for row in connection.execute(query)), default=now - 2 * _DAY_MS)
                closed = [one for one in everything if one.state == "resolved" and one.changed_at >= last]
                message = digest_message([one for one in everything if one.open], closed, doubts, site)
                if message is not None:
                    written += _put(connection, receiver, f"digest-{day}", None, message, now)
        return written

    def take(self, receivers: Sequence[Receiver], now: int) -> QueuedMessage | None:
        """The next message that is due, taken out: nobody else gets it. ``None`` if none is."""
        keys = [receiver.key for receiver in receivers]
        with self._database.write() as connection:
            lost = OUTBOX.c.state == "sending", OUTBOX.c.due_at <= now
            connection.execute(update(OUTBOX).where(*lost).values(state="doubt", error="its sender died while sending"))
            due = OUTBOX.c.state == "due", OUTBOX.c.due_at <= now, OUTBOX.c.receiver.in_(keys)
            for row in connection.execute(select(OUTBOX).where(*due).order_by(OUTBOX.c.id)).all():
                if not _still_open(connection, row.alert_id):
                    connection.execute(update(OUTBOX).where(OUTBOX.c.id == row.id).values(state="dropped", done_at=now))
                    continue
                taken = {"state": "sending", "attempts": row.attempts + 1, "due_at": now + LEASE_MS}
                connection.execute(update(OUTBOX).where(OUTBOX.c.id == row.id).values(taken))
                return _parcel(connection.execute(select(OUTBOX).where(OUTBOX.c.id == row.id)).one())
        return None

    def sent(self, queued: QueuedMessage, now: int) -> None:
        """It was delivered."""
        self._note(queued, state="sent", done_at=now, error="")

    def returned(self, queued: QueuedMessage, error: str, now: int) -> None:
        """It was refused: it is due again later, or given up."""
        if queued.attempts >= ATTEMPTS:
            self._note(queued, state="failed", done_at=now, error=error)
            return
        wait = min(_FIRST_WAIT_MS * 2 ** (queued.attempts - 1), _LONGEST_WAIT_MS)
        self._note(queued, state="due", due_at=now + wait, error=error)

    def doubted(self, queued: QueuedMessage, error: str, now: int) -> None:
        """Nobody knows whether it was delivered."""
        self._note(queued, state="doubt", done_at=now, error=error)

    def again(self, number: int, now: int) -> bool:
        """Make a message that is in doubt, or was given up, due once more; whether there was such a one."""
        with self._database.write() as connection:
            stuck = OUTBOX.c.id == number, OUTBOX.c.state.in_(["doubt", "failed"])
            renewed = update(OUTBOX).where(*stuck).values(state="due", due_at=now, attempts=0)
            return connection.execute(renewed).rowcount == 1

    def messages(self, *states: State) -> list[QueuedMessage]:
        """Messages in these states, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(select(OUTBOX).where(OUTBOX.c.state.in_(states)).order_by(OUTBOX.c.id))
            return [_parcel(row) for row in rows]

    def _note(self, queued: QueuedMessage, **values: Any) -> None:
        with self._database.write() as connection:
            # A sender that was so slow that its message counts as in doubt must not undo what was done since.
            mine = OUTBOX.c.id == queued.id, OUTBOX.c.state.in_(["sending", "doubt"])
            connection.execute(update(OUTBOX).where(*mine, OUTBOX.c.attempts == queued.attempts).values(values))


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _put(connection: Connection, receiver: Receiver, key: str, alert: int | None, message: Message, now: int) -> int:
    same = select(OUTBOX.c.id).where(OUTBOX.c.key == key, OUTBOX.c.receiver == receiver.key)
    if connection.execute(same).first():
        return 0
    values = {
        "key": key,
        "receiver": receiver.key,
        "alert_id": alert,
        "title": message.title,
        "body": message.body,
        "severity": message.severity,
        "state": "due",
        "attempts": 0,
        "due_at": now,
        "created_at": now,
        "error": "",
    }
    connection.execute(insert(OUTBOX).values(values))
    return 1


def _still_open(connection: Connection, alert: int | None) -> bool:
    if alert is None:
        return True
    return connection.scalar(select(ALERT.c.state).where(ALERT.c.id == alert)) in OPEN


def _parcel(row: Row[Any]) -> QueuedMessage:
    severity: Severity = "info" if row.severity == "info" else "warning"
    message = Message(row.title, row.body, severity)
    return QueuedMessage(row.id, row.receiver, row.alert_id, message, row.state, row.attempts, row.error, row.due_at)
