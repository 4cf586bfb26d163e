"""The first page: slowdowns since the reader's last visit, and every series at its newest commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
import numpy as np
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboard.address import OverviewAddress
from dashboard.charts.heatmap import MOST_SUITES, SHOWN, heat_style, heatmap
from dashboard.charts.theme import Scheme
from dashboard.pages.overview_cards import MOST_NEWS, alerts_card, counted, news
from dashboard.pages.overview_machine import apart_line, machine_line, opening_machine, scatter_line
from dashboard.pages.overview_rows import of_cache, register_rows
from dashboard.pages.overview_table import columns, table
from dashboard.pages.parts import (
    commit_line,
    commit_link,
    count,
    day,
    graph,
    in_browser,
    labelled,
    loading,
    mono,
    problem_list,
    waiting,
)
from dashboard.pages.series_grid import connect, grid
from lockstep.alerts.analysis.findings_files import MachineFindings
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.database.listing import OpenAlerts
from lockstep.alerts.pages_service import AlertService
from lockstep.compare.number_format import whole
from lockstep.compare.read_rows import newest_rows
from lockstep.compare.series_status import Statuses, reference
from lockstep.compare.verdict import SIGNS
from lockstep.history.model import Commit
from lockstep.history.problem_tally import tally
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds

#: Maximum number of commits that the menu offers for comparison.
MOST_COMMITS = 300

_CONTROLS = ("machine", "l2", "since", "show")


def layout(results: Results, address: OverviewAddress) -> Any:
    """Return the overview page of an address. A choice that the address leaves out gets its default."""
    requested = address.machine in results.machines
    machine = address.machine if requested else opening_machine(results)
    caches = sorted({key.l2 for name in results.machines for key in results.keys(name).keys} - {""})
    l2s = [*caches, "all"] if len(caches) > 1 else caches or ["all"]
    has_lockstep = any(benchmark.ours for benchmark in results.benchmarks.values())
    shown = [{"value": name, "label": label} for name, label in SHOWN.items() if has_lockstep or name == "change"]
    controls = [
        dmc.Select(
            id="overview-machine",
            label="Machine",
            data=list(results.machines),
            value=machine,
            allowDeselect=False,
            className="machine",
        ),
        dmc.Select(
            id="overview-since",
            label="Since",
            data=_sinces(results, machine),
            value=address.since or "visit",
            allowDeselect=False,
            searchable=True,
            className="since",
        ),
        labelled(
            "L2",
            dmc.SegmentedControl(
                id="overview-l2", data=l2s, value=address.l2 if address.l2 in l2s else _measured(results, machine, l2s)
            ),
            hidden=len(caches) < 2,
        ),
        labelled(
            "Heatmap",
            dmc.SegmentedControl(
                id="overview-show", data=shown, value=address.show if address.show in SHOWN else "change"
            ),
            hidden=len(shown) == 1,
        ),
        dmc.TextInput(
            id="overview-search",
            label="Search",
            placeholder="family, variant, shape …",
            value=address.search,
            debounce=150,
            className="filter",
        ),
        html.Div(
            [
                dmc.Button("CSV", id="overview-csv", variant="default", size="sm"),
                dmc.Button("Parquet", id="overview-parquet", variant="default", size="sm"),
            ],
            className="buttons",
            title="Download the table as it is filtered",
        ),
    ]
    heat = graph(None, "Families by shapes", id="overview-heat")
    return html.Main(
        [
            html.H1("Overview", className="visually-hidden"),
            _loaded(results),
            machine_line(results, machine, requested),
            apart_line(results, machine),
            html.Div(controls, className="controls"),
            html.Div(id="overview-said", className="said"),
            loading(html.Div(waiting(), id="overview-cards")),
            html.Figure(
                [html.Figcaption(waiting(), id="overview-heat-said"), heat],
                className="card heat",
                id="overview-heat-card",
            ),
            grid("overview-grid", columns(results, machine), _most(results), "No series here.", address.search),
            dcc.Store(id="overview-told"),
            dcc.Download(id="overview-file"),
        ]
    )


def register(app: Dash, store: Store, findings: Findings, service: AlertService | None = None) -> None:
    """Add the callbacks that fill the overview page when a choice, the analysis or the results change."""

    @app.callback(
        Output("overview-grid", "rowData"),
        Output("overview-told", "data"),
        Output("overview-said", "children"),
        Output("overview-cards", "children"),
        Output("overview-heat", "figure"),
        Output("overview-heat", "style"),
        Output("overview-heat-said", "children"),
        *(Input(f"overview-{name}", "value") for name in _CONTROLS),
        Input("visit", "data"),
        Input("colours", "data"),
        Input("version", "data"),
        State("overview-grid", "rowModelType"),
    )
    def fill(
        machine: str,
        l2: str,
        since: str,
        show: str,
        visit: int | None,
        scheme: Scheme | None,
        version: str | None,
        model: str | None,
    ) -> tuple[Any, ...]:
        results = store.current()
        machine_findings = findings.of_machine(results, machine)
        all_statuses = statuses_of(results, machine, l2, since, visit or 0, findings)
        open_alerts = service.open_on(machine, MOST_NEWS) if service else OpenAlerts((), {}, {})
        pending = machine_findings is None or findings.alerts_pending
        compared = reference(results, machine, since, visit or 0)
        cards, heat, suites = _drawn(
            results, machine, l2, compared, machine_findings, findings.thresholds, show, scheme or "light"
        )
        return (
            # The grid requests the rows of a long table, and must request them again.
            no_update if model == "infinite" else table(results, machine, all_statuses),
            f"{machine} {l2} {since} {version}",
            [
                *_trouble(findings),
                *overview_line(results, machine, since, visit or 0, all_statuses),
                *scatter_line(machine, machine_findings),
            ],
            [
                html.Div([alerts_card(machine, open_alerts, pending), *cards], className="cards"),
                *news(results, open_alerts),
            ],
            heat,
            heat_style(heat),
            _heat_words(show, suites),
        )

    @app.callback(
        Output("overview-since", "data"),
        Output("overview-grid", "columnDefs"),
        Input("overview-machine", "value"),
        prevent_initial_call=True,
    )
    def choices(machine: str) -> tuple[list[Any], list[Any]]:
        results = store.current()
        if machine not in results.machines:
            raise PreventUpdate
        return _sinces(results, machine), columns(results, machine)

    register_rows(app, store, findings)
    connect(app, "overview")
    in_browser(app, "openCell", Output("url", "href", allow_duplicate=True), Input("overview-heat", "clickData"))
    in_browser(
        app,
        "overviewLink",
        Output("overview-heat-card", "data-link"),
        *(Input(f"overview-{name}", "value") for name in (*_CONTROLS, "search")),
    )


def statuses_of(results: Results, machine: str, l2: str, since: str, visit: int, findings: Findings) -> Statuses:
    """Return the status of each series of a machine in the cache state ``l2``, or in every cache state for "all"."""
    compared = reference(results, machine, since, visit)
    return of_cache(results, machine, l2, compared, findings.of_machine(results, machine), findings.thresholds)


@remembered
def _drawn(
    results: Results,
    machine: str,
    l2: str,
    since: Commit | None,
    machine_findings: MachineFindings | None,
    thresholds: Thresholds,
    show: str,
    scheme: Scheme,
) -> tuple[list[Any], dict[str, Any], int]:
    """Return what is computed from all series: the cards that count series, the heatmap, and the number of families."""
    all_statuses = of_cache(results, machine, l2, since, machine_findings, thresholds)
    suites = np.unique(all_statuses.rows.series_keys.suite[all_statuses.rows.columns["key"]])
    return counted(all_statuses, machine_findings), heatmap(all_statuses, show, scheme), len(suites)


def _most(results: Results) -> int:
    """Return the largest number of table rows (variant, case and cache state) that a machine has."""
    return max(len(results.keys(machine).keys) for machine in results.machines)


def _measured(results: Results, machine: str, l2s: Sequence[str]) -> str:
    """Return the first cache state for which the machine has numbers. A CPU has no cold numbers."""
    if len(l2s) == 1:
        return l2s[0]
    rows = newest_rows(results, machine)
    measured = np.flatnonzero(~np.isnan(rows.column("latency")) | ~np.isnan(rows.column("value")))
    cache_states = {key.l2 for key in rows.select(measured).keys}
    return next((l2 for l2 in l2s if l2 in cache_states), l2s[0])


def overview_line(
    results: Results, machine: str, since: str = "all", visit: int = 0, all_statuses: Statuses | None = None
) -> list[Any]:
    """Return the line above the overview's table.

    The line states the newest commit, its date and clock state, the commit compared with, and the number of series that
    are missing.
    """
    commits = results.commits(machine)
    if not commits:
        return [f"{machine} has no results."]
    run = results.runs_of(machine)[-1]
    line = [mono(machine), " at ", commit_link(commits[-1], machine)]
    line.append(html.Span(f" · measured {day(run.measured_at)}" if run.measured_at else "", className="dim"))
    if run.clock_state:
        line.append(html.Span([" · clocks ", mono(run.clock_state)], className="dim"))
    compared = reference(results, machine, since, visit)
    if compared and compared.hash != commits[-1].hash:
        line += [html.Span(" · compared with ", className="dim"), commit_link(compared, machine)]
        first = " (your first visit: 7 days before the newest)" if since == "visit" and not visit else ""
        line.append(html.Span(f" {day(compared.date)}{first}", className="dim"))
    elif compared:
        line.append(html.Span(" · nothing measured since", className="dim"))
    if all_statuses is None:
        return line
    absent, ended = int(all_statuses.absent.sum()), all_statuses.are("not measured")
    if ended.any() and compared:
        latest = commits[int(all_statuses.rows.columns["commit"][ended].max())].short
        text = f" · {int(ended.sum())} series are not measured since, the last of them at {latest}"
        line.append(html.Span(text, className="dim"))
    if absent:
        line.append(html.Span(f" · {absent} series that this machine cannot measure are not listed", className="dim"))
    return line


def _trouble(findings: Findings) -> list[Any]:
    """Return a warning if the analysis fails or is stale."""
    return [html.P(findings.trouble, className="warning", role="alert")] if findings.trouble else []


def _heat_words(show: str, suites: int) -> list[Any]:
    words = {
        "change": "Each cell is a shape and shows the variant that changed most. Orange: slower; blue: faster; full "
        f"colour at ±23 % or more; no colour: within the noise. {SIGNS['slower']} {SIGNS['faster']}: confirmed; "
        f"{SIGNS['unsure']}: not confirmed; ·: new; {SIGNS['not measured']}: no longer measured.",
        "speedup": "Speedup of the best variant over the baseline: blue faster, orange slower, full colour at 2×, no "
        "colour where the interval holds 1",
        "floor": "Floor ÷ time of the best variant in %: 100 is the hardware's limit",
    }
    right = "shapes small → large"
    if suites > MOST_SUITES:
        right = f"{MOST_SUITES} of {whole(suites)} families, those that changed most; {right}"
    return [html.Span(words[show]), html.Span(right, className="dim")]


def _sinces(results: Results, machine: str) -> list[dict[str, str]]:
    commits = results.commits(machine)[:-1][: -MOST_COMMITS - 1 : -1]
    fixed = {"visit": "your last visit, or 7 days", "7d": "7 days before the newest", "all": "the first commit"}
    named = {commit.hash: f"{commit.short} {day(commit.date)} {commit.subject}".strip() for commit in commits}
    return [{"value": value, "label": label} for value, label in (fixed | named).items()]


def _loaded(results: Results) -> Any:
    numbers = [
        count(len(results.machines), "machine"),
        count(len(results.commits()), "commit"),
        count(sum(len(results.keys(name).keys) for name in results.machines), "series"),
    ]
    parts: list[Any] = [html.Span(" · ".join(numbers), className="strong"), " · newest "]
    parts += commit_line(results.commits()[-1])
    lines = [html.P(parts, className="loaded")]
    if results.line_note:
        lines.append(html.P(results.line_note, className="said dim"))
    if not results.problems:
        return html.Div(lines)
    summary = html.Summary("; ".join(tally(results).sentences()))
    return html.Div([*lines, html.Details([summary, problem_list(results.problems)], className="trouble")])
