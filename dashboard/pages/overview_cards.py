"""The overview's cards: how many of what, and the alerts that say it in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dash import html

from dashboard.alerts.grouping import Alert
from dashboard.alerts.words import change, headline
from dashboard.comparing import geomean
from dashboard.pages.parts import commit_link, count
from dashboard.results.picture import Results
from dashboard.shown import Shown
from dashboard.standings import Standing

#: Alerts told in full below the cards.
MOST_NEWS = 5


def cards(stood: Sequence[Standing], picture: Shown | None) -> list[Any]:
    """Open alerts, slower, faster, stale, and the geometric mean of all."""
    slower = sorted((one for one in stood if one.verdict == "slower"), key=lambda one: -(one.worse or 0.0))
    faster = sorted((one for one in stood if one.verdict == "faster"), key=lambda one: one.worse or 0.0)
    failed = sum(one.verdict == "failed" for one in stood)
    stale = sum(one.stale for one in stood)
    mean, both = geomean(one.difference for one in stood)
    told = open_alerts(picture)
    looking = "looking for changes …" if picture is None else ""
    return [
        _card("Open alerts", "…" if picture is None else str(len(told)), looking or _topics(told), "alerts"),
        _card("Slower", str(len(slower)), looking or _worst(slower), "slower", "▼" if slower else ""),
        _card("Faster", str(len(faster)), looking or _worst(faster), "faster", "▲" if faster else ""),
        _card("Failed", str(failed), "at their newest commit", "failed", "✕" if failed else ""),
        _card("Stale", str(stale), "not measured with the rest of their family", "stale"),
        _card("Geomean", f"{mean:.3f}×" if both else "–", f"over {count(both, 'series')} in both", "mean"),
    ]


def news(results: Results, picture: Shown | None) -> list[Any]:
    """The newest open alerts, one line each."""
    told = sorted(open_alerts(picture), key=lambda one: -one.since)
    lines = [_line(results, one) for one in told[:MOST_NEWS]]
    if len(told) > MOST_NEWS:
        lines.append(html.Li(f"and {len(told) - MOST_NEWS} more", className="dim"))
    return [html.Ul(lines, className="news")] if lines else []


def open_alerts(picture: Shown | None) -> list[Alert]:
    """Alerts of what became slower or is not measured any more, and is neither undone, old nor excused."""
    return list(picture.alerts) if picture else []


def _line(results: Results, alert: Alert) -> Any:
    subjects = {one.hash: one for one in results.commits(alert.machine)}
    commit = subjects.get(alert.after)
    sign = html.Span("▼ " if alert.topic == "slower" else "◌ ", className="slower")
    words: list[Any] = [sign, html.Span(headline(alert), className="strong")]
    if alert.members:
        words.append(html.Span(f" · {alert.cause.kind}: {alert.cause.sentence}", className="dim"))
    if commit:
        words += [" · ", commit_link(commit, alert.machine), html.Span(f" {commit.subject}", className="dim")]
    return html.Li(words)


def _card(label: str, number: str, note: str, kind: str, sign: str = "") -> Any:
    mark = [html.Span(sign, className=f"sign {'slower' if kind in ('slower', 'failed') else 'faster'}")] if sign else []
    body = [
        html.Span(label, className="card-label"),
        html.Span([*mark, number], className="card-number"),
        html.Span(note, className="card-note dim"),
    ]
    # A card of a verdict narrows the table to it; the others only tell.
    if kind in ("slower", "faster", "failed", "stale"):
        filters: Any = {"data-filter": kind}
        return html.Button(body, className="count-card", type="button", **filters)
    return html.Div(body, className="count-card")


def _worst(some: Sequence[Standing]) -> str:
    if not some or some[0].worse is None:
        return "nothing that matters"
    one = some[0]
    more = math.copysign(1, one.worse or 0.0)
    return f"{'worst' if more > 0 else 'best'} {change(one.worse or 0.0)} {one.row.suite} {one.row.variant}".strip()


def _topics(alerts: Sequence[Alert]) -> str:
    topics = [one.topic for one in alerts]
    return ", ".join(f"{topics.count(one)} {one}" for one in dict.fromkeys(topics)) or "nothing to look at"
