"""The page of one series: every point, the detected changes, and the facts from which readers judge the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from dash import Dash, Input, Output, State, dcc, html, no_update

from dashboard.address import FamilyAddress, SeriesAddress, link
from dashboard.charts.axes import sourced, visible_range
from dashboard.charts.marks import change_colours
from dashboard.charts.series_figure import SeriesView, figure_height, series_figure
from dashboard.charts.theme import Scheme
from dashboard.pages.controls import axis_choice, choice, folded, quantity_links
from dashboard.pages.parts import (
    HINTS,
    back_link,
    chart_card,
    commit_link,
    crumbs,
    graph,
    in_browser,
    loading,
    mono,
    not_on,
    waiting,
)
from dashboard.pages.series_data import commit_table, offered_quantities, series_commands, view
from lockstep.alerts.analysis.latest_findings import Findings, MachineFindings
from lockstep.alerts.database.alert_row import Tracked
from lockstep.alerts.database.listing import Choice
from lockstep.alerts.model import FoundChange
from lockstep.alerts.pages_service import AlertService
from lockstep.alerts.text import amount, interval
from lockstep.compare.number_format import significant
from lockstep.compare.verdict import sign
from lockstep.detect import Analysis
from lockstep.detect.findings import Measure
from lockstep.history.model import Commit, Point, SeriesKey
from lockstep.history.snapshot import Results
from lockstep.history.store import Store
from lockstep.timing.intervals import detectable_by_error

#: Keys of the choices in the address.
_KEYS = ("quantity", "zoom", "axis")

#: Maximum number of alerts of one series that its page looks at.
MOST_ALERTS = 50


def layout(results: Results, address: SeriesAddress) -> Any:
    """Return the page of a series, or a notice with the machines that measured it if the address's machine did not."""
    key = address.key
    measured = sorted(name for name in results.machines if key._replace(machine=name) in results.keys(name).place)
    machines = {name: replace(address, machine=name).link() for name in measured}
    if key.machine not in machines:
        named = " ".join(part for part in (address.suite, address.variant, address.case, address.l2) if part)
        return not_on(f"{address.machine} has no series {named}", machines)
    offered = {quantity.name: quantity.label for quantity in offered_quantities(results, key)}
    href = FamilyAddress(address.machine, address.suite, (address.case,), address.l2).link()
    family = dcc.Link(address.suite, href=href, className="link mono")
    other_links = [
        part
        for machine, href in machines.items()
        if machine != address.machine
        for part in (", ", dcc.Link(machine, href=href, className="link mono"))
    ]
    name = " ".join(part for part in (address.variant, address.case, address.l2) if part)
    path = replace(address, quantity="", zoom="", axis="").link()
    return html.Main(
        [
            # A benchmark of another project may have no case: its family has one series.
            crumbs(name or address.suite, back_link(), *([family] if name else [])),
            html.P(
                ["on ", mono(address.machine), *(["; also on ", *other_links[1:]] if other_links else [])],
                className="said",
            ),
            *quantity_links(results, address.suite, address.machine, partial(_quantity_address, results, address)),
            dcc.Store(id="series-address", data=vars(address)),
            dcc.Store(id="series-zoom", data=address.zoom),
            dcc.Store(id="series-path", data={"path": path, "keys": _KEYS, "usual": {"axis": "order"}}),
            folded(
                [
                    choice("series-quantity", "Show", offered, address.quantity, hidden=len(offered) < 2),
                    axis_choice("series-axis", address.axis),
                ]
            ),
            loading(html.Div(waiting(), id="series-facts", className="facts")),
            chart_card(
                graph(None, f"{address.suite} {name} over the commits", id="series-chart"),
                html.Span("Each commit with its interval; dashed is the level between two changes"),
                kind="series",
            ),
            html.Div(id="series-found"),
            html.Div(id="series-reproduce"),
            html.H2("Commits"),
            html.Div(id="series-table"),
        ]
    )


def _quantity_address(results: Results, address: SeriesAddress, machine: str, suite: str) -> str:
    """Return the address of this variant and case for the quantity named ``suite``; "" if it was not measured."""
    # An exact quantity has no cache state.
    for l2 in (address.l2, "", "cold"):
        if SeriesKey(machine, suite, address.variant, address.case, l2) in results.keys(machine).place:
            return replace(address, machine=machine, suite=suite, l2=l2, quantity="").link()
    return ""


def register(app: Dash, store: Store, findings: Findings, service: AlertService | None = None) -> None:
    """Add the callbacks that draw the series page, follow the zoom, and write the choices into the address."""

    @app.callback(
        Output("series-chart", "figure"),
        Output("series-chart", "style"),
        Output("series-facts", "children"),
        Output("series-found", "children"),
        Output("series-reproduce", "children"),
        Output("series-table", "children"),
        Input("series-quantity", "value"),
        Input("series-zoom", "data"),
        Input("series-axis", "value"),
        Input("colours", "data"),
        Input("version", "data"),
        State("series-address", "data"),
    )
    def draw(
        quantity: str, zoom: str | None, axis: str, scheme: Scheme | None, version: str | None, stored: dict[str, Any]
    ) -> tuple[Any, ...]:
        if scheme is None:
            return (no_update,) * 6
        results = store.current()
        commits = results.commits(stored["machine"])
        visible = visible_range(zoom or "", axis, commits)
        address = SeriesAddress(**{**stored, "quantity": quantity})
        machine_findings = findings.of_machine(results, address.machine)
        shown = view(results, address, machine_findings)
        figure = sourced(series_figure(shown, scheme, visible), address.machine, commits, axis)
        return (
            figure,
            {"height": figure_height(figure)},
            facts(shown, machine_findings),
            changes(shown, _alerts_of(service, shown)),
            series_commands(results, shown, visible),
            commit_table(shown, visible),
        )

    axis = Input("series-axis", "value")
    zoomed = State("series-zoom", "data")
    in_browser(app, "zoomed", Output("series-zoom", "data"), Input("series-chart", "relayoutData"), axis, zoomed)
    chosen = Input("series-quantity", "value"), Input("series-zoom", "data"), axis
    in_browser(app, "address", Output("series-path", "modified_timestamp"), *chosen, State("series-path", "data"))


def facts(shown: SeriesView, machine_findings: MachineFindings | None) -> list[Any]:
    """Return the line above a series' chart: newest number, noise, smallest detectable change, check, points."""
    numbers = [(point, number) for point, number in shown.points if number is not None]
    facts: list[tuple[str, str, str]] = []
    if numbers:
        number = numbers[-1][1]
        newest = f"{significant(number.value, 4)} {shown.what.unit}"
        facts.append((f"Newest {shown.what.label.lower()}", newest, number.ends(" – ")))
    if shown.analysis:
        follows = shown.what.label.lower() if shown.follows == shown.what.name else shown.follows
        facts += _noise_facts(shown.analysis, follows)
    elif machine_findings is None:
        facts.append(("Noise", "…", "looking for changes"))
    if numbers and (mde := _mde(numbers[-1][0])) is not None:
        epochs = f"; it has {numbers[-1][0].epochs} epochs" if numbers[-1][0].epochs else ""
        facts.append(("MDE of one run", f"{100 * mde:.2f} %", f"5 % false alarms, 80 % power{epochs}"))
    if numbers and numbers[-1][0].check_error is not None:
        facts.append(_accuracy_fact(numbers[-1][0]))
    copies = sum(bool(point.same_work_as) for point, _ in numbers)
    notes = {"of the same work, not timed again": copies, "without a number": len(shown.points) - len(numbers)}
    facts.append(("Points", str(len(numbers)), "; ".join(f"{many} {note}" for note, many in notes.items() if many)))
    return [
        html.Div(
            [
                html.Span(label, className="card-label", title=HINTS.get(label)),
                html.Span(value, className="fact"),
                html.Span(note, className="dim"),
            ]
        )
        for label, value, note in facts
    ]


def _accuracy_fact(point: Point) -> tuple[str, str, str]:
    """Return the error of the newest check, and whether two calls gave the same bits."""
    row = "" if point.worst_row is None else f"worst row {point.worst_row:.1e}"
    same = {None: "", 0.0: "not deterministic", 1.0: "deterministic"}[point.deterministic]
    return "Error of the newest check", f"{point.check_error or 0.0:.1e}", ", ".join(filter(None, (row, same)))


def _noise_facts(analysis: Analysis, follows: str) -> list[tuple[str, str, str]]:
    noise = analysis.noise
    if math.isnan(noise.scale):
        return [("Noise", "–", f"too few points of the {follows} to tell")]
    return [
        ("Noise", _noise_text(noise.scale, noise.measure), f"run to run, of the {follows}"),
        ("MDE", _noise_text(analysis.mde, noise.measure), "detected within three commits"),
    ]


def _noise_text(noise: float, measure: Measure) -> str:
    """Format noise in per cent, or in the stored unit of a series whose changes are differences."""
    if not math.isfinite(noise):
        return "–"
    return f"{100 * noise:.2f} %" if measure == "ratio" else f"{noise:.3g}"


def _mde(point: Point) -> float | None:
    """Return the smallest effect that one run could detect: the recorded one, or one computed from the interval."""
    error = point.ratio_error or point.error
    if point.mde is not None or error is None or point.epochs < 2:
        return point.mde
    return detectable_by_error(error, point.epochs)


def _alerts_of(service: AlertService | None, shown: SeriesView) -> dict[str, int]:
    """Return the number of the alert of each change of a series, by the key of the change."""
    if service is None or not shown.changes:
        return {}
    choice = Choice(machine=shown.key.machine, search=shown.changes[0].series.label)
    nothing: list[Tracked] = []
    found = service.last.answer(choice, lambda: service.alerts.part(choice, MOST_ALERTS), nothing)
    return {member.key: tracked.id for tracked in found for member in tracked.alert.members}


def changes(shown: SeriesView, alerts: Mapping[str, int] = MappingProxyType({})) -> list[Any]:
    """Return the detected changes, newest first, each with its cause in a sentence and a link to its alert.

    ``alerts``: the number of the alert of each change, by the key of the change.
    """
    if not shown.changes:
        return []
    named = {commit.hash: commit for commit in shown.commits}
    lines = []
    for finding in reversed(shown.changes):
        size = f"{sign(finding.sense)} {amount(finding)}"
        ends, number = f" ({interval(finding)})", alerts.get(finding.key)
        told: list[Any] = []
        if number:
            told = [" · ", dcc.Link(f"alert {number}", href=link(f"/alert/{number}"), className="link")]
        lines.append(
            html.Li(
                [
                    html.Span(size, style={"color": f"light-dark({', '.join(change_colours(finding))})"}),
                    html.Span(f"{ends} ", className="dim"),
                    *_place(finding, named, shown.key.machine),
                    html.Span(f" · {finding.cause.kind}: {finding.cause.sentence}"),
                    *told,
                ]
            )
        )
    return [html.H2("Changes"), html.Ul(lines, className="news")]


def _place(finding: FoundChange, named: Mapping[str, Commit], machine: str) -> list[Any]:
    """Return the commit of a change; for several possible commits, their range as a link that compares its ends."""
    if finding.exact and finding.after in named:
        return [commit_link(named[finding.after], machine), f" {named[finding.after].subject}"]
    href = link("/compare", bm=machine, bc=finding.before, hm=machine, hc=finding.after)
    return ["in ", dcc.Link(finding.range_text, href=href, className="link mono")]
