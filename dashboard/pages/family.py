"""The page of a family on a machine: the trend of each shape, and the newest numbers of its variants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, dcc, html, no_update

from dashboard.address import FamilyAddress, SeriesAddress
from dashboard.charts.at_commit import accuracy, roofline, speedup_over_axes, sweep, sweep_axis
from dashboard.charts.axes import sourced
from dashboard.charts.lines_and_bands import Figure
from dashboard.charts.theme import Scheme, suite_styles, swatch
from dashboard.pages.controls import axis_choice, chips, choice, folded, menu, quantity_links
from dashboard.pages.family_trends import MOST_CASES, chosen, opened, printed, trends
from dashboard.pages.parts import (
    back_link,
    chart_card,
    commit_line,
    count,
    crumbs,
    graph,
    in_browser,
    loading,
    mono,
    not_on,
    table,
    waiting,
)
from lockstep.alerts.analysis.latest_findings import Findings, MachineFindings
from lockstep.compare.number_format import significant, whole
from lockstep.compare.read_rows import newest_rows, rows_at
from lockstep.compare.row import Row, described
from lockstep.compare.series_of_suite import keys_of
from lockstep.compare.shown_quantities import VALUE, quantities_of
from lockstep.history.display_names import natural
from lockstep.history.model import Commit, SeriesKey
from lockstep.history.snapshot import Results
from lockstep.history.store import Store

#: A chart of the newest commit (``None`` without numbers), its name, and what it shows.
_Chart = tuple[Figure | None, str, str]

_CONTROLS = ("cases", "l2", "quantities", "variants")

#: Keys of the address: those of the controls, the zoom and the axis.
_KEYS = ("case", "l2", "quantity", "variants", "zoom", "axis")

_HEAD = ("Case", "Variant", "Value", "Latency µs", "Speedup ×", "% of floor", "GB/s", "TFLOP/s", "MDE %", "State")


def layout(results: Results, address: FamilyAddress, findings: MachineFindings | None = None) -> Any:
    """Return the family page of an address. A choice that is left out or does not exist gets its default."""
    keys = keys_of(results, address.suite)
    machines = sorted({key.machine for key in keys})
    if address.machine not in machines:
        links = {machine: FamilyAddress(machine, address.suite).link() for machine in machines}
        return not_on(f"{address.suite} has no results on {address.machine}", links)
    shown = opened(results, address, findings)
    own = [key for key in keys if key.machine == address.machine]
    cases, caches = sorted({key.case for key in own} - {""}, key=natural), sorted({key.l2 for key in own})
    names = {name: described((), name, address.suite).label for name in quantities_of(results, address.suite)}
    styles = suite_styles(results, address.suite)
    legend = {variant: [swatch(style), variant or address.suite] for variant, style in styles.items()}
    controls = [
        menu("family-machine", "Machine", machines, address.machine, className="machine"),
        dmc.MultiSelect(
            id="family-cases",
            label="Cases",
            data=cases,
            value=shown.cases,
            maxValues=MOST_CASES,
            searchable=True,
            selectFirstOptionOnChange=True,
            clearable=False,
            className="cases filter",
        ),
        choice("family-l2", "L2", caches, shown.l2, hidden=len(caches) < 2),
        axis_choice("family-axis", address.axis),
        chips("family-quantities", "Show", names, shown.quantities),
        chips("family-variants", "Variants", legend, shown.variants, "variants"),
    ]
    path = FamilyAddress(address.machine, address.suite).link()
    return html.Main(
        [
            crumbs(address.suite, back_link()),
            *quantity_links(
                results,
                address.suite,
                address.machine,
                lambda machine, suite: replace(address, machine=machine, suite=suite, l2="", quantities=()).link(),
            ),
            dcc.Store(id="family-suite", data=address.suite),
            dcc.Store(id="family-zoom", data=address.zoom),
            dcc.Store(id="family-path", data={"path": path, "keys": _KEYS, "usual": {"axis": "order"}}),
            folded(controls),
            html.P(id="family-printed", className="printed"),
            html.H2("Over the commits"),
            loading(html.Div(waiting(), id="family-trend", className="charts")),
            html.H2("The newest numbers"),
            loading(html.Div(waiting(), id="family-latest")),
        ]
    )


def register(app: Dash, store: Store, findings: Findings) -> None:
    """Add the callbacks that draw a family's trends and newest numbers, and write the choices into the address."""
    chosen = [Input(f"family-{name}", "value") for name in _CONTROLS]
    view = Input("family-zoom", "data"), Input("family-axis", "value")
    inputs = [*chosen, *view, Input("colours", "data"), Input("version", "data")]
    of_page = State("family-machine", "value"), State("family-suite", "data")

    @app.callback(Output("family-trend", "children"), Output("family-printed", "children"), *inputs, *of_page)
    def draw(
        cases: list[str] | None,
        l2: str,
        quantities: list[str] | None,
        variants: list[str] | None,
        zoom: str | None,
        axis: str,
        scheme: Scheme | None,
        _: str | None,
        machine: str,
        suite: str,
    ) -> Any:
        if scheme is None:
            return no_update, no_update
        results, shown = store.current(), (tuple(quantities or ()), tuple(variants or ()), zoom or "")
        address = FamilyAddress(machine, suite, tuple(cases or ()), l2, *shown, axis)
        charts = trends(results, address, scheme, findings.of_machine(results, address.machine), findings.repo)
        return charts, printed(results, address)

    # A separate callback, because a zoom and a choice of quantities do not change the newest numbers.
    @app.callback(
        Output("family-latest", "children"),
        *(argument for argument in chosen if argument.component_id != "family-quantities"),
        Input("colours", "data"),
        Input("version", "data"),
        *of_page,
    )
    def list_newest(
        cases: list[str] | None,
        l2: str,
        variants: list[str] | None,
        scheme: Scheme | None,
        _: str | None,
        machine: str,
        suite: str,
    ) -> Any:
        address = FamilyAddress(machine, suite, tuple(cases or ()), l2, variants=tuple(variants or ()))
        return no_update if scheme is None else latest(store.current(), address, scheme)

    charts = Input({"type": "family-chart", "at": ALL}, "relayoutData")
    axis, zoom = Input("family-axis", "value"), State("family-zoom", "data")
    in_browser(app, "zoomed", Output("family-zoom", "data"), charts, axis, zoom)
    path = State("family-path", "data")
    in_browser(app, "address", Output("family-path", "modified_timestamp"), *chosen, *view, path)
    # Another machine has other cases, variants and quantities: its page is built anew.
    in_browser(app, "onMachine", Output("url", "href", allow_duplicate=True), Input("family-machine", "value"))


def latest(results: Results, address: FamilyAddress, scheme: Scheme) -> list[Any]:
    """Return charts and a table of the newest commit at which the suite was measured.

    The charts show latency, speedup and roofline of all shapes. The error and the table are of the selected cases.
    """
    keys, cases, style_of = chosen(results, address)
    commit = _newest(results, address.machine, keys)
    if commit is None or not style_of:
        return [html.P("Nothing to show: choose a variant and a cache state that was measured.", className="dim")]
    commit_rows = rows_at(results, address.machine, commit.hash)
    now = [row for row in map(commit_rows.get, keys) if row is not None]
    timed = [row for row in now if row.latency]
    swept = sweep_axis(sorted({row.case for row in timed}, key=natural), cases[0]) if cases else None
    drawn: list[_Chart] = []
    if swept:
        axis, swept_cases = swept
        chart = sweep([row for row in timed if row.case in swept_cases], axis, style_of, scheme)
        other_axes = ",".join(part for part in cases[0].split(",") if not part.startswith(f"{axis}="))
        floor = ", and the floor" if chart["layout"].get("annotations") else ""
        drawn.append((chart, other_axes, f"Latency µs against {axis}{floor}"))
        known = newest_rows(results, address.machine)
        places = [place for key in keys if (place := known.find(key)) >= 0 and not known.is_baseline[place]]
        words = "Speedup × of the fastest variant; each shape's newest number, perhaps of an older commit"
        drawn.append((speedup_over_axes([known[place] for place in places], axis, scheme), "shapes", words))
    errors = accuracy([row for row in timed if row.case in cases], style_of, scheme)
    drawn.append((errors, "accuracy", "Error of the selected cases against their latency"))
    run = next(run for run in results.runs_of(address.machine) if run.commit == commit.hash)
    words = "TFLOP/s against FLOP per byte; the roof is what this machine's controls reached"
    drawn.append((roofline(now, run.controls, style_of, scheme), "roofline", words))
    cards = [
        chart_card(
            graph(sourced(figure, address.machine, (commit,)), f"{name}: {words}"),
            *(mono(name), html.Span(words)),
            kind="tall",
        )
        for figure, name, words in drawn
        if figure
    ]
    listed = [row for row in now if row.case in cases and row.variant in style_of]
    # Series that are n/a end each case.
    rank = {name: at for at, name in enumerate(style_of)}
    listed.sort(key=lambda row: (cases.index(row.case), row.state == "na", rank[row.variant]))
    missing = [name for name in style_of if not any(row.variant == name for row in now)]
    note = html.P(f"Not measured at this commit: {', '.join(missing)}.", className="dim hint")
    return [
        html.P(commit_line(commit), className="said"),
        *([note] if missing and timed else []),
        html.Div(cards, className="charts"),
        table(_HEAD, [_cells(row) for row in listed], count(len(listed), "series"), "numbers"),
    ]


def _newest(results: Results, machine: str, keys: Iterable[SeriesKey]) -> Commit | None:
    """Return the newest commit at which one of these series has a point."""
    rows = newest_rows(results, machine)
    row_places = [row for key in keys if (row := rows.find(key)) >= 0]
    places = rows.columns["commit"][row_places].tolist()
    return results.commits(machine)[max(places)] if places else None


def _cells(row: Row) -> list[Any]:
    def number(quantity: str, formatted: Callable[[float], str], interval: bool = False) -> Any:
        measured = row.measured(quantity)
        if measured is None:
            return html.Td("–", className="number dim")
        text: list[Any] = [formatted(measured.value), " "]
        if interval:
            # The cell is added even if it is empty, so that the numbers of a column align.
            ends = measured.ends("–") if measured.low != measured.high else ""
            text.append(html.Span(ends, className="dim ends"))
        return html.Td(text, className="number")

    def linked(text: str) -> Any:
        return dcc.Link(text, href=SeriesAddress(*row.key).link(), className="link mono")

    # Benchmarks of other projects have no variants and no provenance, and may have no cases.
    state = "" if row.state == "bare" and not row.variant else row.label
    state += f": {row.reason}" if row.reason else ""
    return [
        html.Td(mono(row.case) if row.variant else linked(row.case or row.suite), className="shape"),
        html.Td(linked(row.variant) if row.variant else ""),
        number(VALUE, lambda value: f"{significant(value, 4) if value % 1 else whole(value)} {row.unit}".strip()),
        number("latency", partial(significant, count=4), interval=True),
        number("speedup", partial(significant, count=4), interval=True),
        number("floor", "{:.1f}".format),
        number("bandwidth", whole),
        number("compute", partial(significant, count=3)),
        html.Td("–" if row.mde is None else f"{100 * row.mde:.2f}", className="number" if row.mde else "number dim"),
        html.Td(state, className="failed" if row.state == "failed" else "dim"),
    ]
