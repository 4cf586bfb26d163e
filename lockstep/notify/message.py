"""Messages to people: one an alert, or a digest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lockstep.alerts.text import headline, lines, status
from lockstep.alerts.tracked import Tracked

Severity = Literal["warning", "info"]


@dataclass(frozen=True)
class Message:
    """A message in plain text, as Apprise takes it."""

    title: str
    body: str
    severity: Severity = "warning"


def link(one: Tracked, site: str) -> str:
    """Return the address of the alert's page; "" without a site."""
    return f"{site.rstrip('/')}/alert/{one.id}" if site else ""


def alert_message(one: Tracked, site: str = "") -> Message:
    """Return the message about one alert: numbers, range, cause, link."""
    again = "Again: " if one.state == "reopened" else ""
    end = link(one, site) or f"lockstep alerts show {one.id}"
    return Message(f"{again}{headline(one.alert)}", "\n".join([*lines(one.alert), end]))


def digest_message(
    open_ones: Sequence[Tracked], closed: Sequence[Tracked], unconfirmed: int, site: str = ""
) -> Message | None:
    """Return one message about all alerts; ``None`` if there is nothing to report.

    Args:
        open_ones: alerts that need action.
        closed: alerts that were closed, and improvements that were recorded, since the last digest.
        unconfirmed: number of messages whose delivery is unconfirmed.
        site: address of the dashboard.
    """
    if not open_ones and not closed and not unconfirmed:
        return None
    body = [f"{len(open_ones)} open:"] if open_ones else ["Nothing is open."]
    body += [f"- {status(one)}: {headline(one.alert)} {link(one, site)}".rstrip() for one in open_ones]
    if closed:
        body += ["", "Closed or recorded since the last digest:"]
        body += [f"- {status(one)}: {headline(one.alert)}" for one in closed]
    if unconfirmed:
        body += ["", f"{unconfirmed} messages may not have arrived: `lockstep alerts notify` lists them."]
    slower = sum(1 for one in open_ones if one.alert.topic == "slower")
    title = f"Lockstep: {len(open_ones)} open alerts, {slower} of them slower"
    return Message(title, "\n".join(body), "warning" if open_ones else "info")
