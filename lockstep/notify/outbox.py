"""Store messages until they are delivered, so that no message is lost, and none is sent by two processes.

A message is "due" until a sender takes it, then "sending", and "sent" when it was delivered. If the process dies in
between, the message may or may not have arrived. It is sent again, because a message too many is better than none. It
is "failed" after all attempts, and "dropped" if its alert was closed before.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Connection, insert, select, update

from lockstep.alerts.alert_ranking import DOUBTED, doubted
from lockstep.alerts.database.alert_row import tracked
from lockstep.alerts.database.listing import Choice
from lockstep.alerts.database.schema import ALERT, EVENT, OUTBOX
from lockstep.alerts.database.states_and_actions import OPEN
from lockstep.alerts.database.store import AlertStore
from lockstep.notify.message import Message, Severity, alert_message, digest_message
from lockstep.notify.receivers import Receiver

#: Milliseconds after which a message that is still "sending" is due again.
LEASE_MS = 10 * 60_000

#: Number of attempts, over about half a day, after which a message is given up.
ATTEMPTS = 12
_FIRST_WAIT_MS = 30_000
_LONGEST_WAIT_MS = 4 * 3_600_000

#: A new receiver gets no messages about events that are older than this many milliseconds.
_NEWS_MS = 7 * 86_400_000


@dataclass(frozen=True)
class QueuedMessage:
    """A message that a sender has taken.

    Attributes:
        id: number of the message.
        receiver: key of the receiver.
        attempts: number of attempts, with this one.
    """

    id: int
    receiver: str
    message: Message
    attempts: int


class Outbox:
    """Queues messages in a table of the alert database, returns those that are due, and marks how sending ended."""

    def __init__(self, store: AlertStore) -> None:
        self._store = store
        self._database = store.database

    def write_alerts(self, receivers: Sequence[Receiver], site: str, now: int) -> int:
        """Write a message to each receiver about each opened or reopened alert. Return the number of messages.

        There is no message about an alert that is doubted (``lockstep.alerts.alert_ranking``).
        Of the alerts that show the same step, only the gravest has messages, or the one that had the first.
        """
        query = (
            select(EVENT.c.id.label("event"), ALERT)
            .join(ALERT, ALERT.c.id == EVENT.c.alert_id)
            .where(EVENT.c.what.in_(["opened", "reopened"]), EVENT.c.state.in_(OPEN), EVENT.c.at >= now - _NEWS_MS)
            .where(ALERT.c.state.in_(OPEN), ALERT.c.rank >= DOUBTED)
            .order_by(EVENT.c.id)
        )
        with self._database.write() as connection:
            # If an alert was opened and reopened before a message was sent, one message reports the last event.
            rows = {row.id: row for row in connection.execute(query)}
            told = select(ALERT.c.story, ALERT.c.id).join(OUTBOX, OUTBOX.c.alert_id == ALERT.c.id)
            known = connection.execute(told.order_by(OUTBOX.c.id.desc())).all()
            gravest = sorted(rows.values(), key=lambda row: (row.rank, -row.id))
            teller = {row.story or row.id: row.id for row in [*gravest, *known]}
            return sum(
                _put(connection, receiver, f"event-{row.event}", row.id, message, now)
                for row in rows.values()
                if teller[row.story or row.id] == row.id
                for message in [alert_message(tracked(row), site)]
                for receiver in receivers
                if not receiver.digest
            )

    def write_digest(self, receivers: Sequence[Receiver], site: str, now: int) -> int:
        """Write a digest of the open alerts for each receiver of digests, once a day (UTC). Return their number."""
        day = datetime.datetime.fromtimestamp(now / 1000, datetime.UTC).date()
        opened = [one for one in self._store.page(Choice(OPEN)).alerts if not doubted(one.alert)]
        with self._database.write() as connection:
            return sum(
                _put(connection, receiver, f"digest-{day}", None, digest_message(opened, site), now)
                for receiver in receivers
                if receiver.digest and opened
            )

    def take(self, receivers: Sequence[Receiver], now: int) -> QueuedMessage | None:
        """Return the next message that is due, and mark it so that no other sender gets it; ``None`` if none is due."""
        keys = [receiver.key for receiver in receivers]
        with self._database.write() as connection:
            waiting = OUTBOX.c.state.in_(["due", "sending"])
            due = waiting, OUTBOX.c.due_at <= now, OUTBOX.c.receiver.in_(keys)
            for row in connection.execute(select(OUTBOX).where(*due).order_by(OUTBOX.c.id)).all():
                if not _still_open(connection, row.alert_id):
                    connection.execute(update(OUTBOX).where(OUTBOX.c.id == row.id).values(state="dropped", done_at=now))
                    continue
                attempts, severity = row.attempts + 1, cast("Severity", row.severity)
                claim = {"state": "sending", "attempts": attempts, "due_at": now + LEASE_MS}
                connection.execute(update(OUTBOX).where(OUTBOX.c.id == row.id).values(claim))
                return QueuedMessage(row.id, row.receiver, Message(row.title, row.body, severity), attempts)
        return None

    def mark_sent(self, queued: QueuedMessage, now: int) -> None:
        """Mark a message as delivered."""
        self._note(queued, state="sent", done_at=now, error="")

    def mark_refused(self, queued: QueuedMessage, error: str, now: int) -> None:
        """Mark a message as refused. The message is due again later, or given up after ``ATTEMPTS``."""
        if queued.attempts >= ATTEMPTS:
            self._note(queued, state="failed", done_at=now, error=error)
            return
        wait = min(_FIRST_WAIT_MS * 2 ** (queued.attempts - 1), _LONGEST_WAIT_MS)
        self._note(queued, state="due", due_at=now + wait, error=error)

    def _note(self, queued: QueuedMessage, **values: Any) -> None:
        with self._database.write() as connection:
            # Another sender may have taken the message of a slow one.
            own_claim = OUTBOX.c.id == queued.id, OUTBOX.c.attempts == queued.attempts
            connection.execute(update(OUTBOX).where(*own_claim).values(values))


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
