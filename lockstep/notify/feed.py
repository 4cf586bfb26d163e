"""Write alerts as JSON and as an Atom feed (RFC 4287), for the dashboard and for asv's published site."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree import ElementTree

from lockstep.alerts.alert_ranking import doubted, explain
from lockstep.alerts.database.alert_row import Tracked, to_json
from lockstep.alerts.reproduce import reproduce
from lockstep.alerts.story import tell
from lockstep.alerts.text import headline, status
from lockstep.notify.message import link

#: Maximum number of alerts in a feed: those that changed last. Feed readers themselves store older entries.
MOST_ENTRIES = 200

_ATOM = "http://www.w3.org/2005/Atom"

#: Characters that XML 1.0 does not allow, even escaped.
_NOT_XML = dict.fromkeys(
    [*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF, *range(0xD800, 0xE000)], "\N{REPLACEMENT CHARACTER}"
)


def alerts_json(alerts: Iterable[Tracked], site: str = "") -> list[dict[str, Any]]:
    """Return each alert as a JSON object. Times are in ISO 8601, and sizes are natural logs (positive is worse).

    ``commits`` holds the possible culprits, oldest first. If the range is unknown, ``unknown`` gives the reason,
    ``commits`` is empty, and ``before`` and ``after`` are the ends of the range.
    """
    return [
        {
            "id": alert.id,
            "fingerprint": alert.fingerprint,
            "state": alert.state,
            "ending": alert.ending,
            "muted_until": alert.muted_until.isoformat() if alert.muted_until else None,
            "opened_at": _time(alert.opened_at),
            "changed_at": _time(alert.changed_at),
            "headline": headline(alert.alert),
            "link": link(alert, site),
            **to_json(alert.alert),
            "commits": list(alert.alert.commits) if alert.alert.known else [],
            "range": alert.alert.range,
            "after": alert.alert.after,
            "suspects": list(alert.alert.suspects),
            "reproduce": reproduce(alert.alert),
            "lost": explain(alert.alert),
            "doubted": doubted(alert.alert),
        }
        for alert in alerts
    ]


def atom(alerts: Sequence[Tracked], site: str = "", title: str = "Lockstep alerts") -> str:
    """Return an Atom feed of the alerts that changed last, with the latest change first.

    The id of an entry contains the alert's fingerprint, so feed readers show an alert only once.

    Args:
        alerts: all alerts; of those that are not doubted, the ``MOST_ENTRIES`` that changed last are written.
        site: address of the dashboard, to which entries link; "" for no links.
    """
    ElementTree.register_namespace("", _ATOM)
    feed = ElementTree.Element(f"{{{_ATOM}}}feed")
    _text(feed, "id", f"{site.rstrip('/')}/alerts.atom" if site else "urn:lockstep:alerts")
    _text(feed, "title", title)
    told = (alert for alert in alerts if not doubted(alert.alert))
    ordered = sorted(told, key=lambda alert: (-alert.changed_at, -alert.id))[:MOST_ENTRIES]
    _text(feed, "updated", _time(ordered[0].changed_at if ordered else 0))
    author = ElementTree.SubElement(feed, f"{{{_ATOM}}}author")
    _text(author, "name", "Lockstep")
    for alert in ordered:
        entry = ElementTree.SubElement(feed, f"{{{_ATOM}}}entry")
        _text(entry, "id", f"urn:lockstep:alert:{alert.fingerprint}")
        _text(entry, "title", f"[{status(alert)}] {headline(alert.alert)}")
        _text(entry, "updated", _time(alert.changed_at))
        _text(entry, "published", _time(alert.opened_at))
        if address := link(alert, site):
            ElementTree.SubElement(entry, f"{{{_ATOM}}}link", href=address)
        _text(entry, "content", "\n".join(tell(alert.alert, alert.id).lines(limit=50)), type="text")
    return ElementTree.tostring(feed, encoding="unicode", xml_declaration=True)


def _text(parent: ElementTree.Element, name: str, text: str, **attributes: str) -> None:
    ElementTree.SubElement(parent, f"{{{_ATOM}}}{name}", attributes).text = text.translate(_NOT_XML)


def _time(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).isoformat(timespec="seconds")
