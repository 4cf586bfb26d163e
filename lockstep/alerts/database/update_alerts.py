"""Update the stored alerts from an analysis, in one transaction.

A change keeps its alert, even if a later analysis places, sizes or names the change differently
(``lockstep.alerts.database.matching``). So repeating an analysis opens no alert twice.
"""

from __future__ import annotations

import datetime
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, insert, select, text, update

from lockstep.alerts.database.alert_row import from_json, log_line, now_ms, perform, to_json, tracked, write_log
from lockstep.alerts.database.listing import columns_of
from lockstep.alerts.database.matching import owners
from lockstep.alerts.database.schema import ALERT, EVENT, MEMBER
from lockstep.alerts.database.states_and_actions import (
    DATA,
    FINAL_ENDINGS,
    LATER_COMMITS,
    OPEN,
    Act,
    State,
    closing,
    merged,
    needs_no_action,
    step_to,
)
from lockstep.alerts.model import Alert, AnalysisResult, FoundChange
from lockstep.record.quantity import APART


@dataclass(frozen=True)
class Synced:
    """The numbers of the alerts that ``sync`` opened, reopened and resolved."""

    opened: tuple[int, ...] = ()
    reopened: tuple[int, ...] = ()
    resolved: tuple[int, ...] = ()


class Sync:
    """Updates the stored alerts from one analysis, within one transaction of the database."""

    def __init__(self, connection: Connection, current: AnalysisResult, today: datetime.date) -> None:
        self.connection = connection
        self.current = current
        self.today = today
        self.opened: list[int] = []
        self.reopened: list[int] = []
        self.resolved: list[int] = []
        self.known: dict[int, Row[Any]] = {}
        # One statement per alert would take half a minute for 40,000 alerts, so the rows are inserted at once.
        self._new: list[dict[str, Any]] = []
        self._lines: list[dict[str, Any]] = []
        self._claims: list[dict[str, Any]] = []
        #: No other process opens alerts during the transaction, so the numbers are known before the rows are inserted.
        self._next = (connection.scalar(select(func.max(ALERT.c.id))) or 0) + 1
        #: The alert of each change that has a new name. In ``owner``, the same name may still belong to another change.
        self.moved: dict[str, int] = {}
        #: The oldest stored alert of each place, see ``_places``.
        self._at_place: dict[tuple[str, ...], int] = {}
        self._revised: list[dict[str, Any]] = []
        self._positions = {
            machine: {commit: position for position, commit in enumerate(commits)}
            for machine, commits in current.commits.items()
        }
        #: Whether anything was written.
        self.changed = False
        for row in connection.execute(
            select(ALERT).where(ALERT.c.machine.in_(list(current.commits))).order_by(ALERT.c.id)
        ):
            self.known[row.id] = row
            content = row.content
            quantity = content["members"][0]["series"]["quantity"] if content["members"] else ""
            places = _places(row.machine, row.family, row.topic, content["before"], content["commits"], quantity)
            self._know(row.id, places)
        members = connection.execute(select(MEMBER.c.key_hash, MEMBER.c.alert_id))
        self.owner: dict[str, int] = {row.key_hash: row.alert_id for row in members}

    def run(self) -> Synced:
        """Apply the analysis to the stored alerts, and return the numbers of the alerts that changed."""
        self._take_over()
        parts: dict[int, list[Alert]] = defaultdict(list)
        for alert in self.current.alerts:
            for number, part in self._parts(alert):
                parts[self._new_number(part) if number is None else number].append(part)
        for number in sorted(parts.keys() - self.known.keys()):
            self._open(number, merged(parts[number]))
        self._insert()
        for number, row in self.known.items():
            if number in parts:
                self._update(row, merged(parts[number]))
            else:
                self._resolve_missing(row)
        if self._claims:
            self.connection.execute(insert(MEMBER), self._claims)
        if self._revised:
            self.connection.execute(update(ALERT).where(ALERT.c.id == bindparam("number")), self._revised)
        return Synced(*(tuple(sorted(numbers)) for numbers in (self.opened, self.reopened, self.resolved)))

    def _insert(self) -> None:
        """Insert the new alerts with the first lines of their logs."""
        if not self._new:
            return
        self.connection.execute(insert(ALERT), self._new)
        if self.connection.dialect.name == "postgresql":
            # PostgreSQL's own numbers go on behind these.
            self.connection.execute(text("SELECT setval(pg_get_serial_sequence('alert', 'id'), max(id)) FROM alert"))
        self.connection.execute(insert(EVENT), self._lines)

    def _take_over(self) -> None:
        """Find the stored alerts of changes that this analysis reports under new names."""
        keys = {member.key for alert in self.current.alerts for member in alert.members}
        new = [key for key in keys if key_hash(key) not in self.owner]
        if new and self.known:
            moved = owners(self.known.values(), self.current.alerts, new, self._positions)
            self.moved = {key_hash(key): number for key, number in moved.items()}
            # From now on the name belongs to this change, even if it belonged to another change before.
            for key, number in self.moved.items():
                if self.owner.get(key, number) != number:
                    self.connection.execute(update(MEMBER).where(MEMBER.c.key_hash == key).values(alert_id=number))
                    self.owner[key] = number

    def _know(self, number: int, places: Sequence[tuple[str, ...]]) -> None:
        for place in places:
            # Alerts come in the order of their numbers, so the oldest alert keeps the place.
            self._at_place.setdefault(place, number)

    def _parts(self, alert: Alert) -> list[tuple[int | None, Alert]]:
        """Split an alert of this analysis if several stored alerts own its changes. New changes join the oldest."""
        at_place = min(filter(None, map(self._at_place.get, _places_of(alert))), default=None)
        if not alert.members:
            return [(at_place, alert)]
        hashes = [key_hash(member.key) for member in alert.members]
        owned = [self.moved.get(hashed, self.owner.get(hashed)) for hashed in hashes]
        home = min(filter(None, owned), default=at_place)
        shares: dict[int | None, list[FoundChange]] = defaultdict(list)
        for member, owner in zip(alert.members, owned, strict=True):
            shares[home if owner is None else owner].append(member)
        if len(shares) == 1:
            return [(home, alert)]
        return [(number, replace(alert, members=tuple(members))) for number, members in shares.items()]

    def _new_number(self, alert: Alert) -> int:
        """Return the number of a new alert, which later alerts of this analysis at its place join."""
        number = self._next
        self._next += 1
        if alert.members:
            self._know(number, _places_of(alert))
        return number

    def _open(self, number: int, alert: Alert) -> None:
        act = closing(alert, self._is_archived(alert), self.today)
        if alert.old:
            act = Act("resolve", DATA, "too old to be reported", ending="recorded")
        state: State = step_to("new", act, self.today) if act else "new"
        now = now_ms()
        values = {
            "id": number,
            "fingerprint": alert.fingerprint,
            "topic": alert.topic,
            "machine": alert.machine,
            "family": alert.family,
            "state": state,
            "ending": (act and act.ending) or "",
            "muted_until": act and act.until,
            "closed_at_commit": self._newest(alert.machine) if state == "resolved" else "",
            "opened_at": now,
            "changed_at": now,
            **columns_of(alert),
            "content": to_json(alert),
        }
        self.changed = True
        self._new.append(values)
        self._lines.append(
            log_line(number, act.who if act else DATA, "opened", state, act.note if act else alert.cause.sentence)
        )
        self._claim(number, alert)
        if state in OPEN:
            self.opened.append(number)

    def _update(self, row: Row[Any], alert: Alert) -> None:
        gained, content = self._claim(row.id, alert), to_json(alert)
        if content != row.content:
            # Keep the topic "faster" while the slowdowns need no action, so that a slowdown that returns is reported.
            topic = row.topic if row.state == "resolved" and needs_no_action(alert) else alert.topic
            self._revised.append({"number": row.id, "topic": topic, **columns_of(alert), "content": content})
            self.changed = True
            if gained or alert.range != from_json(row.content).range or alert.topic != row.topic:
                note = f"now {len(alert.members)} series in {alert.range}" if alert.members else alert.text
                write_log(self.connection, row.id, DATA, "revised", row.state, note)
        self._live(row, alert)

    def _live(self, row: Row[Any], alert: Alert) -> None:
        """Resolve, reopen or leave an alert of this analysis. Newer points may show that the change is gone, and a mute
        may have ended today."""
        archived = self._is_archived(alert)
        if row.state == "resolved":
            if not archived:
                self._live_again(row, alert)
            return
        over = row.state == "muted" and row.muted_until is not None and row.muted_until < self.today
        act = closing(alert, archived, self.today)
        if act and act.ending not in (None, "archived"):
            self._resolve(row, act)
        elif act and (over or row.state in OPEN):
            self._perform(row, act)
        elif over:
            self._reopen(row, f"its mute ended on {row.muted_until}")

    def _is_archived(self, alert: Alert) -> bool:
        """Return whether the alert is archived because its machine is dead. Only the alert "silent" then stays open."""
        return alert.machine in self.current.dead and alert.topic != "silent"

    def _live_again(self, row: Row[Any], alert: Alert) -> None:
        if needs_no_action(alert):
            return
        if alert.topic == "slower" and row.topic != "slower":
            self._reopen(row, "something became slower as well")
        if alert.topic != row.topic or row.ending in FINAL_ENDINGS:
            return
        positions = self._positions[row.machine]
        later = len(positions) - 1 - positions.get(row.closed_at_commit, -1)
        by_hand = row.ending != "withdrawn" and not row.content["gone"]
        if row.ending == "archived":
            self._reopen(row, "its machine reports again")
        elif not by_hand:
            again = "is reported again" if row.ending == "withdrawn" else "is back"
            self._reopen(row, f"the slowdown {again}" if alert.topic == "slower" else f"it {again}")
        elif later >= LATER_COMMITS:
            self._reopen(row, f"still {alert.topic} {later} commits after it was called {row.ending}")

    def _resolve_missing(self, row: Row[Any]) -> None:
        """Resolve an alert that the analysis no longer finds."""
        if row.state == "resolved":
            return
        if row.content["members"]:
            contradicted = "later measurements do not confirm the change"
            keys = [member.key for member in from_json(row.content).members]
            reasons = dict.fromkeys(self.current.unreported.get(key, contradicted) for key in keys)
            self._resolve(row, Act("resolve", DATA, "; ".join(reasons), ending="withdrawn"))
        else:
            listed = row.topic == "silent" and row.machine in self.current.dead
            measured = "it is measured again, or another alert says it"
            note = "`changes` lists it with others" if listed else measured
            self._resolve(row, Act("resolve", DATA, note, ending="fixed"))

    def _resolve(self, row: Row[Any], act: Act) -> None:
        self._perform(row, act)
        self.resolved.append(row.id)

    def _reopen(self, row: Row[Any], note: str) -> None:
        self._perform(row, Act("reopen", DATA, note))
        self.reopened.append(row.id)

    def _claim(self, number: int, alert: Alert) -> int:
        """Store that the alert owns its changes. Return the number of new changes."""
        new = [key for key in dict.fromkeys(key_hash(member.key) for member in alert.members) if key not in self.owner]
        if new:
            self._claims += [{"alert_id": number, "key_hash": key} for key in new]
            self.owner |= dict.fromkeys(new, number)
        return len(new)

    def _perform(self, row: Row[Any], act: Act) -> None:
        self.changed = True
        perform(self.connection, tracked(row), act, self._newest(row.machine), self.today)

    def _newest(self, machine: str) -> str:
        return next(reversed(self.current.commits[machine]), "")


def key_hash(key: str) -> str:
    """Return the text under which the database knows a change, given by ``FoundChange.key``."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _places_of(alert: Alert) -> list[tuple[str, ...]]:
    quantity = alert.members[0].series.quantity if alert.members else ""
    return _places(alert.machine, alert.family, alert.topic, alert.before, alert.commits, quantity)


def _places(
    machine: str, family: str, topic: str, before: str, commits: Sequence[str], quantity: str
) -> list[tuple[str, ...]]:
    """Return the places of an alert. A later alert at one of them joins it.

    Changes join if machine, family and topic are the same, and their ranges share a commit. Changes of checks, of host
    times, of compile times and of device times do not join each other. A freshness alert joins that of its commit,
    because later results may add to what stopped there, or name it anew.

    ``quantity``: the quantity of the worst series; "" for a freshness alert.
    """
    if not quantity:
        return [(machine, commits[-1] if commits else "", before if topic == "silent" else "")]
    kind = f"{topic} {APART[quantity]}" if quantity in APART else topic
    return [(machine, family, kind, commit) for commit in commits]
