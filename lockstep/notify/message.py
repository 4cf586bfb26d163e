"""Write messages to people: about one alert, or a digest of all alerts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lockstep.alerts.database.alert_row import Tracked
from lockstep.alerts.story import tell
from lockstep.alerts.text import headline, status

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


def digest_message(
    open_alerts: Sequence[Tracked], closed: Sequence[Tracked], muted: int, site: str = ""
) -> Message | None:
    """Return one message about all alerts; ``None`` if there is nothing to report.

    Args:
        open_alerts: alerts that require action.
        closed: alerts that were closed, and improvements that were recorded, since the last digest.
        muted: number of muted alerts, which alone are nothing to report.
        site: address of the dashboard.
    """
    if not open_alerts and not closed:
        return None
    also = f", and {muted} muted" if muted else ""
    body = [f"{len(open_alerts)} open{also}:"] if open_alerts else [f"Nothing is open{also}."]
    body += [f"- {status(alert)}: {headline(alert.alert)} {link(alert, site)}".rstrip() for alert in open_alerts]
    if closed:
        body += ["", "Closed or recorded since the last digest:"]
        body += [f"- {status(alert)}: {headline(alert.alert)}" for alert in closed]
    slower = sum(1 for alert in open_alerts if alert.alert.topic == "slower")
    noun = "open alert" if len(open_alerts) == 1 else "open alerts"
    title = f"Lockstep: {len(open_alerts)} {noun}, {slower} of them worse{also}"
    return Message(title, "\n".join(body), "warning" if open_alerts else "info")
