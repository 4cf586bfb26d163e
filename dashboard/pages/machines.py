"""The page of the machines: whether a machine still reports, and how far readers can trust its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from dash import Dash, Input, Output, dcc, html, no_update

from dashboard.address import link
from dashboard.charts.axes import commit_axis, sourced
from dashboard.charts.lines_and_bands import Figure, stroke
from dashboard.charts.theme import LEGEND, Scheme, chart_layout, styles
from dashboard.pages.machine_health import MachineHealth, Turn, health_of, turns_of
from dashboard.pages.parts import (
    age,
    chart_card,
    commit_line,
    commit_link,
    count,
    crumbs,
    day,
    graph,
    loading,
    mono,
    problem_list,
    table,
    waiting,
)
from lockstep.alerts.database.alert_row import now_ms
from lockstep.compare.number_format import whole
from lockstep.compare.two_sides import toolchain_text
from lockstep.fleet.in_progress import InProgress, in_progress
from lockstep.history.model import Run
from lockstep.history.problem_tally import tally
from lockstep.history.snapshot import Results
from lockstep.history.store import Store

#: Days without a report after which a machine is silent, the same as for alerts.
SILENT = 7

#: Maximum number of listed changes of a machine's toolchain, and of commits in the chart of its controls.
MOST_TURNS, TREND = 20, 120

_HEAD = (
    *("Machine", "Device", "Last report", "Newest commit", "Clocks", "SM MHz", "Throttled", "Noise", "MDE", "Failed"),
    "Toolchain",
)


def layout() -> Any:
    """Return the machines page, which the callback of ``register`` fills."""
    return html.Main([crumbs("Machines", kind=""), loading(html.Div(waiting(), id="machines-body"))])


def register(app: Dash, store: Store) -> None:
    """Add the callbacks that fill the machines page, and fill the page again when there are new results."""

    @app.callback(Output("machines-body", "children"), Input("colours", "data"), Input("version", "data"))
    def fill(scheme: Scheme | None, _version: str | None) -> Any:
        if scheme is None:
            return no_update
        results, now = store.current(), now_ms()
        return [*running(in_progress(store.root, now), now), *body(results, scheme, now)]


def running(commits: Sequence[InProgress], now: int) -> list[Any]:
    """Return a line for each commit that is being measured."""
    return [
        html.P(
            [
                *("Being measured: ", mono(one.commit[:8]), " on ", mono(one.machine)),
                f"{one.shard and ', shard '}{one.shard}: {whole(one.records)}"
                f"{f' of about {whole(one.expected)}' if one.expected else ''} series; the last: "
                f"{age(one.recorded_at, now)}",
            ],
            className="said",
        )
        for one in commits
    ]


def body(results: Results, scheme: Scheme, now: int) -> list[Any]:
    """Return a table of all machines, a section on the controls and toolchains of each, and the unreadable files."""
    all_health = [health_of(results, machine) for machine in results.machines]
    all_health.sort(key=lambda health: -health.reported_at)
    parts: list[Any] = [table(_HEAD, [_cells(health, now) for health in all_health], "Machines")]
    if results.line_note:
        parts.append(html.P(results.line_note, className="dim"))
    sections, lines = [], []
    for health in all_health:
        figure, turns = controls_chart(health, scheme), turns_of(health.runs, health.commits)
        if figure or turns:
            sections.append(html.Section(_section(health, figure, turns)))
        else:
            line = [mono(health.machine), html.Span(f": {_counted(health)}. {_unchanged(health.run)}", className="dim")]
            lines.append(html.P([*line, *_upgrades(health, all_health)], id=_anchor(health), className="said"))
    parts += [html.Div(sections, className="charts sections"), *lines]
    if results.problems:
        heading = html.H2([count(len(results.problems), "problem"), " reading the results"], id="problems")
        parts += [heading, *(html.P(f"{sentence}.") for sentence in tally(results).sentences())]
        parts.append(problem_list(results.problems))
    return parts


def controls_chart(health: MachineHealth, scheme: Scheme) -> Figure | None:
    """Return a chart of each control's rate over the last commits, in per cent of its median; down is a slower machine.

    A line is interrupted where another GPU measured; ``None`` without a control.
    """
    begin = max(len(health.runs) - TREND, 0)
    shown = list(enumerate(health.runs))[begin:]
    names = sorted({name for _, run in shown for name, control in run.controls.items() if control.seconds})
    data: list[dict[str, Any]] = []
    for name, style in styles(names, set()).items():
        points = [(at, run.board, 1 / seconds) for at, run in shown if (seconds := _seconds(run, name))]
        middle = sorted(rate for *_, rate in points)[len(points) // 2]
        x: list[int | None] = []
        y: list[float | None] = []
        text: list[str | None] = []
        for place, (at, board, rate) in enumerate(points):
            gap = [None] * (place > 0 and board != points[place - 1][1])
            commit = health.commits[at]
            x += [*gap, at]
            y += [*gap, round(100 * rate / middle, 3)]
            text += [*gap, f"{commit.short} {day(commit.date)}<br>GPU {board}"]
        hover = "%{y:.2f} %<br>%{text}<extra>%{fullData.name}</extra>"
        data.append(
            stroke(style, scheme) | {"name": escape(name), "hovertemplate": hover, "x": x, "y": y, "text": text}
        )
    if not data:
        return None
    figure = chart_layout(scheme) | LEGEND
    figure["xaxis"] |= commit_axis(health.commits, begin=min(line["x"][0] for line in data))
    figure["yaxis"] |= {"ticksuffix": " %", "nticks": 5}
    values = [value for line in data for value in line["y"] if value is not None]
    if min(values) > 98 and max(values) < 102:
        figure["yaxis"]["range"] = [97.5, 102.5]
    return sourced({"data": data, "layout": figure}, health.machine, health.commits)


def _seconds(run: Run, control: str) -> float | None:
    return run.controls[control].seconds if control in run.controls else None


def _cells(health: MachineHealth, now: int) -> list[Any]:
    newest = health.commits[-1]
    silent = health.reported_at < now - SILENT * 86_400_000
    reported = "unknown"
    if health.reported_at:
        reported = f"{day(health.reported_at)}, {age(health.reported_at, now)}" + (" ◌ silent" if silent else "")
    throttled = "–"
    if health.records:
        throttled = f"{100 * health.throttled / health.records:.0f} % {', '.join(health.reasons)}".strip()
    return [
        html.Td(html.A(health.machine, href=f"#{_anchor(health)}", className="link mono row")),
        html.Td(
            health.run.host.get("gpu") or health.run.strings.get("gpu") or health.run.strings.get("cpu") or "–",
            className="device",
        ),
        html.Td(reported, className="slower nowrap" if silent else "nowrap"),
        html.Td([commit_link(newest, health.machine), " ", html.Span(day(newest.date), className="dim nowrap")]),
        html.Td(health.run.clock_state or "–", className="mono"),
        html.Td("–" if health.sm_mhz is None else whole(health.sm_mhz), className="number"),
        html.Td(throttled, className="slower" if health.throttled else "dim"),
        html.Td("–" if health.noise is None else f"{100 * health.noise:.2f} %", className="number"),
        html.Td("–" if health.mde is None else f"{100 * health.mde:.2f} %", className="number"),
        html.Td(str(health.failed or "–"), className="failed" if health.failed else "dim"),
        html.Td(toolchain_text(health.run), className="dim wide"),
    ]


def _section(health: MachineHealth, figure: Figure | None, turns: Sequence[Turn]) -> list[Any]:
    parts: list[Any] = [
        html.H2([mono(health.machine), html.Span(f" {_counted(health)}", className="dim")], id=_anchor(health))
    ]
    if figure:
        text = "Controls, kernels that no commit changes (copy, empty launch, matrix product): % of their median rate"
        chart = graph(figure, f"Controls of {health.machine} over the commits")
        parts.append(chart_card(chart, html.Span(text), html.Span("down: the GPU was slower")))
    if not turns:
        return [*parts, html.P(_unchanged(health.run), className="dim")]
    rows = []
    for turn in turns[:MOST_TURNS]:
        before = health.commits[health.commits.index(turn.commit) - 1].hash
        href = link("/compare", bm=health.machine, bc=before, hm=health.machine, hc=turn.commit.hash)
        commit = html.Td([*commit_line(turn.commit), " ", dcc.Link("compare", href=href, className="link")])
        rows += [[commit, *(html.Td(text or "–", className="nowrap") for text in change)] for change in turn.changes]
    heads = ("From commit", "Changed", "Before", "After")
    return [*parts, table(heads, rows, f"Toolchain and GPU of {health.machine}")]


def _upgrades(health: MachineHealth, all_health: Sequence[MachineHealth]) -> list[Any]:
    """Return links that compare the machine with those that have another toolchain on the same commit and device."""
    parts: list[Any] = []
    commit = health.commits[-1].hash
    for other in all_health:
        same = (other.commits[-1].hash, other.run.clock_state) == (commit, health.run.clock_state)
        if same and other.run.host.get("gpu") == health.run.host.get("gpu") and other.machine != health.machine:
            href = link("/compare", bm=other.machine, bc=commit, hm=health.machine, hc=commit)
            parts += [", " if parts else " Compare with ", dcc.Link(other.machine, href=href, className="link mono")]
    return [*parts, "."] if parts else []


def _counted(health: MachineHealth) -> str:
    return f"{count(len(health.commits), 'commit')}, {count(health.series, 'series')}"


def _unchanged(run: Run) -> str:
    """Return the sentence for a toolchain that never changed, with a remark if package versions were not recorded."""
    if run.host:
        return f"One toolchain at every commit: {toolchain_text(run)}."
    lacking = "" if run.requirements else " Versions of packages are not recorded."
    return f"One toolchain at every commit, as far as recorded: {toolchain_text(run)}.{lacking}"


def _anchor(health: MachineHealth) -> str:
    # Machine names may contain characters that must not occur in an address.
    return "machine-" + "".join(letter if letter.isalnum() else "-" for letter in health.machine)
