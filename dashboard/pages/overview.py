"""The first page: what became slower since the reader's last visit, where, and every series at its newest commit."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import dash_mantine_components as dmc
import numpy as np
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboard.address import OverviewAddress
from dashboard.pages.controls import choice, folded, menu, search_field
from dashboard.pages.overview_answer import MOST_NEWS, NO_ALERTS, answer, elsewhere, news, since_when
from dashboard.pages.overview_choice import (
    TIME,
    Choice,
    chosen,
    label,
    measured_rows,
    newest_first,
    opening_machine,
    quantities,
    shown_quantity,
)
from dashboard.pages.overview_families import families
from dashboard.pages.overview_table import columns, grid, ordered, register_rows
from dashboard.pages.parts import commit_link, day, in_browser, loading, mono, problem_list, waiting
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.database.alert_row import now_ms
from lockstep.alerts.database.listing import OpenAlerts
from lockstep.alerts.pages_service import AlertService
from lockstep.compare.read_rows import newest_rows
from lockstep.compare.series_status import Statuses, reference, start_of, statuses
from lockstep.history.model import Commit
from lockstep.history.problem_tally import tally
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.history.store import Store

#: Maximum number of commits, and of dates, that the menu offers for comparison.
MOST_COMMITS, MOST_DATES = 300, 14

_CONTROLS = ("machine", "l2", "since", "quantity")

#: Keys of the address, and the values that it leaves out.
_KEYS = (*_CONTROLS, "search")
_USUAL = {"since": "visit", "quantity": TIME}


def layout(results: Results, address: OverviewAddress) -> Any:
    """Return the overview page of an address. A choice that the address leaves out gets its default."""
    machine = address.machine if address.machine in results.machines else opening_machine(results)
    quantity = shown_quantity(results, machine, address.quantity)
    l2s = _cache_states(results, machine)
    l2 = address.l2 if address.l2 in l2s else l2s[0]
    any_cache = any(_cache_states(results, name) != ["all"] for name in results.machines)
    controls = [
        menu("overview-machine", "Machine", newest_first(results), machine, className="machine"),
        menu(
            "overview-since",
            "Since",
            _sinces(results, machine, address.since),
            address.since or "visit",
            searchable=True,
            className="since",
        ),
        html.Div(
            menu("overview-quantity", "Quantity", _quantities(results, machine), quantity, className="quantity"),
            hidden=all(len(quantities(results, name)) < 2 for name in results.machines),
        ),
        choice("overview-l2", "L2", l2s, l2, hidden=not any_cache),
        search_field("overview-search", address.search),
        html.Div(
            dmc.Button("CSV", id="overview-csv", variant="default", size="sm"),
            className="buttons",
            title="Save the rows of the table as it is filtered",
        ),
    ]
    shown_columns = columns(measured_rows(results, machine, l2, quantity))
    return html.Main(
        [
            loading(html.Div([html.H1("Overview", className="visually-hidden"), waiting()], id="overview-said")),
            _unreadable(results),
            folded(controls),
            html.Div(waiting(), id="overview-cards"),
            grid(shown_columns, max(len(results.keys(name).keys) for name in results.machines)),
            html.P(id="overview-more", className="dim"),
            dcc.Store(id="overview-path", data={"path": OverviewAddress().link(), "keys": _KEYS, "usual": _USUAL}),
        ]
    )


def register(app: Dash, store: Store, findings: Findings, service: AlertService | None = None) -> None:
    """Add the callbacks that fill the overview page when a choice, the analysis or the results change."""

    @app.callback(
        Output("overview-said", "children"),
        Output("overview-cards", "children"),
        *(Input(f"overview-{name}", "value") for name in _CONTROLS),
        Input("visit", "data"),
        Input("version", "data"),
    )
    def fill(
        machine: str, l2: str, since: str, quantity: str, visit: int | None, _version: str | None
    ) -> tuple[Any, ...]:
        results = store.current()
        made = chosen(results, findings, machine, l2, quantity, since, visit)
        open_alerts = service.open_on(machine, MOST_NEWS) if service else NO_ALERTS
        muted = service.quiet_on(machine) if service else frozenset()
        trouble = [html.P(findings.trouble, className="warning", role="alert")] if findings.trouble else []
        return (
            [*trouble, *said(results, machine, since, visit or 0, findings, muted, open_alerts)],
            [*news(open_alerts, machine, now_ms()), drawn(results, made)],
        )

    @app.callback(
        Output("overview-since", "data"),
        Output("overview-l2", "data"),
        Output("overview-l2", "value"),
        Output("overview-quantity", "data"),
        Output("overview-quantity", "value"),
        Output("overview-grid", "columnDefs"),
        Input("overview-machine", "value"),
        Input("overview-l2", "value"),
        Input("overview-quantity", "value"),
        prevent_initial_call=True,
    )
    def choices(machine: str, l2: str, quantity: str) -> tuple[Any, ...]:
        results = store.current()
        if machine not in results.machines:
            raise PreventUpdate
        l2s, shown = _cache_states(results, machine), shown_quantity(results, machine, quantity)
        shown_l2 = l2 if l2 in l2s else l2s[0]
        return (
            *(_sinces(results, machine), l2s, shown_l2 if shown_l2 != l2 else no_update),
            *(_quantities(results, machine), shown if shown != quantity else no_update),
            columns(measured_rows(results, machine, shown_l2, shown)),
        )

    register_rows(app, store, findings)
    chosen_values = [Input(f"overview-{name}", "value") for name in _KEYS]
    path = State("overview-path", "data")
    in_browser(app, "address", Output("overview-path", "modified_timestamp"), *chosen_values, path)


@remembered
def drawn(results: Results, choice: Choice) -> Any:
    """Return the table of families, which is computed from all series of the choice."""
    return families(results, ordered(results, choice))


def statuses_of(results: Results, machine: str, since: str, visit: int, findings: Findings) -> Statuses:
    """Return the status of each series of a machine, of every quantity and in every cache state."""
    compared = reference(results, machine, since, visit)
    return statuses(results, machine, compared, findings.of_machine(results, machine), findings.thresholds)


def said(
    results: Results,
    machine: str,
    since: str,
    visit: int,
    findings: Findings,
    muted: frozenset[str] = frozenset(),
    alerts: OpenAlerts = NO_ALERTS,
) -> list[Any]:
    """Return the page's first lines: whether anything became slower, and what is compared with what.

    ``muted``: the keys of the changes of muted alerts; ``alerts``: the open ones, of all machines.
    """
    compared, machine_findings = reference(results, machine, since, visit), findings.of_machine(results, machine)
    if compared is None:
        return [html.H1(f"{machine} has no results.")]
    everything = statuses_of(results, machine, since, visit, findings)
    when = since_when(results, machine, since, visit, compared)
    newer = compared.hash != results.commits(machine)[-1].hash
    return [
        html.H1(answer(machine, everything, machine_findings, when, newer, muted, alerts), className="answer"),
        *elsewhere(alerts),
        html.P(_compared(results, machine, compared, everything), className="said dim"),
    ]


def _compared(results: Results, machine: str, compared: Commit, everything: Statuses) -> list[Any]:
    """Return the line below the answer: machine, newest commit, clock state, compared commit, series that ended."""
    commits, run = results.commits(machine), results.runs_of(machine)[-1]
    line = [mono(machine), " at ", commit_link(commits[-1], machine)]
    line += [f" · measured {day(run.measured_at)}"] if run.measured_at else []
    line += [" · clocks ", mono(run.clock_state)] if run.clock_state else []
    if compared.hash != commits[-1].hash:
        line += [" · compared with ", commit_link(compared, machine), f" {day(compared.date)}"]
    ended = everything.are("not measured")
    if ended.any():
        latest = commits[int(everything.rows.columns["commit"][ended].max())].short
        line.append(f" · {int(ended.sum())} series are not measured since, the last of them at {latest}")
    return line


@remembered
def _cache_states(results: Results, machine: str) -> list[str]:
    """Return the cache states in which the machine has numbers, and "all" if there are several or none."""
    rows = newest_rows(results, machine)
    measured = np.flatnonzero(~np.isnan(rows.column("latency")) | ~np.isnan(rows.column("value")))
    caches = sorted({key.l2 for key in rows.select(measured).keys} - {""})
    return caches if len(caches) == 1 else [*caches, "all"]


def _sinces(results: Results, machine: str, since: str = "") -> list[dict[str, str]]:
    """Return the menu of what the newest results are compared with: times, dates and commits, the newest first."""
    commits = results.commits(machine)[:-1][: -MOST_COMMITS - 1 : -1]
    dates = {day(run.measured_at or run.date): None for run in results.runs_of(machine)[: -MOST_COMMITS - 1 : -1]}
    if start_of(since) is not None:
        dates = dates | {since: None}
    fixed = {"visit": "last visit or 7 days", "7d": "7 days before the newest", "all": "the first commit"}
    named = {commit.hash: f"{commit.short} {day(commit.date)} {commit.subject}".strip() for commit in commits}
    days = ((date, datetime.fromisoformat(date)) for date in sorted(dates, reverse=True)[:MOST_DATES])
    dated = {date: f"before {begun:%a} {date}" for date, begun in days}
    return [{"value": value, "label": text} for value, text in (fixed | dated | named).items()]


def _quantities(results: Results, machine: str) -> list[dict[str, str]]:
    return [{"value": name, "label": label(name)} for name in quantities(results, machine)]


def _unreadable(results: Results) -> Any:
    """Return the folded list of files that could not be read; ``None`` if all could."""
    if not results.problems:
        return None
    summary = html.Summary("; ".join(tally(results).sentences()))
    return html.Details([summary, problem_list(results.problems)], className="trouble")
