"""The first page: what is loaded, and every series at the newest commit of a machine."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, html, no_update

from dashboard.address import FamilyAddress
from dashboard.pages.parts import commit_line, count, day, mono, notice, problem_list
from dashboard.results.names import natural
from dashboard.results.picture import Results
from dashboard.results.store import Store
from dashboard.rows import STATE_LABELS, Key, Row, is_shown, key_of, keys_of, newest, suite_of

#: Points of a row's sparkline: the newest commits.
SPARK = 24

_FIRST = {"failed": 0, "ok": 1, "bare": 1, "na": 2}


def layout(results: Results) -> Any:
    """The page."""
    keys = keys_of(results)
    if not keys:
        return _nothing(results)
    machine = _freshest(results)
    caches = sorted({l2 for *_, l2 in keys if l2})
    controls = [
        dmc.Select(
            id="overview-machine",
            label="Machine",
            data=list(results.machines),
            value=machine,
            allowDeselect=False,
            className="machine",
        ),
        html.Div(
            [
                html.Span("L2", className="label"),
                dmc.SegmentedControl(id="overview-l2", data=[*caches, "all"], value=caches[0] if caches else "all"),
            ],
            hidden=not caches,
        ),
        dmc.TextInput(id="overview-search", label="Search", placeholder="family, variant, shape …", debounce=150),
    ]
    return html.Main(
        [
            html.H1("Overview", className="visually-hidden"),
            _loaded(results, keys),
            html.Div(controls, className="controls"),
            html.Div(id="overview-said", className="said"),
            dag.AgGrid(
                id="overview-grid",
                columnDefs=_columns(results, keys),
                rowData=[],
                defaultColDef={"sortable": True, "filter": True, "resizable": True},
                getRowId="params.data.id",
                dashGridOptions={
                    "theme": {"function": "lockstepTheme(themeQuartz)"},
                    "rowHeight": 30,
                    "headerHeight": 34,
                    "tooltipShowDelay": 300,
                    "localeText": {"noRowsToShow": "No series here.", "noMatchingRows": "No series match."},
                    "enableCellTextSelection": True,
                },
                className="grid",
                style={"height": None},
            ),
        ]
    )


def register(app: Dash, store: Store) -> None:
    """Connect the page's controls."""

    @app.callback(
        Output("overview-grid", "rowData"),
        Output("overview-said", "children"),
        Input("overview-machine", "value"),
        Input("overview-l2", "value"),
    )
    def fill(machine: str, l2: str) -> tuple[list[dict[str, Any]], list[Any]]:
        results = store.current()
        return table(results, machine, l2), said(results, machine)

    @app.callback(
        Output("url", "href", allow_duplicate=True),
        Input("overview-grid", "cellClicked"),
        State("overview-grid", "rowData"),
        prevent_initial_call=True,
    )
    def open_family(clicked: dict[str, Any] | None, rows: list[dict[str, Any]]) -> Any:
        wanted = (clicked or {}).get("rowId")
        return next((row["href"] for row in rows if row["id"] == wanted), no_update)

    clientside: Any = app.clientside_callback
    clientside(
        ClientsideFunction("lockstep", "search"),
        Output("overview-grid", "dashGridOptions"),
        Input("overview-search", "value"),
        State("overview-grid", "dashGridOptions"),
        prevent_initial_call=True,
    )


def table(results: Results, machine: str, l2: str) -> list[dict[str, Any]]:
    """Rows of the grid: one a series at the machine's newest commit, as plain numbers in the columns' units."""
    found = newest(results, machine)
    if found is None:
        return []
    rows = [row for row in found[1] if l2 in ("all", row.l2, "")]
    past = _past(results, machine)
    # Shapes of which nothing runs on this machine (those for CPUs, say) come last; a failed one does not.
    there = {(row.suite, row.case, row.l2) for row in rows if row.state != "na"}
    rows.sort(key=lambda row: ((row.suite, row.case, row.l2) not in there, _order(row)))
    return [_cells(row, past[row.key]) for row in rows]


def said(results: Results, machine: str) -> list[Any]:
    """The line above the table: which commit, measured when and how, and what was not measured at it."""
    found = newest(results, machine)
    if found is None:
        return [f"{machine} has no results."]
    commit, rows = found
    measured = max((row.measured_at for row in rows), default=0)
    line = [mono(machine), " at ", mono(commit.short)]
    line.append(html.Span(f" · measured {day(measured)}" if measured else "", className="dim"))
    clocks = sorted({row.clock_state for row in rows if row.clock_state})
    if clocks:
        line.append(html.Span([" · clocks ", mono(", ".join(clocks))], className="dim"))
    missing = len(keys_of(results, machine)) - len(rows)
    if missing:
        line.append(html.Span(f" · {count(missing, 'series')} of this machine not measured at it", className="dim"))
    return line


def _loaded(results: Results, keys: frozenset[Key]) -> Any:
    numbers = [
        count(len(results.machines), "machine"),
        count(len(results.commits()), "commit"),
        count(len(keys), "series"),
    ]
    parts: list[Any] = [html.Span(" · ".join(numbers), className="strong"), " · newest "]
    parts += commit_line(results.commits()[-1])
    line = html.P(parts, className="loaded")
    if not results.problems:
        return line
    summary = html.Summary([count(len(results.problems), "problem"), " reading the results"])
    return html.Div([line, html.Details([summary, problem_list(results.problems)], className="trouble")])


def _nothing(results: Results) -> Any:
    folder = html.P(["Looked in ", mono(str(results.root)), "."])
    if any(problem.what != "does not exist" for problem in results.problems):
        return notice("None of the results can be read", folder, problem_list(results.problems))
    if results.series():
        what = f"{count(len(results.series()), 'series')} of other units are there; this page compares times."
        return notice("No times among the results", html.P(what), folder)
    run = html.P(["Measure the newest commit with ", html.Code("lockstep run HEAD"), " and reload this page."])
    return notice("Nothing measured yet", run, folder)


def _freshest(results: Results) -> str:
    """The machine with the newest commit; among several the first by name."""
    at = {commit.hash: index for index, commit in enumerate(results.commits())}
    return max(results.machines, key=lambda machine: at[results.commits(machine)[-1].hash])


def _order(row: Row) -> tuple[Any, ...]:
    """By shape; within one, what failed, then from the fastest to the slowest."""
    latency = row.latency.value if row.latency else 0.0
    return row.suite, natural(row.case), row.l2, _FIRST[row.state], latency, row.variant


def _past(results: Results, machine: str) -> dict[Key, list[float]]:
    """Latencies of every series in µs at the machine's last commits, oldest first."""
    latencies = (one for one in results.benchmarks.values() if is_shown(one) and one.quantity != "speedup")
    series = [series for one in latencies for series in results.series(machine=machine, benchmark=one.name)]
    past: dict[Key, list[float]] = defaultdict(list)
    for trend in results.trends(series, last=SPARK):
        values = trend.value[trend.value > 0] * 1e6
        past[key_of(trend.series, suite_of(trend.benchmark))] += [float(f"{value:.5g}") for value in values.tolist()]
    return past


def _cells(row: Row, past: list[float]) -> dict[str, Any]:
    numbers: dict[str, float | None] = {}
    for quantity in ("latency", "speedup", "bandwidth", "compute", "floor"):
        measured = row.measured(quantity)
        numbers[quantity] = measured.value if measured else None
        if quantity in ("latency", "speedup"):
            numbers[f"{quantity}_low"] = measured.low if measured else None
            numbers[f"{quantity}_high"] = measured.high if measured else None
    return {
        "id": "\n".join(row.key[1:]),
        "href": FamilyAddress(row.machine, row.suite, (row.case,), row.l2).link(),
        "family": row.suite,
        "variant": row.variant,
        "case": row.case,
        "l2": row.l2,
        "machine": row.machine,
        **numbers,
        "bound": row.bound,
        "mde": None if row.mde is None else 100 * row.mde,
        "state": STATE_LABELS[row.state],
        "why": ". ".join(part for part in (row.reason, row.note) if part),
        "trend": past,
    }


def _columns(results: Results, keys: frozenset[Key]) -> list[dict[str, Any]]:
    # 7.4 px a letter; the ends of two labels are what tells them apart.
    case_width = min(max(150, round(7.4 * max(len(case) for _, _, _, case, _ in keys)) + 24), 330)
    family_width = min(max(116, round(7.2 * max(len(suite) for _, suite, *_ in keys)) + 24), 220)

    has_speedup = any(one.quantity == "speedup" for one in results.benchmarks.values())
    has_costs = any(run.protocol for run in results.runs)

    def number(field: str, header: str, width: int, **more: Any) -> dict[str, Any]:
        # A plain asv project has latencies alone, and without provenance there are no costs.
        known = field == "latency" or (has_speedup if field == "speedup" else has_costs)
        column = {"field": field, "headerName": header, "width": width, "type": "rightAligned", "hide": not known}
        return column | {"filter": "agNumberColumnFilter", "cellClass": "number"} | more

    def shown(name: str) -> dict[str, str]:
        return {"function": f"{name}(params)"}

    def text(field: str, header: str, width: int, **more: Any) -> dict[str, Any]:
        return {"field": field, "headerName": header, "width": width, "filter": "agTextColumnFilter"} | more

    return [
        text("family", "Family", family_width, pinned="left", cellRenderer="SeriesLink"),
        text("variant", "Variant", 112, cellClass="mono"),
        text("case", "Case", case_width, cellClass="mono", comparator={"function": "byShape"}, tooltipField="case")
        | {"flex": 1, "minWidth": case_width},
        text("l2", "L2", 58, hide=not any(l2 for *_, l2 in keys)),
        number("latency", "Latency µs", 102, cellRenderer="Interval"),
        number("speedup", "Speedup ×", 150, cellRenderer="Interval"),
        number("floor", "% of floor", 112, cellRenderer="Floor"),
        number("bandwidth", "GB/s", 74, valueFormatter=shown("whole"), cellClassRules=_dim_unless("bandwidth")),
        number("compute", "TFLOP/s", 84, valueFormatter=shown("tenth"), cellClassRules=_dim_unless("compute")),
        number("mde", "MDE %", 72, valueFormatter=shown("hundredth")),
        {"field": "trend", "headerName": "Latency trend", "width": 118, "cellRenderer": "Spark"}
        | {"sortable": False, "filter": False, "cellDataType": False},
        text("state", "State", 136, cellRenderer="State", tooltipField="why"),
        text("machine", "Machine", 164, cellClass="mono dim"),
    ]


def _dim_unless(bound: str) -> dict[str, str]:
    """The rate that does not make the floor steps back; where neither is known to, none does."""
    return {"dim": f"params.data.bound && params.data.bound !== '{bound}'"}
