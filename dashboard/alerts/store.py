"""Alerts that are kept: found again as the same one, acted upon, and never forgotten."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from sqlalchemy import select

from dashboard.alerts.database import Database
from dashboard.alerts.life import Act, LifeError, State
from dashboard.alerts.schema import ALERT, EVENT
from dashboard.alerts.sync import DATA, Seen, Sync, Synced
from dashboard.alerts.tracked import Event, Tracked, perform, read_alert, today_utc, tracked, write_log


class AlertStore:
    """The alerts in a database. Safe with several processes, and to kill at any moment."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def alerts(
        self, states: Iterable[State] | None = None, machine: str | None = None, family: str | None = None
    ) -> list[Tracked]:
        """Alerts in these states (``None``: all), newest first."""
        query = select(ALERT).order_by(ALERT.c.id.desc())
        if states is not None:
            query = query.where(ALERT.c.state.in_(list(states)))
        if machine is not None:
            query = query.where(ALERT.c.machine == machine)
        if family is not None:
            query = query.where(ALERT.c.family == family)
        with self.database.read() as connection:
            return [tracked(row) for row in connection.execute(query)]

    def alert(self, number: int) -> Tracked:
        """The alert of this number.

        Raises:
            NoSuchAlert: there is none.
        """
        with self.database.read() as connection:
            return read_alert(connection, number)

    def log(self, number: int) -> list[Event]:
        """Everything that happened to an alert, oldest first."""
        with self.database.read() as connection:
            rows = connection.execute(select(EVENT).where(EVENT.c.alert_id == number).order_by(EVENT.c.id))
            return [Event(row.id, row.at, row.who, row.what, row.state, row.note) for row in rows]

    def act(self, number: int, act: Act, newest: str = "", today: datetime.date | None = None) -> Tracked:
        """Do something to an alert, and log it.

        Args:
            number: of the alert.
            act: what.
            newest: newest commit that its machine has measured: what comes later can reopen it.
            today: the day; by default this one, UTC.

        Raises:
            NoSuchAlert: there is none.
            LifeError: it cannot be done to an alert in its state.
        """
        with self.database.write() as connection:
            one = read_alert(connection, number)
            try:
                perform(connection, one, act, newest, today or today_utc())
            except LifeError as error:
                raise LifeError(f"alert {number}: {error}") from error
            return read_alert(connection, number)

    def note(self, number: int, what: str, note: str, who: str = DATA) -> None:
        """Add a line to an alert's log that changes nothing else."""
        with self.database.write() as connection:
            one = read_alert(connection, number)
            write_log(connection, number, who, what, one.state, note)

    def sync(self, seen: Seen, today: datetime.date | None = None) -> Synced:
        """Bring the alerts in step with the data: open, update, resolve, reopen, end mutes."""
        with self.database.write() as connection:
            return Sync(connection, seen, today or today_utc()).run()
