"""Write messages to people: about one alert, or a digest of all alerts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lockstep.alerts.database.alert_row import Tracked
from lockstep.alerts.story import tell
from lockstep.alerts.text import headline, status
from lockstep.record.counted import counted

Severity = Literal["warning", "info"]


@dataclass(frozen=True)
class Message:
    """A message in plain text, and whether Apprise shows it as a warning or as information."""

    title: str
    body: str
    severity: Severity = "warning"


def link(alert: Tracked, site: str) -> str:
    """Return the address of the alert's page; "" if the address of the dashboard is unknown."""
    return f"{site.rstrip('/')}/alert/{alert.id}" if site else ""


def alert_message(alert: Tracked, site: str = "") -> Message:
    """Return the message about one alert: its story and a link."""
    again = "Again: " if alert.state == "reopened" else ""
    end = link(alert, site) or f"lockstep alerts show {alert.id}"
    story = tell(alert.alert, alert.id)
    return Message(f"{again}{story.title}", "\n".join([*story.lines(), end]))


def digest_message(open_alerts: Sequence[Tracked], site: str = "") -> Message:
    """Return one message about all open alerts."""
    rows = [f"- {status(alert)}: {headline(alert.alert)} {link(alert, site)}".rstrip() for alert in open_alerts]
    return Message(f"Lockstep: {counted(len(rows), 'open alert')}", "\n".join(rows))
