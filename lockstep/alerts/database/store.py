"""Store alerts, update them from later analyses, apply the actions of people, and log every change."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, func, or_, select, update

from lockstep.alerts.alert_ranking import DOUBTED
from lockstep.alerts.database.alert_row import Event, Tracked, perform, read_alert, today_utc, tracked, write_log
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.listing import (
    Choice,
    Names,
    OpenAlerts,
    Order,
    Page,
    conditions_of,
    first_of_stories,
    order_by,
)
from lockstep.alerts.database.schema import ALERT, CLOCK, EVENT
from lockstep.alerts.database.states_and_actions import DATA, OPEN, Act, LifecycleError, State
from lockstep.alerts.database.update_alerts import Sync, Synced
from lockstep.alerts.model import AnalysisResult, Topic


class AlertStore:
    """Reads and changes the alerts in a database. Several processes may use it, and may be killed at any moment."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def alerts(
        self, states: Iterable[State] | None = None, machine: str | None = None, family: str | None = None
    ) -> list[Tracked]:
        """Return the alerts in these states (``None``: all states), newest first."""
        chosen = None if states is None else frozenset(states)
        where = conditions_of(Choice(chosen, family or "", machine or ""))
        return self._read(select(ALERT).where(*where).order_by(ALERT.c.id.desc()))

    def part(self, choice: Choice, limit: int, below: int | None = None) -> list[Tracked]:
        """Return at most ``limit`` of the alerts that ``choice`` selects, newest first.

        Only alerts with numbers below ``below`` are returned; ``None`` for any number.
        """
        query = select(ALERT).where(*conditions_of(choice)).order_by(ALERT.c.id.desc()).limit(limit)
        return self._read(query if below is None else query.where(ALERT.c.id < below))

    def changed_last(self, limit: int) -> list[Tracked]:
        """Return the ``limit`` alerts that changed last, the latest change first."""
        return self._read(select(ALERT).order_by(ALERT.c.changed_at.desc(), ALERT.c.id.desc()).limit(limit))

    def page(self, choice: Choice, order: Order = "urgent", limit: int | None = None, apart: bool = False) -> Page:
        """Return the first ``limit`` rows of a list of alerts, ``None`` for all, and the number of all rows.

        Of the selected alerts that show the same step, the gravest is the only row, unless ``apart`` is set.
        """
        where = conditions_of(choice)
        where = where if apart else [first_of_stories(where)]
        below = ALERT.c.rank < DOUBTED
        slower, doubted = (func.count(case((kind, 1))) for kind in ((ALERT.c.topic == "slower") & ~below, below))
        # Sort only the numbers of the alerts, because whole rows take longer to sort.
        numbers = select(ALERT.c.id).where(*where).order_by(*order_by(order)).limit(limit)
        with self.database.read() as connection:
            counts = select(func.count(), slower, doubted).select_from(ALERT).where(*where)
            total, worse, below_them = connection.execute(counts).one()
            return Page(_numbered(connection, numbers), total, worse, below_them)

    def names(self) -> Names:
        """Return the families, machines and owners of all alerts."""
        with self.database.read() as connection:
            names = (
                tuple(connection.scalars(select(column).distinct().where(column != "").order_by(column)))
                for column in (ALERT.c.family, ALERT.c.machine, ALERT.c.owner)
            )
            return Names(*names)

    def open_on(self, machine: str, limit: int) -> OpenAlerts:
        """Return the ``limit`` most urgent open alerts of a machine, and the number of open alerts on every machine."""
        acknowledged = case((ALERT.c.state == "acknowledged", 1), else_=0)
        open_ones = ALERT.c.state.in_(OPEN) & (ALERT.c.rank >= DOUBTED)
        counts = select(ALERT.c.machine, ALERT.c.state, func.count()).where(or_(open_ones, ALERT.c.state == "muted"))
        numbers = select(ALERT.c.id).order_by(acknowledged, ALERT.c.rank.desc(), ALERT.c.id.desc())
        states: Counter[State] = Counter()
        elsewhere: Counter[str] = Counter()
        with self.database.read() as connection:
            for name, state, number in connection.execute(counts.group_by(ALERT.c.machine, ALERT.c.state)):
                if name == machine:
                    states[state] += number
                elif state != "muted":
                    elsewhere[name] += number
            muted = states.pop("muted", 0)
            here = (open_ones, ALERT.c.machine == machine)
            first = _numbered(connection, numbers.where(first_of_stories(here)).limit(limit))
            others = _numbered(connection, numbers.where(open_ones, ALERT.c.machine != machine).limit(1))
            return OpenAlerts(first, states, elsewhere, muted, *others)

    def quiet_on(self, machine: str, limit: int) -> list[Tracked]:
        """Return at most ``limit`` of a machine's muted and doubted alerts, newest first."""
        quiet = (ALERT.c.state == "muted") | ALERT.c.state.in_(OPEN) & (ALERT.c.rank < DOUBTED)
        query = select(ALERT).where(ALERT.c.machine == machine, quiet)
        return self._read(query.order_by(ALERT.c.id.desc()).limit(limit))

    def same_step(self, alert: Tracked) -> list[Tracked]:
        """Return the other alerts that show the same step, the gravest first."""
        return self._read(select(ALERT).where(*_of_story(alert)).order_by(ALERT.c.rank.desc(), ALERT.c.id))

    def counts(self) -> dict[tuple[State, Topic], int]:
        """Return the number of alerts by state and topic."""
        query = select(ALERT.c.state, ALERT.c.topic, func.count()).group_by(ALERT.c.state, ALERT.c.topic)
        with self.database.read() as connection:
            return {(state, topic): number for state, topic, number in connection.execute(query)}

    def count(self, choice: Choice) -> tuple[int, int]:
        """Return how many alerts ``choice`` selects, and how many of them report a slowdown."""
        page = self.page(choice, limit=0)
        return page.total, page.slower

    def version(self) -> int:
        """Return a number that grows whenever a stored alert or its log changes."""
        with self.database.read() as connection:
            return connection.scalar(select(CLOCK.c.number)) or 0

    def _read(self, query: Select[Any]) -> list[Tracked]:
        with self.database.read() as connection:
            return [tracked(row) for row in connection.execute(query)]

    def alert(self, number: int) -> Tracked:
        """Return the alert of this number.

        Raise ``NoSuchAlert`` if no alert has this number.
        """
        with self.database.read() as connection:
            return read_alert(connection, number)

    def log(self, number: int) -> list[Event]:
        """Return the log of an alert, oldest first."""
        with self.database.read() as connection:
            rows = connection.execute(select(EVENT).where(EVENT.c.alert_id == number).order_by(EVENT.c.id))
            return [Event(row.id, row.at, row.who, row.what, row.state, row.note) for row in rows]

    def act(self, number: int, act: Act, newest: str = "", today: datetime.date | None = None) -> Tracked:
        """Apply an action to an alert, and log it. ``ack`` and ``mute`` apply to all alerts of the step in that state.

        Args:
            newest: newest commit that the alert's machine has measured; later commits can reopen the alert.
            today: the day, by default the current one, UTC.

        Raises:
            NoSuchAlert: no alert has this number.
            LifecycleError: the alert's state does not allow the action.
        """
        with self.database.write() as connection:
            alert = read_alert(connection, number)
            try:
                perform(connection, alert, act, newest, today or today_utc())
            except LifecycleError as error:
                raise LifecycleError(f"alert {number}: {error}") from error
            if act.action in ("ack", "mute"):
                same = select(ALERT).where(*_of_story(alert), ALERT.c.state == alert.state)
                for row in connection.execute(same).all():
                    with_it = replace(act, note=f"the same step as alert {number}: {act.note}".removesuffix(": "))
                    perform(connection, tracked(row), with_it, newest, today or today_utc())
            _tick(connection)
            return read_alert(connection, number)

    def note(self, number: int, what: str, note: str, who: str = DATA) -> None:
        """Add a line to an alert's log without changing the alert's state."""
        with self.database.write() as connection:
            alert = read_alert(connection, number)
            write_log(connection, number, who, what, alert.state, note)
            _tick(connection)

    def sync(self, current: AnalysisResult, today: datetime.date | None = None) -> Synced:
        """Update the stored alerts from an analysis: open, update, resolve and reopen alerts, and end mutes."""
        with self.database.write() as connection:
            try:
                sync = Sync(connection, current, today or today_utc())
                done = sync.run()
            except (LookupError, TypeError, ValueError, AttributeError):
                for row in connection.execute(select(ALERT)):
                    tracked(row)  # raises an error that names the alert, if its content is damaged
                raise
            if sync.changed:
                _tick(connection)
            return done


def _of_story(alert: Tracked) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for the other alerts that show the same step."""
    return ALERT.c.story != "", ALERT.c.story == alert.alert.story, ALERT.c.id != alert.id


def _numbered(connection: Connection, numbers: Select[tuple[int]]) -> tuple[Tracked, ...]:
    """Return the alerts whose numbers a query gives, in the query's order."""
    order = list(connection.scalars(numbers))
    rows = {row.id: row for row in connection.execute(select(ALERT).where(ALERT.c.id.in_(order)))}
    return tuple(tracked(rows[number]) for number in order if number in rows)


def _tick(connection: Connection) -> None:
    connection.execute(update(CLOCK).values(number=CLOCK.c.number + 1))
