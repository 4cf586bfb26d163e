"""The chart of one series with all related measurements on one x axis: value, clock, temperature, machine code."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from dashboard.charts.axes import in_zoom
from dashboard.charts.change_marks import marks
from dashboard.charts.telemetry import Points, telemetry_panels
from dashboard.charts.theme import Scheme, Style, chart_layout, guide, neutral, titled
from dashboard.charts.trend import MARKED, Figure, Mark, commit_line, trend
from lockstep.alerts.analysis.machine_findings import Behaviour
from lockstep.alerts.model import FoundChange
from lockstep.compare.row import Measured
from lockstep.compare.row_table import RowTable
from lockstep.compare.shown_quantities import Quantity
from lockstep.history.model import Commit, Point

#: Maximum number of points of a chart that draws their samples.
_SAMPLED = 150

#: Width in pixels of a chart with more points than can be marked.
_COLUMNS = 800

#: Relative heights of the main part, of each part below it, and of the gaps.
_MAIN, _BELOW, _GAP = 3.2, 1.0, 0.22


def series_figure(
    rows: RowTable,
    points: Points,
    commits: Sequence[Commit],
    quantity: Quantity,
    changes: Sequence[FoundChange],
    analysis: Behaviour | None,
    style: Style,
    scheme: Scheme,
    zoom: tuple[float, ...] = (),
) -> Figure:
    """Return the chart of one series: its numbers, and below them clock, temperature and registers where recorded.

    Args:
        rows: the rows of the series.
        points: the points of the quantity, oldest first, each with its number.
        analysis: the detector's levels of these numbers; ``None`` if the detector follows another quantity.
        zoom: visible range of the x axis; () begins at the first point of the series. The y axis fits these points.
    """
    shown = [(point, number) for point, number in points if number is not None]
    [variant] = {key.variant for key in rows.keys} or {""}
    columns = 0 if sum(in_zoom(point.commit, zoom) for point, _ in shown) <= MARKED else _COLUMNS
    at = {commit.hash: index for index, commit in enumerate(commits)}
    drawn = marks([(variant, change) for change in changes], commits, at, scheme, sized=True)
    drawn += _condition_marks(points, commits, scheme)
    figure = trend(rows, commits, quantity, {variant: style}, scheme, drawn, zoom, columns, _first(points))
    data, layout = figure["data"], figure["layout"]
    title = f"{quantity.label} {quantity.unit}".replace("% of floor %", "% of floor")
    layout["yaxis"] |= titled(escape(title), scheme)
    if len(shown) <= _SAMPLED:
        data.insert(0, _samples(shown, style, scheme))
    if analysis is not None:
        data += _levels(analysis, shown, scheme)
    below = telemetry_panels(points, scheme)
    tops = _domains(len(below))
    layout["yaxis"]["domain"] = tops[0]
    for place, (title, traces) in enumerate(below, 2):
        axis = dict(chart_layout(scheme)["yaxis"]) | {"domain": tops[place - 1], "nticks": 3, "fixedrange": True}
        layout[f"yaxis{place}"] = axis | titled(title, scheme)
        data += [trace | {"yaxis": f"y{place}"} for trace in traces]
    layout["xaxis"]["anchor"] = f"y{len(below) + 1}" if below else "y"
    layout["margin"]["l"] = 62
    return figure


def _first(points: Points) -> int:
    """Return the commit index of the first drawn point, which is a number or a failure; 0 if there is none."""
    return next((point.commit for point, measured in points if measured is not None or point.state == "failed"), 0)


def figure_height(figure: Mapping[str, Any]) -> int:
    """Return the chart's height in pixels, which grows with the number of parts below the main part."""
    below = [name for name in figure["layout"] if name.startswith("yaxis") and name != "yaxis"]
    return 340 + 95 * len(below)


def moved(before: Point, after: Point) -> bool:
    """Return whether two points were measured on different GPUs."""
    return before.gpu != after.gpu and bool(before.gpu and after.gpu)


def _samples(shown: Sequence[tuple[Point, Measured]], style: Style, scheme: Scheme) -> Figure:
    """Return the samples of the points, converted by the factor that leads from a stored value to its number."""
    scattered = [(p.commit, sample * n.value / p.value) for p, n in shown if p.value for sample in p.samples]
    dot = {"size": 3, "color": style.colour(scheme), "opacity": 0.35}
    xs, ys = ([entry[at] for entry in scattered] for at in (0, 1))
    return {"type": "scatter", "mode": "markers", "marker": dot, "hoverinfo": "skip", "x": xs, "y": ys}


def _levels(analysis: Behaviour, shown: Sequence[tuple[Point, Measured]], scheme: Scheme) -> list[Figure]:
    commits_analysed = _analysed(analysis, shown)
    if not commits_analysed:
        return []
    factor = next((number.value / point.value for point, number in shown if point.value), 1.0)
    return [
        guide(
            [commits_analysed[level.start] - 0.5, commits_analysed[level.stop - 1] + 0.5],
            [level.value * factor] * 2,
            scheme,
            "dash",
        )
        for level in analysis.levels
        if math.isfinite(level.value)
    ]


def _analysed(analysis: Behaviour, shown: Sequence[tuple[Point, Measured]]) -> list[int]:
    """Return the commit index of each point of the analysis; [] if the analysis belongs to other points than shown.

    The analysis is of the points of the newest benchmark version, without copies.
    """
    begin = max((at for at, (a, b) in enumerate(pairwise(shown), 1) if a[0].version != b[0].version), default=0)
    measured_commits = [point.commit for point, _ in shown[begin:] if not point.same_work_as]
    return measured_commits if analysis.levels and analysis.levels[-1].stop == len(measured_commits) else []


def _condition_marks(points: Points, commits: Sequence[Commit], scheme: Scheme) -> list[Mark]:
    """Return a mark where the toolchain or the GPU changed. Its sign names the first new part."""
    found = []
    for (before, _), (after, _) in pairwise(points):
        if moved := changed_conditions(before, after):
            name = re.sub(r" \S+ → ", " ", moved[0]) + (" …" if len(moved) > 1 else "")
            hover = "<br>".join([*map(escape, moved), commit_line(commits[after.commit])])
            found.append(Mark(after.commit, escape(name), neutral(scheme), hover, beside=True))
    return found


def changed_conditions(before: Point, after: Point) -> list[str]:
    """Return "another GPU" if two points were measured on different GPUs, and ``triton 3.6.0 → 3.7.1`` for each
    toolchain version that differs.
    """
    other_board = [f"another GPU, {after.gpu}"] if moved(before, after) else []
    old, new = before.run.toolchain, after.run.toolchain
    versions = [f"{name} {old.get(name, '–')} → {new.get(name, '–')}" for name in new if new.get(name) != old.get(name)]
    return other_board + versions


def _domains(below: int) -> list[list[float]]:
    """Return bottom and top of each part as shares of the height: the main part, then ``below`` parts under it."""
    total = _MAIN + below * (_BELOW + _GAP)
    tops, top = [[1 - _MAIN / total, 1.0]], 1 - _MAIN / total
    for _ in range(below):
        top -= _GAP / total
        tops.append([max(top - _BELOW / total, 0.0), top])
        top -= _BELOW / total
    return tops
