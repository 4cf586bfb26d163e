"""The alerts brought in step with the data, in one transaction.

A change that is already told of keeps its alert, whatever later data say of its size and place, and whatever name a
later analysis gives it (``lockstep.alerts.matching``); so analysing again opens nothing twice.
"""

from __future__ import annotations

import datetime
import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from lockstep.alerts.as_json import from_json, to_json
from lockstep.alerts.grouping import Alert, Member
from lockstep.alerts.lifecycle import OPEN, Act, Ending, State
from lockstep.alerts.listing import columns_of
from lockstep.alerts.matching import owners
from lockstep.alerts.schema import ALERT, MEMBER
from lockstep.alerts.tracked import now_ms, perform, tracked, write_log

#: Who acts when the data do.
DATA = "lockstep"
FILE = "thresholds.toml"

#: A slowdown that somebody called fixed is reopened once it was measured at this many later commits and is still there.
LATER_COMMITS = 3

#: They are worth knowing, and ask nothing of anybody.
_RECORDED = ("faster", "version", "renamed")

_SILENT = "archived under the alert that its machine is silent"

#: Endings that the data do not undo.
_FOR_GOOD = ("intended", "recorded")


@dataclass(frozen=True)
class CurrentAlerts:
    """What an analysis has looked at, and found.

    Attributes:
        alerts: found now, each change and each freshness alert once.
        commits: by machine, the commits that it has measured, oldest first. Alerts of other machines are left alone.
        dead: machines that stopped while others went on: what is open on them is archived until they report again.
    """

    alerts: Sequence[Alert]
    commits: Mapping[str, Sequence[str]]
    dead: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Synced:
    """Numbers of the alerts that ``sync`` opened (those to be told of), reopened and resolved."""

    opened: tuple[int, ...] = ()
    reopened: tuple[int, ...] = ()
    resolved: tuple[int, ...] = ()


@dataclass
class _Outcome:
    opened: list[int] = field(default_factory=list)
    reopened: list[int] = field(default_factory=list)
    resolved: list[int] = field(default_factory=list)


class Sync:
    """One transaction of ``AlertStore.sync``."""

    def __init__(self, connection: Connection, seen: CurrentAlerts, today: datetime.date) -> None:
        self.connection = connection
        self.seen = seen
        self.today = today
        self.outcome = _Outcome()
        self.known: dict[int, Row[Any]] = {}
        self.opened: set[int] = set()
        #: Alerts of changes that go by another name now; ``owner`` may hold that name for another change.
        self.moved: dict[str, int] = {}
        self._same: dict[str, int] = {}
        self._near: dict[tuple[str, str, str, str], int] = {}
        self._revised: list[dict[str, Any]] = []
        self._places: dict[str, dict[str, int]] = {}
        #: Whether anything was written.
        self.changed = False
        for row in connection.execute(
            select(ALERT).where(ALERT.c.machine.in_(list(seen.commits))).order_by(ALERT.c.id)
        ):
            self._know(row)
        members = connection.execute(select(MEMBER.c.key_hash, MEMBER.c.alert_id))
        self.owner: dict[str, int] = {row.key_hash: row.alert_id for row in members}

    def run(self) -> Synced:
        """Do it."""
        self._take_over()
        parts: dict[int, list[Alert]] = defaultdict(list)
        for alert in self.seen.alerts:
            for number, part in self._parts(alert):
                if number is None:
                    self._open(part)
                else:
                    parts[number].append(part)
        for number, row in self.known.items():
            if number in parts:
                self._update(row, _together(parts[number]))
            elif number not in self.opened:
                self._lost(row)
        if self._revised:
            columns: dict[str, Any] = {
                name.removeprefix("new_"): bindparam(name) for name in self._revised[0] if name != "number"
            }
            of = ALERT.c.id == bindparam("number")
            self.connection.execute(update(ALERT).where(of).values(columns), self._revised)
        return Synced(*(tuple(sorted(one)) for one in vars(self.outcome).values()))

    def _take_over(self) -> None:
        """Find the alerts of changes that go by another name than at the last analysis."""
        keys = {member.key for alert in self.seen.alerts for member in alert.members}
        new = [key for key in keys if _hash(key) not in self.owner]
        if new and self.known:
            places = {machine: self._places_of(machine) for machine in self.seen.commits}
            moved = owners(self.known.values(), self.seen.alerts, new, places)
            self.moved = {_hash(key): number for key, number in moved.items()}
            # A name that another change had is this one's from now on.
            for key, number in self.moved.items():
                if self.owner.get(key, number) != number:
                    self.connection.execute(update(MEMBER).where(MEMBER.c.key_hash == key).values(alert_id=number))
                    self.owner[key] = number

    def _know(self, row: Row[Any]) -> None:
        self.known[row.id] = row
        self._same[row.fingerprint] = row.id
        for commit in row.content["commits"]:
            # Rows come by number: the oldest alert keeps the commit.
            self._near.setdefault((row.machine, row.family, row.topic, commit), row.id)

    def _parts(self, alert: Alert) -> list[tuple[int | None, Alert]]:
        """The alert, split where its changes are already told of by several; new ones join the oldest."""
        if not alert.members:
            return [(self._same.get(alert.fingerprint), alert)]
        hashes = [_hash(member.key) for member in alert.members]
        owned = [self.moved.get(one, self.owner.get(one)) for one in hashes]
        told = [one for one in owned if one is not None]
        home = min(told) if told else self._overlapping(alert)
        shares: dict[int | None, list[Member]] = defaultdict(list)
        for member, owner in zip(alert.members, owned, strict=True):
            shares[home if owner is None else owner].append(member)
        if len(shares) == 1:
            return [(home, alert)]
        return [(number, replace(alert, members=tuple(members))) for number, members in shares.items()]

    def _overlapping(self, alert: Alert) -> int | None:
        """An alert of the same place whose range shares a commit: these are more cases of it, told later."""
        place = (alert.machine, alert.family, alert.topic)
        near = (self._near.get((*place, commit)) for commit in alert.commits)
        return min((number for number in near if number is not None), default=None)

    def _open(self, alert: Alert) -> None:
        state, ending, who, note = _first_state(alert, self.today)
        if state in OPEN and self._is_archived(alert):
            state, ending, note = "resolved", "archived", _SILENT
        now = now_ms()
        values = {
            "fingerprint": alert.fingerprint,
            "topic": alert.topic,
            "machine": alert.machine,
            "family": alert.family,
            "state": state,
            "ending": ending,
            "muted_until": alert.waiver.until if alert.waiver and state == "muted" else None,
            "closed_at_commit": self._newest(alert.machine) if state == "resolved" else "",
            "opened_at": now,
            "changed_at": now,
            **columns_of(alert),
            "content": to_json(alert),
        }
        self.changed = True
        number = self.connection.execute(insert(ALERT).values(values)).inserted_primary_key[0]  # type: ignore[index]
        self._know(self.connection.execute(select(ALERT).where(ALERT.c.id == number)).one())
        self.opened.add(number)
        self._claim(number, alert)
        write_log(self.connection, number, who, "opened", state, note)
        if state in OPEN:
            self.outcome.opened.append(number)

    def _update(self, row: Row[Any], alert: Alert) -> None:
        more, content = self._claim(row.id, alert), to_json(alert)
        if content != row.content:
            # The topic stays "faster" while what became slower asks nothing: it is reported when that ends.
            topic = row.topic if row.state == "resolved" and _asks_nothing(alert) else alert.topic
            new = {"topic": topic, **columns_of(alert), "content": content}
            self._revised.append({"number": row.id} | {f"new_{name}": value for name, value in new.items()})
            self.changed = True
            if more or alert.range != from_json(row.content).range or alert.topic != row.topic:
                note = f"now {len(alert.members)} series in {alert.range}" if alert.members else alert.text
                write_log(self.connection, row.id, DATA, "revised", row.state, note)
        self._live(row, alert)

    def _live(self, row: Row[Any], alert: Alert) -> None:
        """What the data and the calendar do to an alert that is still found."""
        over = self._is_over(row)
        if row.state == "resolved":
            if not self._is_archived(alert):
                self._live_again(row, alert)
        elif alert.gone:
            self._resolve(row, "fixed", "its series are back at their old level")
        elif alert.waiver and alert.waiver.until is None:
            self._resolve(row, "intended", alert.waiver.because, FILE)
        elif alert.waiver and (over or row.state in OPEN):
            act = Act("mute", FILE, alert.waiver.because, alert.waiver.until)
            self._perform(row, act)
        elif self._is_archived(alert):
            if over or row.state in OPEN:
                self._perform(row, Act("resolve", DATA, _SILENT, ending="archived"), self._newest(row.machine))
        elif over:
            self._reopen(row, f"its mute ended on {row.muted_until}")

    def _is_archived(self, alert: Alert) -> bool:
        """Return whether the alert's machine is dead, which is one alert and not one for each thing open on it."""
        return alert.machine in self.seen.dead and alert.topic != "silent"

    def _is_over(self, row: Row[Any]) -> bool:
        """Whether it was muted until yesterday or before."""
        return row.state == "muted" and row.muted_until is not None and row.muted_until < self.today

    def _live_again(self, row: Row[Any], alert: Alert) -> None:
        if _asks_nothing(alert):
            return
        if alert.topic == "slower" != row.topic:
            self._reopen(row, "beside what became faster, something became slower")
        if alert.topic != row.topic or row.ending in _FOR_GOOD:
            return
        later = len(self.seen.commits[row.machine]) - 1 - self._place(row.machine, row.closed_at_commit)
        by_hand = row.ending == "fixed" and not row.content["gone"]
        if row.ending == "archived":
            self._reopen(row, "its machine reports again")
        elif not by_hand:
            self._reopen(row, "it is back")
        elif later >= LATER_COMMITS:
            self._reopen(row, f"{later} commits were measured since it was called fixed, and it is still there")

    def _lost(self, row: Row[Any]) -> None:
        """An alert that the data no longer show."""
        if row.state == "resolved":
            return
        if row.content["members"]:
            self._resolve(row, "withdrawn", "with what was measured later it is no change")
        else:
            self._resolve(row, "fixed", "it is measured again")

    def _resolve(self, row: Row[Any], ending: Ending, note: str, who: str = DATA) -> None:
        act = Act("resolve", who, note, ending=ending)
        self._perform(row, act, self._newest(row.machine))
        self.outcome.resolved.append(row.id)

    def _reopen(self, row: Row[Any], note: str) -> None:
        self._perform(row, Act("reopen", DATA, note))
        self.outcome.reopened.append(row.id)

    def _claim(self, number: int, alert: Alert) -> int:
        """Note that the alert tells of its changes; how many of them are new."""
        new = [key for key in dict.fromkeys(_hash(member.key) for member in alert.members) if key not in self.owner]
        if new:
            self.connection.execute(insert(MEMBER), [{"alert_id": number, "key_hash": key} for key in new])
            self.owner |= dict.fromkeys(new, number)
        return len(new)

    def _place(self, machine: str, commit: str) -> int:
        """Return the place of a commit among those of the machine; -1 for a commit that is not there."""
        return self._places_of(machine).get(commit, -1)

    def _places_of(self, machine: str) -> dict[str, int]:
        if machine not in self._places:
            self._places[machine] = {one: place for place, one in enumerate(self.seen.commits[machine])}
        return self._places[machine]

    def _perform(self, row: Row[Any], act: Act, newest: str = "") -> None:
        self.changed = True
        perform(self.connection, tracked(row), act, newest, self.today)

    def _newest(self, machine: str) -> str:
        commits = self.seen.commits[machine]
        return commits[-1] if commits else ""


def _together(parts: Sequence[Alert]) -> Alert:
    """What several groups of changes say of the one alert that told of them when they were one group."""
    first, *others = sorted(parts, key=lambda part: (part.topic != "slower", -len(part.members), part.commits))
    if not others:
        return first
    members = tuple(member for part in (first, *others) for member in part.members)
    gone = all(part.gone for part in parts if part.topic == first.topic)
    return replace(first, members=members, gone=gone, old=all(part.old for part in parts))


def _asks_nothing(alert: Alert) -> bool:
    """Whether nobody has to act on what became slower: it is undone, accepted, muted, or long past."""
    return alert.gone or alert.old or alert.waiver is not None


def _first_state(alert: Alert, today: datetime.date) -> tuple[State, str, str, str]:
    """State, ending, who and note of an alert that is seen for the first time."""
    if alert.topic in _RECORDED:
        return "resolved", "recorded", DATA, "recorded; nobody has to act"
    if alert.old:
        return "resolved", "recorded", DATA, "recorded; it was there long before it was looked for"
    if alert.gone:
        return "resolved", "fixed", DATA, "its series are already back at their old level"
    if alert.waiver and alert.waiver.until is None:
        return "resolved", "intended", FILE, alert.waiver.because
    if alert.waiver and alert.waiver.until and alert.waiver.until >= today:
        return "muted", "", FILE, alert.waiver.because
    return "new", "", DATA, alert.cause.sentence


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]
