"""An alert in words, for the terminal, messages, feeds and pages."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dashboard.alerts.grouping import Alert, Topic
from dashboard.alerts.tracked import Tracked

_TOPICS: dict[Topic, str] = {
    "slower": "slower",
    "faster": "faster",
    "stopped": "stopped reporting",
    "silent": "silent",
    "vanished": "vanished",
    "renamed": "renamed",
    "version": "measured another way",
}


def change(log: float) -> str:
    """``+5.1 %`` of a log factor; its minus is as wide as the plus."""
    return f"{100 * math.expm1(log):+z.1f} %".replace("-", "−")


def span(low: float, high: float) -> str:
    """``+4.7 … +5.5 %``, the ends of a change's interval, from log factors."""
    return f"{change(low).removesuffix(' %')} … {change(high)}"


def where(alert: Alert) -> str:
    """``linear on h200``."""
    return f"{alert.family} on {alert.machine}" if alert.family else alert.machine


def headline(alert: Alert) -> str:
    """One line: what, where, how much, since when."""
    if alert.topic == "silent":
        return alert.text
    if not alert.members:
        return f"{where(alert)} {_TOPICS[alert.topic]}: {alert.text}"
    worst = alert.members[0]
    told = [one for one in alert.members if (one.size > 0) == (alert.topic == "slower")]
    more = f" and {len(told) - 1} more" if len(told) > 1 else ""
    size = change(worst.size).lstrip("+−")
    return f"{where(alert)} {_TOPICS[alert.topic]} by {size} in {alert.range}: {worst.series.label}{more}"


def status(one: Tracked) -> str:
    """``muted until 2027-01-31``, ``resolved (fixed)``, ``new``."""
    if one.state == "muted":
        return f"muted until {one.muted_until}"
    return f"resolved ({one.ending})" if one.state == "resolved" else one.state


def culprits(alert: Alert) -> str:
    """The commit, or how many it may have been and how to find out."""
    suspects = alert.suspects
    if not suspects:
        return "no commit came in"
    if len(suspects) == 1:
        return f"commit {suspects[0][:12]}"
    also = f", of which {len(suspects)} touch the packages" if len(suspects) < len(alert.commits) else ""
    return f"one of {len(alert.commits)} commits{also}: {alert.before[:12]}..{alert.after[:12]}"


def lines(alert: Alert, most: int = 10) -> Iterator[str]:
    """The alert in a few lines of plain text: cause, range, the worst series with their intervals."""
    yield f"cause: {alert.cause.kind}: {alert.cause.sentence}"
    if alert.commits:
        yield f"range: {culprits(alert)}"
    if alert.also_on:
        yield f"also on: {', '.join(alert.also_on)}"
    if alert.owner:
        yield f"owner: {alert.owner}"
    for member in alert.members[:most]:
        note = "" if member.cause.kind == alert.cause.kind else f" ({member.cause.kind}: {member.cause.sentence})"
        yield f"{change(member.size):>9} ({span(member.low, member.high)})  {member.series.label}{note}"
    if len(alert.members) > most:
        yield f"and {len(alert.members) - most} more series"
