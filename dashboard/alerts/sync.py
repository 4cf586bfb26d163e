"""The alerts brought in step with the data, in one transaction.

A change that is already told of keeps its alert, whatever later data say of its size and place; so
analysing again opens nothing twice.
"""

from __future__ import annotations

import datetime
import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from dashboard.alerts.content import to_json
from dashboard.alerts.grouping import Alert, Member
from dashboard.alerts.life import OPEN, Act, Ending, State
from dashboard.alerts.schema import ALERT, MEMBER
from dashboard.alerts.tracked import Tracked, now_ms, perform, read_alert, tracked, write_log

#: Who acts when the data do.
DATA = "lockstep"
FILE = "thresholds.toml"

#: A slowdown that somebody called fixed is reopened once it was measured at this many later commits and is still there.
LATER_COMMITS = 3

#: They are worth knowing, and ask nothing of anybody.
_RECORDED = ("faster", "version", "renamed")


@dataclass(frozen=True)
class Seen:
    """What an analysis has looked at, and found.

    Attributes:
        alerts: found now, each change and each freshness alert once.
        commits: by machine, the commits that it has measured, oldest first. Alerts of other machines are left alone.
    """

    alerts: Sequence[Alert]
    commits: Mapping[str, Sequence[str]]


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

    def __init__(self, connection: Connection, seen: Seen, today: datetime.date) -> None:
        self.connection = connection
        self.seen = seen
        self.today = today
        self.outcome = _Outcome()
        rows = connection.execute(select(ALERT).where(ALERT.c.machine.in_(list(seen.commits))))
        self.known: dict[int, Row[Any]] = {row.id: row for row in rows}
        members = connection.execute(select(MEMBER.c.key_hash, MEMBER.c.alert_id))
        self.owner: dict[str, int] = {row.key_hash: row.alert_id for row in members}
        self.opened: set[int] = set()

    def run(self) -> Synced:
        """Do it."""
        parts: dict[int, list[Alert]] = defaultdict(list)
        for alert in self.seen.alerts:
            for number, part in self._parts(alert):
                if number is None:
                    self._open(part)
                else:
                    parts[number].append(part)
        for number, row in self.known.items():
            if number in parts:
                self._update(tracked(row), _together(parts[number]))
            elif number not in self.opened:
                self._lost(tracked(row))
        return Synced(*(tuple(sorted(one)) for one in vars(self.outcome).values()))

    def _parts(self, alert: Alert) -> list[tuple[int | None, Alert]]:
        """The alert, split where its changes are already told of by several; new ones join the oldest."""
        if not alert.members:
            same = [number for number, row in self.known.items() if row.fingerprint == alert.fingerprint]
            return [(same[0] if same else None, alert)]
        owners = [self.owner.get(_hash(member.key)) for member in alert.members]
        home = min((one for one in owners if one is not None), default=self._overlapping(alert))
        shares: dict[int | None, list[Member]] = defaultdict(list)
        for member, owner in zip(alert.members, owners, strict=True):
            shares[home if owner is None else owner].append(member)
        return [(number, replace(alert, members=tuple(members))) for number, members in shares.items()]

    def _overlapping(self, alert: Alert) -> int | None:
        """An alert of the same place whose range shares a commit: these are more cases of it, told later."""
        for number, row in sorted(self.known.items()):
            same = (row.machine, row.family, row.topic) == (alert.machine, alert.family, alert.topic)
            if same and set(row.content["commits"]) & set(alert.commits):
                return number
        return None

    def _open(self, alert: Alert) -> None:
        state, ending, who, note = _first_state(alert, self.today)
        now = now_ms()
        values = {
            "fingerprint": alert.fingerprint,
            "topic": alert.topic,
            "machine": alert.machine,
            "family": alert.family,
            "state": state,
            "ending": ending,
            "muted_until": alert.excuse.until if alert.excuse and state == "muted" else None,
            "closed_at_commit": self._newest(alert.machine) if state == "resolved" else "",
            "opened_at": now,
            "changed_at": now,
            "content": to_json(alert),
        }
        number = self.connection.execute(insert(ALERT).values(values)).inserted_primary_key[0]  # type: ignore[index]
        self.known[number] = self.connection.execute(select(ALERT).where(ALERT.c.id == number)).one()
        self.opened.add(number)
        self._claim(number, alert)
        write_log(self.connection, number, who, "opened", state, note)
        if state in OPEN:
            self.outcome.opened.append(number)

    def _update(self, one: Tracked, alert: Alert) -> None:
        more = self._claim(one.id, alert)
        if to_json(alert) != to_json(one.alert):
            self.connection.execute(
                update(ALERT).where(ALERT.c.id == one.id).values(topic=alert.topic, content=to_json(alert))
            )
            if more or alert.range != one.alert.range or alert.topic != one.alert.topic:
                note = f"now {len(alert.members)} series in {alert.range}" if alert.members else alert.text
                write_log(self.connection, one.id, DATA, "revised", one.state, note)
        self._live(one, alert)

    def _live(self, one: Tracked, alert: Alert) -> None:
        """What the data and the calendar do to an alert that is still found."""
        if one.state == "muted" and one.muted_until is not None and one.muted_until < self.today:
            self._reopen(one, f"its mute ended on {one.muted_until}")
        elif one.state == "resolved":
            self._live_again(one, alert)
        elif alert.gone:
            self._resolve(one, "fixed", "its series are back at their old level")
        elif alert.excuse and alert.excuse.until is None:
            self._resolve(one, "intended", alert.excuse.because, FILE)
        elif alert.excuse and one.state in OPEN:
            perform(self.connection, one, Act("mute", FILE, alert.excuse.because, alert.excuse.until), "", self.today)

    def _live_again(self, one: Tracked, alert: Alert) -> None:
        if alert.topic == "slower" != one.alert.topic:
            self._reopen(one, "beside what became faster, something became slower")
        if (
            alert.topic != one.alert.topic
            or alert.gone
            or alert.excuse
            or alert.old
            or one.ending in ("intended", "recorded")
        ):
            return
        row = self.known[one.id]
        commits = list(self.seen.commits[one.alert.machine])
        closed = commits.index(row.closed_at_commit) if row.closed_at_commit in commits else -1
        later = len(commits) - 1 - closed
        by_hand = one.ending == "fixed" and not one.alert.gone
        if not by_hand:
            self._reopen(one, "it is back")
        elif later >= LATER_COMMITS:
            self._reopen(one, f"{later} commits were measured since it was called fixed, and it is still there")

    def _lost(self, one: Tracked) -> None:
        """An alert that the data no longer show."""
        if one.state == "muted" and one.muted_until is not None and one.muted_until < self.today:
            self._reopen(one, f"its mute ended on {one.muted_until}")
            one = read_alert(self.connection, one.id)
        if one.state == "resolved":
            return
        if one.alert.members:
            self._resolve(one, "withdrawn", "with what was measured later it is no change")
        else:
            self._resolve(one, "fixed", "it is measured again")

    def _resolve(self, one: Tracked, ending: Ending, note: str, who: str = DATA) -> None:
        perform(
            self.connection, one, Act("resolve", who, note, ending=ending), self._newest(one.alert.machine), self.today
        )
        self.outcome.resolved.append(one.id)

    def _reopen(self, one: Tracked, note: str) -> None:
        perform(self.connection, one, Act("reopen", DATA, note), "", self.today)
        self.outcome.reopened.append(one.id)

    def _claim(self, number: int, alert: Alert) -> int:
        """Note that the alert tells of its changes; how many of them are new."""
        new = [key for key in dict.fromkeys(_hash(member.key) for member in alert.members) if key not in self.owner]
        if new:
            self.connection.execute(insert(MEMBER), [{"alert_id": number, "key_hash": key} for key in new])
            self.owner |= dict.fromkeys(new, number)
        return len(new)

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


def _first_state(alert: Alert, today: datetime.date) -> tuple[State, str, str, str]:
    """State, ending, who and note of an alert that is seen for the first time."""
    if alert.topic in _RECORDED:
        return "resolved", "recorded", DATA, "recorded; nobody has to act"
    if alert.old:
        return "resolved", "recorded", DATA, "recorded; it was there long before it was looked for"
    if alert.gone:
        return "resolved", "fixed", DATA, "its series are already back at their old level"
    if alert.excuse and alert.excuse.until is None:
        return "resolved", "intended", FILE, alert.excuse.because
    if alert.excuse and alert.excuse.until and alert.excuse.until >= today:
        return "muted", "", FILE, alert.excuse.because
    return "new", "", DATA, alert.cause.sentence


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]
