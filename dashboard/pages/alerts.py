"""The page of all alerts, open alerts first, filtered by state, family, machine and owner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from dash import Dash, Input, Output, State, dcc, html

from dashboard.address import link, query_values
from dashboard.pages.controls import choice, folded, menu, optional_menu, search_field
from dashboard.pages.parts import age, change_cell, count, in_browser, loading, notice, table, waiting
from lockstep.alerts.alert_ranking import doubted, explain
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.database.alert_row import Tracked, now_ms
from lockstep.alerts.database.listing import Choice, Order, Page
from lockstep.alerts.database.states_and_actions import OPEN
from lockstep.alerts.database.states_and_actions import State as Life
from lockstep.alerts.pages_service import AlertService
from lockstep.alerts.text import also, amount, headline, location, status
from lockstep.history.store import Store

#: Maximum number of listed alerts.
MOST = 50

KEYS = ("state", "family", "machine", "owner", "search", "sort")

_STATES = ("open", "muted", "resolved", "all")
_SORTS: dict[Order, str] = {
    "urgent": "what is lost",
    "newest": "newest first",
    "largest": "largest slowdown first",
    "family": "family",
}
_HEAD = ("No.", "What", "Size", "State", "Age", "Series", "Range", "Cause", "Owner")


def layout(service: AlertService | None, search: str) -> Any:
    """Return the page of all alerts for an address's query. The callbacks of ``register`` fill the table."""
    if service is None:
        return notice("This server has no alerts", html.P(["Start it with ", html.Code("lockstep dashboard"), "."]))
    chosen = query_values(search, *KEYS)
    names = service.alerts.names()

    def select(name: str, values: Sequence[str]) -> Any:
        offered = sorted({*values, chosen[name]} - {""})
        listed = optional_menu(f"alerts-{name}", name.capitalize(), offered, chosen[name], "all", limit=200)
        return html.Div(listed, hidden=not offered)

    controls = [
        choice("alerts-state", "State", {state: state.capitalize() for state in _STATES}, chosen["state"]),
        select("family", names.family),
        select("machine", names.machine),
        select("owner", names.owner),
        menu("alerts-sort", "Sorted by", _SORTS, chosen["sort"] if chosen["sort"] in _SORTS else "urgent"),
        search_field("alerts-search", chosen["search"], "family, series …"),
    ]
    return html.Main(
        [
            html.Div(
                [html.H1("Alerts"), html.A("Feed", href=link("/feed.atom"), className="link")], className="crumbs"
            ),
            dcc.Store(id="alerts-path", data={"path": link("/alerts"), "keys": KEYS, "usual": {"sort": "urgent"}}),
            folded(controls, kind="filters"),
            loading(html.Div(waiting(), id="alerts-list")),
        ]
    )


def register(app: Dash, store: Store, findings: Findings, service: AlertService) -> None:
    """Add the callbacks that fill the table of alerts, and write the choices into the address."""
    chosen = [Input(f"alerts-{name}", "value") for name in KEYS]

    @app.callback(Output("alerts-list", "children"), *chosen, Input("version", "data"))
    def fill(
        state: str,
        family: str | None,
        machine: str | None,
        owner: str | None,
        search: str | None,
        sort: str | None,
        _version: str | None,
    ) -> Any:
        choice = chosen_by(state, family or "", machine or "", owner or "", search or "")
        order: Order = sort if sort in _SORTS else "urgent"
        page = service.alerts.page(choice, order, MOST)
        everything = page.total or service.alerts.count(Choice())[0]
        alone = service.alerts.page(choice, limit=0, apart=True)
        findings.request_analysis(store.current())
        trouble = service.trouble or findings.trouble
        message = trouble or ("New results are being analysed." if findings.analysing else "")
        state = "" if any((family, machine, owner, search)) else state
        certain = alone.total - alone.doubted
        return listed(page, state, everything, message, now_ms(), bool(trouble), certain)

    path = State("alerts-path", "data")
    in_browser(app, "address", Output("alerts-path", "modified_timestamp"), *chosen, path)


def chosen_by(state: str, family: str, machine: str, owner: str, search: str = "") -> Choice:
    """Return the reader's choices on the page of all alerts as a filter of alerts.

    ``state`` is "open", "muted", "resolved" or "all"; "" in any other argument selects every alert.
    """
    states = {"open": OPEN, "all": None}.get(state, frozenset({cast("Life", state)}))
    return Choice(states, family, machine, owner, search)


def listed(
    page: Page, state: str, everything: int, message: str, now: int, failing: bool = False, alone: int = 0
) -> list[Any]:
    """Return the filtered alerts as a table, below a line that counts them. The doubted ones are folded below it.

    Args:
        page: the first of the alerts that match the filters, and the number of all of them.
        state: the selected state: "open", "muted", "resolved" or "all"; "" with other filters.
        everything: number of all alerts, without filters.
        message: a notice if the analysis is pending or fails, otherwise "".
        now: the time in ms since 1970, for the ages.
        failing: whether ``message`` says that the analysis fails.
        alone: number of the alerts that are not doubted, if those of one step count each; a row is a step.
    """
    if message and not everything:
        # Nothing is known before the first analysis. That is different from knowing that nothing is open.
        return [html.P(message, className="failure", role="alert")] if failing else [waiting(message)]
    certain = page.total - page.doubted
    counted = count(certain, "alert") if page.total else ""
    if alone > certain:
        counted = f"{count(certain, 'step')} in {count(alone, 'alert')}"
    if page.slower < certain:
        counted += f", {page.slower} of them worse"
    if page.total > MOST:
        counted += f"; the first {MOST} are listed, the filters find the others"
    parts: list[Any] = [
        html.P(" ".join(part for part in (counted and f"{counted}.", message) if part), className="said")
    ]
    if not page.total:
        outside = f"{count(everything, 'alert')} outside these filters." if everything else ""
        statement = "Nothing is open." if state == "open" else "No alert matches the filters."
        none: list[Any] = [
            "An alert appears when a series has changed. To find that takes results of three commits on either side: ",
            html.Code("lockstep run HEAD~6..HEAD"),
            " measures them.",
        ]
        return [
            *parts,
            html.Div([html.P(statement, className="strong"), html.P(outside or none)], className="card empty"),
        ]
    first, apart = ([one for one in page.alerts if doubted(one.alert) is side] for side in (False, True))
    if first:
        parts.append(alert_table(first, now, "Alerts"))
    if apart:
        caption = f"Probably not the code: {page.doubted}"
        parts.append(html.Details([html.Summary(caption), alert_table(apart, now, caption)], className="reproduce"))
    return parts


def alert_table(alerts: Iterable[Tracked], now: int, caption: str) -> Any:
    """Return a table of alerts. ``now``: the time in ms since 1970; ``caption``: what screen readers say."""
    return table(_HEAD, [_row(tracked, now) for tracked in alerts], caption, "plain alerts")


def _row(tracked: Tracked, now: int) -> list[Any]:
    alert = tracked.alert
    worst = alert.members[0] if alert.members else None
    text = summary(tracked)
    shown = dcc.Link(text, href=link(f"/alert/{tracked.id}"), className="link row", title=headline(alert))
    return [
        html.Td(str(tracked.id), className="number dim only-wide"),
        html.Td(
            [shown, *(html.Div(text, className="dim hint") for text in (explain(alert), also(alert)) if text)],
            className="what",
        ),
        change_cell(worst.sense, amount(worst)) if worst else html.Td("–", className="number dim"),
        html.Td(status(tracked), className=f"nowrap {'strong' if tracked.state in ('new', 'reopened') else 'dim'}"),
        html.Td(age(alert.since or tracked.opened_at, now), className="number"),
        html.Td(str(len(alert.members) or "–"), className="number only-wide"),
        html.Td(alert.range if alert.after else "–", className="mono"),
        html.Td(alert.cause.kind if alert.members else "–", className="nowrap"),
        html.Td(alert.owner or "–", className="" if alert.owner else "dim"),
    ]


def summary(tracked: Tracked) -> str:
    """Return the text of an alert in the table of alerts: family, machine and worst series."""
    alert = tracked.alert
    if alert.topic == "silent":
        return alert.text
    return f"{location(alert)}: {alert.members[0].series.short_label if alert.members else alert.text}"
