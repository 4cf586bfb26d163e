"""The page of one alert: what became slower, why, since which commit, and what people did about it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from dash import Dash, Input, Output, State, ctx, dcc, html, no_update
from werkzeug.exceptions import BadRequest

from dashboard.address import SeriesAddress, link
from dashboard.auth.request_checks import RequestSecurity, WriteError
from dashboard.charts.axes import sourced
from dashboard.charts.lines_and_bands import Figure
from dashboard.charts.series_figure import before_and_after, figure_height, series_figure
from dashboard.charts.theme import NEUTRAL, Scheme
from dashboard.pages.alert_actions import ACTIONS, WITH_REASON, do, form
from dashboard.pages.alert_story import next_steps, register_source, since, time_beside, why
from dashboard.pages.parts import back_link, change_cell, chart_card, count, day, graph, mono, notice, table, waiting
from dashboard.pages.series_data import view
from lockstep.alerts.alert_ranking import confidence
from lockstep.alerts.analysis.latest_findings import Findings, MachineFindings
from lockstep.alerts.analysis.machine_results import series_by_name
from lockstep.alerts.database.alert_row import Event, NoSuchAlert, Tracked
from lockstep.alerts.database.states_and_actions import ENDINGS, LifecycleError, possible
from lockstep.alerts.model import Alert, FoundChange
from lockstep.alerts.pages_service import AlertService
from lockstep.alerts.story import tell
from lockstep.alerts.text import amount, by, interval, left, location, status
from lockstep.compare.series_status import keys_by_name
from lockstep.history.model import SeriesKey
from lockstep.history.snapshot import Results
from lockstep.history.store import Store
from lockstep.record.series_name import SeriesName

#: Maximum number of listed series.
MOST_SERIES = 100

#: Number of commits that the chart shows before the range.
_BEFORE = 60

_HEAD = ("Series", "Change", "95 % interval", "Still", "Last 3", "Sure", "Cause", "Quantity")


def layout(service: AlertService | None, security: RequestSecurity, number: str) -> tuple[Any, str]:
    """Return the page of an alert, and its title. ``number`` is the alert's number as text, from the address."""
    back = back_link("Alerts", "/alerts")
    if service is None or not number.isdecimal() or len(number) > 9:
        return notice("There is no such alert", html.P(back)), ""
    try:
        tracked = service.alerts.alert(int(number))
    except NoSuchAlert:
        return notice(f"There is no alert {number}", html.P(back)), ""
    parts = [
        html.Div([back, html.Span("/"), html.Span(f"No. {tracked.id}")], className="crumbs"),
        dcc.Store(id="alert-number", data=tracked.id),
        html.Div(waiting(), id="alert-body"),
        html.H2("Act", hidden=not security.who),
        form(security),
        html.Div(id="alert-log"),
    ]
    return html.Main(parts), f"No. {tracked.id} {location(tracked.alert)}"


def register(app: Dash, store: Store, findings: Findings, service: AlertService, security: RequestSecurity) -> None:
    """Add the callbacks that fill an alert's page, and that act on the alert when a button is pressed."""

    @app.callback(
        Output("alert-body", "children"),
        Output("alert-log", "children"),
        *[Output(f"alert-{name}", "disabled") for name in ACTIONS],
        Input("version", "data"),
        Input("alert-said", "children"),
        Input("colours", "data"),
        State("alert-number", "data"),
    )
    def fill(_version: str | None, _message: str, scheme: Scheme | None, number: int) -> Any:
        if scheme is None:
            return (no_update,) * (2 + len(ACTIONS))
        results = store.current()
        tracked, events = service.alerts.alert(number), service.alerts.log(number)
        can = possible(tracked.state) | (ENDINGS.keys() if "resolve" in possible(tracked.state) else set())
        return (
            body(
                tracked,
                results,
                scheme,
                findings.of_machine(results, tracked.alert.machine),
                same_step=service.alerts.same_step(tracked),
            ),
            history(events),
            *(name not in can for name in ACTIONS),
        )

    register_source(app, findings, service)

    @app.callback(
        Output("alert-said", "children"),
        Output("alert-because", "value"),
        Output("alert-because", "error"),
        *[Input(f"alert-{name}", "n_clicks") for name in (*ACTIONS, "comment")],
        State("alert-because", "value"),
        State("alert-until", "value"),
        State("alert-number", "data"),
        prevent_initial_call=True,
    )
    def act(*arguments: Any) -> Any:
        because, until, number = arguments[-3:]
        if not (isinstance(because, str | None) and isinstance(until, str | None) and type(number) is int):
            raise BadRequest("A reason and a date are texts, and the number of an alert is a whole number.")
        action = str(ctx.triggered_id).removeprefix("alert-")
        try:
            said = do(store.current(), service, security.writer(), number, action, because or "", until or "")
            return said, "", ""
        except (LifecycleError, NoSuchAlert, WriteError) as error:
            # The rest of the message describes the command line.
            said = str(error).partition(": --")[0]
            missing = action in WITH_REASON and not (because or "").strip()
            return said, no_update, "Write it here." if missing else ""


def body(
    tracked: Tracked,
    results: Results,
    scheme: Scheme,
    findings: MachineFindings | None = None,
    source: bool = True,
    same_step: Sequence[Tracked] = (),
) -> list[Any]:
    """Return the story of an alert: what, since when, why, who, what next, and the chart.

    Args:
        findings: the machine's findings, which know the other steps of the series; ``None`` while they are unknown.
        source: whether a server can answer with the source before and after.
        same_step: the other alerts that show the same step.
    """
    alert, story = tracked.alert, tell(tracked.alert, tracked.id)
    facts: list[tuple[str, Any]] = [
        ("State", html.Span(status(tracked), className="strong" if tracked.open else "")),
        ("Loss", story.lost),
        ("Time", time_beside(results, alert)),
        ("95 % interval", story.interval),
        ("Measured", story.measured),
        ("Best", [html.Code(text) if at % 2 else text for at, text in enumerate(story.best.split("`")) if text]),
        ("Last measured", _last_measured(results, alert)),
        ("Excused", alert.waiver.because if alert.waiver else ""),
        ("Same step", [part for other in same_step for part in _beside(other, alert)][1:]),
    ]
    listed = [part for name, content in facts if content for part in (html.Dt(name), html.Dd(content))]
    parts: list[Any] = [html.H1(story.title, className="headline"), html.Dl(listed, className="card facts")]
    if source:
        copy = html.Button("Copy as Markdown", type="button", className="copy", title="The whole story of the alert")
        parts.append(html.Div([copy, html.A("Act on this alert", href="#act", className="link")], className="counts"))
    if alert.members:
        keys = keys_by_name(results, alert.machine)
        parts += _charts(results, alert, _key_of(alert.members[0].series, keys), scheme, findings)
        rows = [_series_row(member, alert, _key_of(member.series, keys)) for member in alert.members[:MOST_SERIES]]
        parts += [html.H2(count(len(alert.members), "series") + ", worst first"), table(_HEAD, rows, "Series")]
    parts += [*since(story, alert, results), *why(story, alert, source)]
    parts += [html.H2("Who"), html.P(f"{story.who[:1].upper()}{story.who[1:]}."), *next_steps(story, source)]
    return parts


def history(events: list[Event]) -> list[Any]:
    """Return a table of the alert's events, the newest first: when, who, what and why."""
    rows = [
        [
            html.Td(
                f"{datetime.datetime.fromtimestamp(event.at / 1000, datetime.UTC):%Y-%m-%d %H:%M}", className="nowrap"
            ),
            html.Td(event.who),
            html.Td(event.what),
            html.Td(event.note, className="wide"),
        ]
        for event in reversed(events)
    ]
    return [html.H2("History"), table(("When (UTC)", "Who", "What", "Why"), rows, "History")]


def _beside(other: Tracked, alert: Alert) -> list[Any]:
    """Return a link to an alert that shows the same step, below a comma."""
    where = other.alert.machine if other.alert.family == alert.family else location(other.alert)
    size = f" {amount(other.alert.members[0])}" if other.alert.members else ""
    shown = dcc.Link(f"{where}{size}", href=link(f"/alert/{other.id}"), className="link")
    return [", ", shown] if other.open else [", ", shown, f" {status(other)}"]


def _last_measured(results: Results, alert: Alert) -> str:
    """Return where the worst series has its newest number, if later commits did not measure it; else ""."""
    series = series_by_name(results, alert.machine).get(alert.members[0].series) if alert.members else None
    known = [trend.commit[np.isfinite(trend.value)] for trend in results.trends([series])] if series else []
    commits = results.commits(alert.machine)
    if not known or not len(known[0]) or known[0][-1] == len(commits) - 1:
        return ""
    last = commits[known[0][-1]]
    later = count(len(commits) - 1 - int(known[0][-1]), "later commit")
    return f"{day(last.date)} at {last.short}; {later} did not measure it"


def _charts(
    results: Results, alert: Alert, key: SeriesKey | None, scheme: Scheme, findings: MachineFindings | None
) -> list[Any]:
    """Return the chart of the worst series, and its samples before and after; [] if the results lack the series."""
    commits, worst = results.commits(alert.machine), alert.members[0]
    figure = trend_of_worst(results, alert, key, scheme, findings) if key else None
    if figure is None:
        return []
    height = f"{figure_height(figure)}px"
    drawn = graph(sourced(figure, alert.machine, commits), "The worst series over the commits", height)
    name = mono(worst.series.label)
    parts = [chart_card(drawn, name, html.Span("the worst series; the range is shaded"), kind="series")]
    if samples := before_and_after(results, alert, scheme):
        worse = {"higher": "left", "lower": "right"}.get(worst.better, "")
        words = "before and after: each dot is one sample" + (f", {worse} is worse" if worse else "")
        ends = [commit for commit in commits if commit.hash in (alert.before, alert.after)]
        drawn = graph(sourced(samples, alert.machine, ends), f"Samples of {worst.series.label}")
        parts.append(chart_card(drawn, name, words))
    return parts


def trend_of_worst(
    results: Results, alert: Alert, key: SeriesKey, scheme: Scheme, findings: MachineFindings | None
) -> Figure | None:
    """Return the chart of the worst series around the range of its alert; ``None`` without a number there.

    It is that of the series' own page, with all steps of the series.
    """
    place = {commit.hash: at for at, commit in enumerate(results.commits(alert.machine))}
    measured = [place[commit] for commit in alert.commits if commit in place]
    address = SeriesAddress(*key, quantity="error" if alert.members[0].series.checked else "")
    shown = view(results, address, findings)
    first = next((point.commit for point, number in shown.points if number is not None), None)
    if first is None or not measured:
        return None
    # A stored change does not know the first commit measured with it.
    step = replace(alert.members[0], commit=results.commits(alert.machine)[measured[0]].hash)
    shown = replace(shown, changes=(*(one for one in shown.changes if one.key != step.key), step))
    zoom = (max(first, measured[0] - _BEFORE) - 0.5, len(place) - 0.5)
    figure = series_figure(shown, scheme, zoom)
    fill = {"fillcolor": NEUTRAL[scheme], "opacity": 0.13, "line": {"width": 0}, "layer": "below"}
    ends = {"x0": measured[0] - 0.5, "x1": measured[-1] + 0.5, "yref": "paper", "y0": 0, "y1": 1}
    figure["layout"]["shapes"].append({"type": "rect", **fill, **ends})
    return figure


def _key_of(name: SeriesName, keys: Mapping[SeriesName, SeriesKey]) -> SeriesKey | None:
    """Return the key of the page that shows a series; the error of a check is on the page of the latency."""
    return keys.get(replace(name, quantity="latency") if name.checked else name)


def _series_row(member: FoundChange, alert: Alert, key: SeriesKey | None) -> list[Any]:
    name = member.series
    # An alert may outlive its results. Then no page shows the series.
    label = (
        dcc.Link(
            name.label, href=SeriesAddress(*key, "error" if name.checked else "").link(), className="link mono row"
        )
        if key
        else mono(name.label)
    )
    cause = "" if member.cause.kind == alert.cause.kind else f"{member.cause.kind}: {member.cause.sentence}"
    return [
        html.Td(label, className="shape"),
        change_cell(member.sense, amount(member)),
        html.Td(interval(member), className="number dim"),
        html.Td(left(member), className="number"),
        html.Td("–" if member.recent is None else by(member, member.recent), className="number"),
        html.Td(confidence(member.confidence), className="number dim"),
        html.Td(cause or member.cause.kind, className="dim"),
        html.Td(name.quantity, className="dim"),
    ]
