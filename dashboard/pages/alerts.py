"""All alerts: what is open first, by state, family, machine and owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from dashboard.address import asked
from dashboard.alerts.life import OPEN
from dashboard.alerts.tracked import Tracked, now_ms
from dashboard.alerts.words import headline, status, where
from dashboard.desk import Desk
from dashboard.pages.parts import age, change_cell, count, loading, notice, table
from dashboard.results.store import Store

#: Rows shown at once; more are for a narrower choice.
MOST = 200

#: Seconds between two looks for news.
POLL = 10

KEYS = ("state", "family", "machine", "owner")

_STATES = ("open", "muted", "resolved", "all")
_HEAD = ("No.", "What", "Size", "Series", "Range", "Cause", "Owner", "Age", "State")
_FIRST = {"new": 0, "reopened": 0, "acknowledged": 1, "muted": 2, "resolved": 3}


def layout(desk: Desk | None, search: str) -> Any:
    """The page of an address."""
    if desk is None:
        return notice("No alerts are kept here", html.P(["Start it with ", html.Code("lockstep dashboard"), "."]))
    chosen = asked(search, *KEYS)
    alerts = desk.alerts.alerts()

    def select(name: str, values: set[str]) -> Any:
        shown = sorted({*values, chosen[name]} - {""})
        given = chosen[name] or None
        return dmc.Select(
            id=f"alerts-{name}",
            label=name.capitalize(),
            data=shown,
            value=given,
            clearable=True,
            searchable=True,
            placeholder="all",
            className="filter" if name == "family" else "",
        )

    controls = [
        html.Div(
            [
                html.Span("State", className="label"),
                dmc.SegmentedControl(
                    id="alerts-state",
                    data=[{"value": one, "label": one.capitalize()} for one in _STATES],
                    value=chosen["state"] if chosen["state"] in _STATES else "open",
                ),
            ]
        ),
        select("family", {one.alert.family for one in alerts}),
        select("machine", {one.alert.machine for one in alerts}),
        select("owner", {one.alert.owner for one in alerts}),
    ]
    return html.Main(
        [
            html.Div(
                [html.H1("Alerts"), html.A("Feed", href="/feed.atom", className="link")],
                className="crumbs",
            ),
            dcc.Store(id="alerts-path", data={"path": "/alerts", "keys": KEYS}),
            dcc.Store(id="alerts-version"),
            dcc.Interval(id="alerts-tick", interval=1000 * POLL),
            html.Div(controls, className="controls"),
            loading(html.Div(id="alerts-list")),
        ]
    )


def register(app: Dash, store: Store, desk: Desk) -> None:
    """Connect the page's controls."""
    chosen = [Input(f"alerts-{name}", "value") for name in KEYS]

    @app.callback(
        Output("alerts-list", "children"),
        Output("alerts-version", "data"),
        *chosen,
        Input("alerts-tick", "n_intervals"),
        State("alerts-version", "data"),
    )
    def fill(
        state: str, family: str | None, machine: str | None, owner: str | None, _tick: int | None, seen: str | None
    ) -> Any:
        said = desk.look(store.current())
        alerts = desk.alerts.alerts()
        version = f"{[state, family, machine, owner, said]} {[(one.id, one.changed_at) for one in alerts]}"
        if version == seen:
            return no_update, no_update
        return listed(alerts, (state, family or "", machine or "", owner or ""), said, now_ms()), version

    clientside: Any = app.clientside_callback
    clientside(
        ClientsideFunction("lockstep", "address"),
        Output("alerts-path", "modified_timestamp"),
        *chosen,
        State("alerts-path", "data"),
        prevent_initial_call=True,
    )


def listed(alerts: Sequence[Tracked], chosen: tuple[str, str, str, str], said: str, now: int) -> list[Any]:
    """The table of those alerts that were chosen.

    Args:
        alerts: all of them.
        chosen: state ("open" and so on), family, machine and owner, "" any.
        said: of the analysis.
        now: ms since 1970.
    """
    state, *named = chosen
    wanted = {"open": OPEN, "all": frozenset(_FIRST)}.get(state, frozenset({state}))
    found = [
        one
        for one in alerts
        if one.state in wanted
        and all(
            value in ("", own)
            for value, own in zip(named, (one.alert.family, one.alert.machine, one.alert.owner), strict=True)
        )
    ]
    # As on the overview: what became slower is not looked for below machines that are switched off.
    found.sort(
        key=lambda one: (
            _FIRST[one.state],
            one.alert.topic != "slower",
            -(one.alert.since or one.opened_at),
            -one.id,
        )
    )
    slower = sum(one.alert.topic == "slower" for one in found)
    counted = f"{count(len(found), 'alert')}, {slower} of them slower" if found else ""
    parts: list[Any] = [html.P(" ".join(part for part in (counted and f"{counted}.", said) if part), className="said")]
    if not found:
        kept = f"{count(len(alerts), 'alert')} in other states or of another choice." if alerts else ""
        what = "Nothing is open." if state == "open" else "There is none."
        if said and not alerts:
            what = "Nothing is known yet."
        hint = "" if alerts or said else "Alerts appear when a series has changed: three commits of results are needed."
        return [*parts, html.Div([html.P(what, className="strong"), html.P(kept or hint)], className="card empty")]
    parts.append(table(_HEAD, [_row(one, now) for one in found[:MOST]], "Alerts"))
    if len(found) > MOST:
        parts.append(html.P(f"and {len(found) - MOST} more: choose a family or a machine.", className="dim"))
    return parts


def _row(one: Tracked, now: int) -> Any:
    alert = one.alert
    worst = alert.members[0] if alert.members else None
    what = dcc.Link(summary(one), href=f"/alert/{one.id}", className="link row", title=headline(alert))
    cells = [
        html.Td(str(one.id), className="number dim"),
        html.Td(what, className="what"),
        change_cell(worst.size) if worst else html.Td("–", className="number dim"),
        html.Td(str(len(alert.members) or "–"), className="number"),
        html.Td(alert.range if alert.after else "–", className="mono"),
        html.Td(alert.cause.kind if alert.members else "–"),
        html.Td(alert.owner or "–", className="" if alert.owner else "dim"),
        html.Td(age(alert.since or one.opened_at, now), className="number"),
        html.Td(status(one), className="strong" if one.state in ("new", "reopened") else "dim"),
    ]
    return html.Tr(cells)


def summary(one: Tracked) -> str:
    """Which family, machine and series, without the numbers that stand beside it."""
    alert = one.alert
    if alert.topic == "silent":
        return alert.text
    return f"{where(alert)}: {alert.members[0].series.label if alert.members else alert.text}"
