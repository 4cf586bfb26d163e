"""Insert the alerts that an analysis opens, all together: a statement for each of 40,000 takes half a minute."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, insert, select

from lockstep.alerts.schema import ALERT, EVENT, MEMBER

#: Number that stands for the first new alert until the database gives it one; all that databases give are lower.
UNNUMBERED = 2**63


class NewAlerts:
    """Rows of new alerts, of the first lines of their logs, and of the changes that alerts own.

    A new alert has a number from ``UNNUMBERED`` on, in the order of ``add``, until ``insert`` is called.
    """

    def __init__(self) -> None:
        self._alerts: list[dict[str, Any]] = []
        self._lines: list[dict[str, Any]] = []
        self._changes: list[tuple[int, str]] = []

    def add(self, values: dict[str, Any], line: dict[str, Any]) -> int:
        """Add an alert and the first line of its log, without numbers; return what stands for its number."""
        self._alerts.append(values)
        self._lines.append(line)
        return UNNUMBERED + len(self._alerts) - 1

    def own(self, number: int, changes: list[str]) -> None:
        """Add changes, by the hashes of their keys, that an old or a new alert owns from now on."""
        self._changes += [(number, change) for change in changes]

    def insert(self, connection: Connection) -> dict[int, int]:
        """Insert everything that was added; return the number of each new alert by what stood for it."""
        numbers: dict[int, int] = {}
        if self._alerts:
            connection.execute(insert(ALERT), self._alerts)
            # SQLite returns the numbers of inserted rows one statement at a time.
            rows = connection.execute(select(ALERT.c.fingerprint, ALERT.c.id))
            number_of = {row.fingerprint: row.id for row in rows}
            numbers = {UNNUMBERED + at: number_of[one["fingerprint"]] for at, one in enumerate(self._alerts)}
            named = zip(numbers.values(), self._lines, strict=True)
            connection.execute(insert(EVENT), [{"alert_id": number, **line} for number, line in named])
        if self._changes:
            changes = [{"alert_id": numbers.get(number, number), "key_hash": one} for number, one in self._changes]
            connection.execute(insert(MEMBER), changes)
        self._alerts, self._lines, self._changes = [], [], []
        return numbers
