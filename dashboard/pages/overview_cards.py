"""The overview's cards, which count series and alerts, and the list of the most urgent alerts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from dash import dcc, html

from dashboard.address import OverviewAddress, link
from dashboard.pages.parts import commit_link, count
from lockstep.alerts.analysis.findings_files import MachineFindings
from lockstep.alerts.database.alert_row import Tracked
from lockstep.alerts.database.listing import OpenAlerts
from lockstep.alerts.database.states_and_actions import State
from lockstep.alerts.text import change, headline
from lockstep.compare.difference import geomean
from lockstep.compare.number_format import whole
from lockstep.compare.series_status import Statuses
from lockstep.compare.verdict import CHANGED, LOUDEST, SIGNS, Verdict, word
from lockstep.history.snapshot import Results

#: Maximum number of alerts listed below the cards.
MOST_NEWS = 5


def alerts_card(machine: str, open_alerts: OpenAlerts, pending: bool) -> Any:
    """Return the card that counts the open alerts of a machine. ``pending``: an analysis may still open the first."""
    waits = pending and not open_alerts.states
    alerts = "looking for changes …" if waits else _states(open_alerts.states) or "no open alert"
    return dcc.Link(
        _words("Open alerts", "…" if waits else whole(open_alerts.total), alerts),
        href=link("/alerts", state="open", machine=machine),
        className="count-card",
    )


def counted(statuses: Statuses, findings: MachineFindings | None) -> list[Any]:
    """Return the cards that count slower, faster, failed and stale series, and the card with the geometric mean."""
    failed, stale, ended = (
        int(mask.sum()) for mask in (statuses.are("failed"), statuses.stale, statuses.are("not measured"))
    )
    late = f"{stale - ended} behind their family" if stale > ended else "" if ended else "behind their family"
    stale_note = ", ".join(part for part in (late, f"{ended} not measured since" if ended else "") if part)
    return [
        _changed(statuses, "slower", findings),
        *([_changed(statuses, "changed", findings)] if statuses.are("changed").any() else []),
        _changed(statuses, "faster", findings),
        _card("Failed", str(failed), "at their newest commit", "failed", SIGNS["failed"] if failed else ""),
        _card("Stale", str(stale), stale_note, "stale"),
        html.Div(_words("Geomean", *_mean(statuses, findings)), className="count-card"),
    ]


def news(results: Results, open_alerts: OpenAlerts) -> list[Any]:
    """Return the open alerts of the machine, one line each, and the counts on other machines."""
    lines = [_line(results, alert) for alert in open_alerts.first]
    if open_alerts.total > len(open_alerts.first):
        link_to_more = dcc.Link(
            f"{whole(open_alerts.total - len(open_alerts.first))} more",
            href=link("/alerts", state="open"),
            className="link",
        )
        lines.append(html.Li(["and ", link_to_more], className="dim"))
    if open_alerts.elsewhere:
        links: list[Any] = []
        for name, number in sorted(open_alerts.elsewhere.items(), key=lambda entry: (-entry[1], entry[0])):
            links += [", " if links else "", f"{whole(number)} on "]
            links.append(dcc.Link(name, href=OverviewAddress(name).link(), className="link mono"))
        lines.append(html.Li([f"{'Also open' if open_alerts.total else 'Open elsewhere'}: ", *links], className="dim"))
    return [html.Ul(lines, className="news")] if lines else []


def _line(results: Results, listed: Tracked) -> Any:
    alert = listed.alert
    # If several commits may have caused the change, the headline names the range.
    named = alert.after if len(alert.commits) == 1 and not alert.unknown else ""
    commit = next((commit for commit in results.commits(alert.machine) if commit.hash == named), None)
    sign = html.Span(f"{SIGNS[alert.topic] if alert.topic in CHANGED else '◌'} ", className="slower")
    text = dcc.Link(headline(alert), href=link(f"/alert/{listed.id}"), className="link plain-link")
    words: list[Any] = [sign, html.Span(text, className="dim" if listed.state == "acknowledged" else "strong")]
    if listed.state == "acknowledged":
        words.append(html.Span(" · acknowledged", className="dim"))
    if alert.members:
        words.append(html.Span(f" · {alert.cause.kind}: {alert.cause.sentence}", className="dim"))
    if commit:
        words += [" · ", commit_link(commit, alert.machine), html.Span(f" {commit.subject}", className="dim")]
    return html.Li(words)


def _changed(statuses: Statuses, verdict: Verdict, findings: MachineFindings | None) -> Any:
    """Return the card of the slower or faster series: their number, the largest change, and unconfirmed changes."""
    places = np.flatnonzero(statuses.are(verdict))
    bare = statuses.differences.verdict == LOUDEST.index(verdict)
    unconfirmed = int((statuses.are("unsure") & statuses.beyond_noise & bare).sum())
    notes = []
    if len(places):
        # A change from or to zero has no size.
        largest = statuses[int(places[np.argmax(np.nan_to_num(np.abs(statuses.worse[places])))])]
        row, size = largest.row, largest.moved
        if size is not None:
            kind = {"slower": "worst", "faster": "best"}.get(verdict, "largest")
            notes.append(f"{kind} {change(size)} {row.suite} {row.variant}".strip())
    if unconfirmed:
        notes.append(f"{unconfirmed}{' more' if len(places) else ''} beyond the noise, not confirmed")
    note = "; ".join(notes) if notes and findings else _nothing(statuses, findings)
    name = word(verdict, "value" if len(statuses) and statuses.rows.exact.all() else "").capitalize()
    return _card(name, str(len(places)), note, verdict, SIGNS[verdict] if len(places) else "")


def _nothing(statuses: Statuses, findings: MachineFindings | None) -> str:
    """Return the card's note for a count of 0: no change was found, or changes cannot be known yet."""
    if findings is None:
        return "looking for changes …"
    compared = ~np.isnan(statuses.worse)
    if not compared.any():
        return "no series measured at both commits"
    if np.isnan(statuses.noise[compared]).all():
        return "too few commits to know the noise"
    return "nothing beyond the noise"


def _card(label: str, number: str, note: str, kind: str, sign: str = "") -> Any:
    """Return a card with a count of series. A click on the card filters the table to the counted series."""
    filters: Any = {"data-filter": kind, "aria-pressed": "false"}
    return html.Button(_words(label, number, note, kind, sign), className="count-card", type="button", **filters)


def _words(label: str, number: str, note: str, kind: str = "", sign: str = "") -> list[Any]:
    mark = [html.Span(sign, className=f"sign {'faster' if kind == 'faster' else 'slower'}")] if sign else []
    return [
        html.Span(label, className="card-label"),
        html.Span([*mark, number], className="card-number"),
        html.Span(note, className="card-note dim", title=note),
    ]


def _mean(statuses: Statuses, findings: MachineFindings | None) -> tuple[str, str]:
    """Return the geometric mean of the series' speeds relative to the compared commit, and a text on what it covers.

    A change within the noise counts as no change.
    """
    comparable = ~np.isnan(statuses.worse)
    changed = comparable & statuses.beyond_noise
    if not changed.any():
        return "–", _nothing(statuses, findings)
    mean = geomean(np.where(changed, statuses.worse, 0.0)[comparable])
    number, part = count(int(comparable.sum()), "series"), int(changed.sum())
    return f"{math.exp(-mean):.3f}×", f"as fast, over {number}, {part} changed"


def _states(states: Mapping[State, int]) -> str:
    """Return the counts of open alerts by state as text, such as ``2 new, 1 acknowledged``."""
    active: tuple[State, ...] = ("new", "reopened", "acknowledged")
    return ", ".join(f"{whole(states[state])} {state}" for state in active if states.get(state))
