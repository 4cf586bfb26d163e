"""Give stored alerts the names of today, where rules ``[[same]]`` of thresholds.toml joined what was renamed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, select, update

from lockstep.alerts.database.alert_as_json import from_json, to_json
from lockstep.alerts.database.alert_row import write_log
from lockstep.alerts.database.listing import columns_of
from lockstep.alerts.database.schema import ALERT, MEMBER
from lockstep.alerts.database.states_and_actions import DATA
from lockstep.alerts.model import Alert
from lockstep.record.series_name import SeriesName


@dataclass(frozen=True)
class Renamed:
    """The names of today by the earlier names.

    Attributes:
        machines: the machines.
        series: the series, without their machines.
    """

    machines: Mapping[str, str] = field(default_factory=dict)
    series: Mapping[SeriesName, SeriesName] = field(default_factory=dict)

    def machine(self, name: str) -> str:
        """Return the name of today of a machine. What follows in brackets, such as an environment, stays."""
        folder, bracket, rest = name.partition(" (")
        return self.machines.get(name) or self.machines.get(folder, folder) + bracket + rest

    def of(self, alert: Alert) -> Alert:
        """Return the alert under the names of today."""
        members = tuple(replace(member, series=self._series(member.series)) for member in alert.members)
        family = members[0].series.family if members else alert.family
        return replace(alert, machine=self.machine(alert.machine), family=family, members=members)

    def _series(self, series: SeriesName) -> SeriesName:
        today = self.series.get(replace(series, machine=""), series)
        return replace(today, machine=self.machine(series.machine))


def rename(connection: Connection, renamed: Renamed) -> bool:
    """Rename the stored alerts. Their states, notes and logs stay. Return whether one was renamed."""
    if not (renamed.machines or renamed.series):
        return False
    keys = set(connection.scalars(select(MEMBER.c.key_hash)))
    done = False
    for row in connection.execute(select(ALERT)).all():
        old = from_json(row.content)
        new = renamed.of(old)
        if new == old:
            continue
        values: dict[str, Any] = {"machine": new.machine, "family": new.family, "content": to_json(new)}
        connection.execute(update(ALERT).where(ALERT.c.id == row.id).values(**values, **columns_of(new)))
        for was, member in zip(old.members, new.members, strict=True):
            # If joined machines reported the same change, it belongs to the alert that was renamed first.
            if (key := key_hash(member.key)) not in keys:
                same = MEMBER.c.key_hash == key_hash(was.key)
                connection.execute(update(MEMBER).where(same).values(key_hash=key))
                keys.add(key)
        write_log(connection, row.id, DATA, "revised", row.state, "renamed by [[same]] in thresholds.toml")
        done = True
    return done


def key_hash(key: str) -> str:
    """Return the text under which the database knows a change, given by ``FoundChange.key``."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]
