"""Insert all alerts that an analysis opens at once. With one statement per alert, 40,000 alerts take half a minute."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, insert, select

from lockstep.alerts.database.schema import ALERT, EVENT, MEMBER

#: Temporary number of the first new alert until the database assigns a number. All assigned numbers are lower.
UNNUMBERED = 2**63


class NewAlerts:
    """Collects the rows of new alerts, of the first lines of their logs, and of the changes that alerts own.

    Until ``insert`` is called, new alerts have temporary numbers from ``UNNUMBERED`` on, in the order of ``add``.
    """

    def __init__(self) -> None:
        self._alerts: list[dict[str, Any]] = []
        self._lines: list[dict[str, Any]] = []
        self._changes: list[tuple[int, str]] = []

    def add(self, values: dict[str, Any], line: dict[str, Any]) -> int:
        """Add an alert and the first line of its log, both without a number. Return the alert's temporary number."""
        self._alerts.append(values)
        self._lines.append(line)
        return UNNUMBERED + len(self._alerts) - 1

    def assign(self, number: int, changes: list[str]) -> None:
        """Add changes, given by the hashes of their keys, that an old or a new alert owns from now on."""
        self._changes += [(number, change) for change in changes]

    def insert(self, connection: Connection) -> dict[int, int]:
        """Insert all collected rows into the database. Return the number of each new alert by its temporary number."""
        numbers: dict[int, int] = {}
        if self._alerts:
            connection.execute(insert(ALERT), self._alerts)
            # SQLite returns the number of an inserted row only if each row has its own statement. So the numbers are
            # read back.
            rows = connection.execute(select(ALERT.c.fingerprint, ALERT.c.id))
            number_of = {row.fingerprint: row.id for row in rows}
            numbers = {UNNUMBERED + at: number_of[alert["fingerprint"]] for at, alert in enumerate(self._alerts)}
            named = zip(numbers.values(), self._lines, strict=True)
            connection.execute(insert(EVENT), [{"alert_id": number, **line} for number, line in named])
        if self._changes:
            changes = [
                {"alert_id": numbers.get(number, number), "key_hash": change} for number, change in self._changes
            ]
            connection.execute(insert(MEMBER), changes)
        self._alerts, self._lines, self._changes = [], [], []
        return numbers
