"""The page of a family on a machine: the trend of each shape, and the newest numbers of its variants."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import dash_mantine_components as dmc
import numpy as np
from dash import ALL, Dash, Input, Output, State, dcc, html, no_update

from dashboard.address import FamilyAddress, zoom_of, zoom_text
from dashboard.charts.apart import Apart
from dashboard.charts.by_date import by_date, in_order
from dashboard.charts.change_marks import marks
from dashboard.charts.cost_against_latency import against
from dashboard.charts.roofline import roofline
from dashboard.charts.size_sweep import sweep, sweep_axis
from dashboard.charts.theme import Scheme, Style
from dashboard.charts.trend import MARKED, commit_line, trend
from dashboard.charts.variant_styles import suite_styles, swatch
from dashboard.pages.controls import axis_choice, chips, choice, menu
from dashboard.pages.default_cases import first_cache, first_cases
from dashboard.pages.family_table import family_table
from dashboard.pages.parts import back_link, graph, in_browser, loading, mono, notice, waiting
from dashboard.pages.parts import commit_line as commit_words
from dashboard.pages.quantity_links import quantity_links
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.analysis.machine_findings import MachineFindings
from lockstep.compare.read_rows import newest_rows, rows_at, rows_over
from lockstep.compare.row import Row, described
from lockstep.compare.row_table import RowTable
from lockstep.compare.series_of_suite import keys_of
from lockstep.compare.series_status import checks_of, reported_changes
from lockstep.compare.shown_quantities import VALUE, quantities_of
from lockstep.history.display_names import natural
from lockstep.history.model import Commit, SeriesKey
from lockstep.history.snapshot import Results
from lockstep.history.store import Store

#: Maximum number of cases drawn at once; a chart takes the browser about 10 ms.
MOST_CASES = 20

#: Width in pixels of a long trend: with another trend in its row, and alone.
_COLUMNS, _COLUMNS_ALONE = 400, 800

#: Number of points on a page above which its trends are thinned out.
LONG = 3_000


_CONTROLS = ("machine", "cases", "l2", "quantities", "variants")


def layout(results: Results, address: FamilyAddress) -> Any:
    """Return the family page of an address. A choice that is left out or does not exist gets its default."""
    keys = keys_of(results, address.suite)
    machines = sorted({machine for machine, *_ in keys})
    if address.machine not in machines:
        links = [
            html.Li(dcc.Link(machine, href=FamilyAddress(machine, address.suite).link(), className="link mono"))
            for machine in machines
        ]
        other_machines = [html.P("Machines that measured this family:"), html.Ul(links)] if machines else []
        return notice(f"{address.suite} has no results on {address.machine}", *other_machines, html.P(back_link()))
    cases = sorted({case for _, _, _, case, _ in keys}, key=natural)
    caches = sorted({l2 for *_, l2 in keys})
    l2 = (
        address.l2
        if address.l2 in caches
        else first_cache(results, address.machine, address.suite, address.cases, caches)
    )
    style_of = suite_styles(results, address.suite)
    quantities = quantities_of(results, address.suite)
    names = {quantity: described((), quantity, address.suite).label for quantity in quantities}
    legend = {variant: [swatch(style), variant or address.suite] for variant, style in style_of.items()}
    controls = [
        menu("family-machine", "Machine", machines, address.machine, className="machine"),
        dmc.MultiSelect(
            id="family-cases",
            label="Cases",
            data=[case for case in cases if case],
            value=_existing(address.cases, cases) or first_cases(results, address.machine, address.suite, l2, cases),
            maxValues=MOST_CASES,
            searchable=True,
            clearable=False,
            className="cases filter",
        ),
        choice("family-l2", "L2", caches, l2, hidden=len(caches) < 2),
        axis_choice("family-axis", address.axis),
        chips(
            "family-quantities",
            "Show",
            names,
            _existing(address.quantities, quantities) or _usual(results, address.suite),
        ),
        chips(
            "family-variants",
            "Variants",
            legend,
            _existing(address.variants, list(style_of)) or list(style_of),
            "variants",
        ),
    ]
    return html.Main(
        [
            html.Div([back_link(), html.Span(" / "), html.H1(address.suite, className="mono")], className="crumbs"),
            *quantity_links(
                results,
                address.suite,
                address.machine,
                lambda machine, suite: replace(address, machine=machine, suite=suite, l2="", quantities=()).link(),
            ),
            dcc.Store(id="family-suite", data=address.suite),
            dcc.Store(id="family-zoom", data=zoom_text(address.zoom)),
            html.Div(controls, className="controls"),
            html.H2("Over the commits"),
            loading(html.Div(waiting(), id="family-trend", className="charts")),
            html.H2("At the newest commit"),
            loading(html.Div(waiting(), id="family-latest")),
        ]
    )


def register(app: Dash, store: Store, findings: Findings) -> None:
    """Add the callbacks that draw a family's trends and newest numbers, and write the choices into the address."""
    chosen = [Input(f"family-{name}", "value") for name in _CONTROLS]
    view = Input("family-zoom", "data"), Input("family-axis", "value")
    inputs = [*chosen, *view, Input("colours", "data"), Input("version", "data")]

    @app.callback(Output("family-trend", "children"), *inputs, State("family-suite", "data"))
    def draw(
        machine: str,
        cases: list[str] | None,
        l2: str,
        quantities: list[str] | None,
        variants: list[str] | None,
        zoom: str | None,
        axis: str,
        scheme: Scheme | None,
        _: str | None,
        suite: str,
    ) -> Any:
        if scheme is None:
            return no_update
        results, address = store.current(), _address(suite, machine, cases, l2, quantities, variants, zoom, axis)
        return trends(results, address, scheme, findings.of_machine(results, address.machine))

    # A separate callback, because a zoom and a choice of quantities do not change the newest numbers.
    @app.callback(
        Output("family-latest", "children"),
        *(argument for argument in chosen if argument.component_id != "family-quantities"),
        Input("colours", "data"),
        Input("version", "data"),
        State("family-suite", "data"),
    )
    def list_newest(
        machine: str,
        cases: list[str] | None,
        l2: str,
        variants: list[str] | None,
        scheme: Scheme | None,
        _: str | None,
        suite: str,
    ) -> Any:
        address = _address(suite, machine, cases, l2, (), variants)
        return no_update if scheme is None else latest(store.current(), address, scheme)

    charts = Input({"type": "family-chart", "at": ALL}, "relayoutData")
    in_browser(
        app,
        "zoomed",
        Output("family-zoom", "data"),
        charts,
        Input("family-machine", "value"),
        Input("family-axis", "value"),
        State("family-zoom", "data"),
    )
    suite = State("family-suite", "data")
    in_browser(app, "permalink", Output("family-suite", "modified_timestamp"), *chosen, *view, suite)


def _address(
    suite: str,
    machine: str,
    cases: Sequence[str] | None,
    l2: str,
    quantities: Sequence[str] | None,
    variants: Sequence[str] | None,
    zoom: str | None = "",
    axis: str = "",
) -> FamilyAddress:
    """Return the address that restores the values of the family page's controls. An empty control is ``None``."""
    shown = {"quantities": tuple(quantities or ()), "variants": tuple(variants or ())}
    return FamilyAddress(machine, suite, tuple(cases or ()), l2, **shown, zoom=zoom_of(zoom or ""), axis=axis)


def trends(
    results: Results, address: FamilyAddress, scheme: Scheme, machine_findings: MachineFindings | None = None
) -> list[Any]:
    """Return a chart for each selected case and quantity, with the detected changes."""
    keys, style_of = _chosen(results, address)
    commits = results.commits(address.machine)
    if not style_of or not address.quantities:
        return [html.P("Choose a variant and a quantity.", className="dim")]
    cases = _cases(address, keys)
    shown = [key for key in keys if key[3] in cases and key[2] in style_of]
    long = len(commits) > MARKED or len(shown) * len(commits) > LONG
    rows = rows_over(results, address.machine, shown, address.quantities if long else None)
    apart_rows = rows_over(results, address.machine, shown, address.quantities if long else None, apart=True)
    place = {commit.hash: at for at, commit in enumerate(commits)}
    zoom = in_order(address.zoom, commits) if address.axis == "date" else address.zoom
    columns = _COLUMNS_ALONE if len(cases) * len(address.quantities) == 1 else _COLUMNS
    charts: list[Any] = []
    for case in cases:
        own_keys = [key for key in shown if key.case == case]
        case_rows = rows.of(own_keys)
        changes = [
            (key.variant, change) for key in own_keys for change in reported_changes(results, key, machine_findings)
        ]
        marks_of = dict.fromkeys(address.quantities, marks(changes, commits, place, scheme))
        if "error" in marks_of:
            checks = [(key.variant, change) for key in own_keys for change in checks_of(key, machine_findings)]
            marks_of["error"] = marks(checks, commits, place, scheme)
        for name in address.quantities:
            measured = case_rows.select(np.flatnonzero(~np.isnan(case_rows.measured(name))))
            quantity = described(measured[:1], name)
            heading = [mono(case), f"{quantity.label} {quantity.unit}".replace("% of floor %", "% of floor")]
            figure = None
            if len(measured):
                figure = trend(
                    case_rows,
                    commits,
                    quantity,
                    style_of,
                    scheme,
                    marks_of[name],
                    zoom,
                    columns if long else 0,
                    _apart(results, address.machine, apart_rows.of(own_keys), name),
                )
            chart: Any
            if figure is not None:
                figure = by_date(figure, commits) if address.axis == "date" else figure
                identity = {"type": "family-chart", "at": len(charts)}
                chart = graph(figure, f"{quantity.label} of {case} over the commits", id=identity)
            else:
                chart = html.P("No number at any commit.", className="dim empty")
            charts.append(html.Figure([html.Figcaption(heading), chart], className="card"))
    return charts


def _apart(results: Results, machine: str, rows: RowTable, quantity: str) -> dict[str, list[Apart]]:
    """Return the numbers of a quantity at the commits off the line, by variant."""
    commits = (*results.commits(machine), *results.apart(machine))
    of_variant: dict[str, list[Apart]] = defaultdict(list)
    values, at = rows.measured(quantity).tolist(), rows.columns["commit"].tolist()
    for key, value, index in zip(rows.columns["key"].tolist(), values, at, strict=True):
        place = results.place_of(machine, commits[index].hash)
        if place >= 0 and not math.isnan(value):
            variant = rows.series_keys.keys[key].variant
            of_variant[variant].append(Apart(place, value, commit_line(commits[index])))
    return of_variant


def latest(results: Results, address: FamilyAddress, scheme: Scheme) -> list[Any]:
    """Return charts and a table of the newest commit at which the suite was measured.

    The charts show all shapes: latency, a cost against latency, the roofline. The table shows the selected cases.
    """
    keys, style_of = _chosen(results, address)
    commit = _newest(results, address.machine, keys)
    if commit is None or not style_of:
        return [html.P("Nothing to show: choose a variant and a cache state that was measured.", className="dim")]
    commit_rows = rows_at(results, address.machine, commit.hash)
    now = [row for row in map(commit_rows.get, keys) if row is not None]
    cases = _cases(address, keys)
    parts: list[Any] = [html.P(commit_words(commit), className="said")]
    timed = [row for row in now if row.latency]
    swept = sweep_axis(sorted({row.case for row in timed}, key=natural), cases[0]) if cases else None
    if swept:
        axis, swept_cases = swept
        chart = sweep([row for row in timed if row.case in swept_cases], axis, style_of, scheme)
        other_axes = ",".join(part for part in cases[0].split(",") if not part.startswith(f"{axis}="))
        heading = [
            mono(other_axes),
            html.Span(f"Latency µs against {axis}" + (", and the floor" if chart["layout"].get("annotations") else "")),
        ]
        label = f"Latency against {axis} at the newest commit"
        parts.append(html.Figure([html.Figcaption(heading), graph(chart, label)], className="card tall"))
    parts += _against_latency(results, address.suite, commit_rows, now, style_of, scheme)
    run = next(run for run in results.runs_of(address.machine) if run.commit == commit.hash)
    roof = roofline(now, run.controls, style_of, scheme)
    if roof:
        words = "TFLOP/s of every shape against its FLOP per byte; the roof is what this machine's controls reached"
        box = graph(roof, "Roofline at the newest commit")
        parts.append(html.Figure([html.Figcaption([mono("roofline"), html.Span(words)]), box], className="card tall"))
    parts.append(
        family_table([row for row in now if row.case in cases and row.variant in style_of], cases, list(style_of))
    )
    return parts


def _against_latency(
    results: Results,
    suite: str,
    commit_rows: RowTable,
    now: Sequence[Row],
    style_of: Mapping[str, Style],
    scheme: Scheme,
) -> list[Any]:
    """Return the chart of a cost (such as energy) over the latency of the same cases; [] for a suite of latencies."""
    benchmark = results.benchmarks.get(suite)
    if benchmark is None or not benchmark.cost:
        return []
    timed = ((row, commit_rows.get(row.key._replace(suite=benchmark.suite))) for row in now)
    quantity = described(now, VALUE, suite)
    chart = against([(row, time) for row, time in timed if time is not None], quantity, style_of, scheme)
    if chart is None:
        return []
    words = f"{quantity.label} {quantity.unit} of every shape against its latency"
    words += "; dotted is where the two are equal" if quantity.unit == "µs" else ""
    box = graph(chart, f"{quantity.label} against latency at the newest commit")
    return [html.Figure([html.Figcaption([mono(quantity.label), html.Span(words)]), box], className="card tall")]


def _chosen(results: Results, address: FamilyAddress) -> tuple[list[SeriesKey], dict[str, Style]]:
    """Return the keys of the machine, suite and cache state, and the styles of the selected variants."""
    style_of = {
        variant: style for variant, style in suite_styles(results, address.suite).items() if variant in address.variants
    }
    return [key for key in keys_of(results, address.suite, address.machine) if key.l2 == address.l2], style_of


def _newest(results: Results, machine: str, keys: Iterable[SeriesKey]) -> Commit | None:
    """Return the newest commit at which one of these series has a point."""
    rows = newest_rows(results, machine)
    row_places = [row for key in keys if (row := rows.find(key)) >= 0]
    places = rows.columns["commit"][row_places].tolist()
    return results.commits(machine)[max(places)] if places else None


def _cases(address: FamilyAddress, keys: Iterable[SeriesKey]) -> list[str]:
    """Return the selected cases. A benchmark without parameters has one case "", which needs no selection."""
    existing = {case for _, _, _, case, _ in keys}
    return [""] if existing == {""} else [case for case in address.cases[:MOST_CASES] if case in existing]


def _usual(results: Results, suite: str) -> list[str]:
    quantities = quantities_of(results, suite)
    return ["latency", "speedup"] if "speedup" in quantities else list(quantities[:1])


def _existing(requested: Sequence[str], existing: Sequence[str]) -> list[str]:
    return [name for name in requested if name in existing]
