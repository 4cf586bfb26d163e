"""The chart of one series with all related measurements on one x axis: value, clock, temperature, machine code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from dashboard.charts.apart import Apart, apart_marks
from dashboard.charts.axes import commit_axis, fitted, in_zoom, scientific, value_axis
from dashboard.charts.cause_colours import cause_colour
from dashboard.charts.telemetry import telemetry_panels
from dashboard.charts.theme import Scheme, Style, chart_layout, neutral
from dashboard.charts.trend import MARKED, commit_line, packed, symbols, upright, wrapped
from lockstep.alerts.analysis.machine_findings import Behaviour
from lockstep.alerts.model import FoundChange
from lockstep.alerts.text import amount
from lockstep.compare.number_format import significant
from lockstep.compare.row import Measured
from lockstep.compare.shown_quantities import Quantity
from lockstep.compare.verdict import sign
from lockstep.history.model import Commit, Point

Figure = dict[str, Any]

#: Maximum number of points of a chart that draws their samples.
_SAMPLED = 150

#: Relative heights of the main part, of each part below it, and of the gaps.
_MAIN, _BELOW, _GAP = 3.2, 1.0, 0.22

#: Texts of marks: most rows, a row's height, a letter's width, and the width of a chart in a narrow window, in pixels.
_ROWS, _ROW, _LETTER, _NARROW = 5, 14, 6.2, 700


def series_figure(
    points: Sequence[tuple[Point, Measured | None]],
    commits: Sequence[Commit],
    quantity: Quantity,
    changes: Sequence[FoundChange],
    analysis: Behaviour | None,
    style: Style,
    scheme: Scheme,
    zoom: tuple[float, ...] = (),
    apart: Sequence[Apart] = (),
) -> Figure:
    """Return the chart of one series: its numbers, and below them clock, temperature and registers where recorded.

    Args:
        points: the points of one series, oldest first, each with its number in the unit of ``quantity``.
        analysis: the detector's levels of these numbers; ``None`` if the detector follows another quantity.
        zoom: visible range of the x axis; () begins at the first point of the series. The y axis fits these points.
        apart: the points at commits off the line.
    """
    shown = [(point, number) for point, number in points if number is not None]
    layout = chart_layout(scheme)
    layout["xaxis"] |= commit_axis(commits, zoom, _first(points))
    layout["yaxis"]["fixedrange"] = True
    data = _main(shown, commits, quantity, style, scheme, zoom)
    in_view = [measured for point, measured in shown if in_zoom(point.commit, zoom)]
    beside = [Measured(entry.value, None, None) for entry in apart if in_zoom(entry.place, zoom)]
    measures = [*in_view, *beside]
    ends = fitted(*(np.array([getattr(n, end) for n in measures], dtype=float) for end in ("value", "low", "high")))
    if ends:
        layout["yaxis"] |= value_axis(*ends, quantity.unit if quantity.unit in "×%" else "")
    if quantity.name == "error":
        scientific(layout["yaxis"])
    small = {"size": 11, "color": neutral(scheme)}
    title = f"{quantity.label} {quantity.unit}".replace("% of floor %", "% of floor")
    layout["yaxis"]["title"] = {"text": escape(title), "font": small}
    data += apart_marks(apart, {point.commit: number.value for point, number in shown}, quantity, scheme)
    if analysis is not None:
        data += _levels(analysis, shown, scheme)
    below = telemetry_panels(points, scheme)
    tops = _domains(len(below))
    layout["yaxis"]["domain"] = tops[0]
    for place, (title, traces) in enumerate(below, 2):
        axis = dict(chart_layout(scheme)["yaxis"]) | {"domain": tops[place - 1], "nticks": 3, "fixedrange": True}
        axis["title"] = {"text": title, "font": small}
        layout[f"yaxis{place}"] = axis
        data += [trace | {"yaxis": f"y{place}"} for trace in traces]
    layout["xaxis"]["anchor"] = f"y{len(below) + 1}" if below else "y"
    marks = [*_condition_marks(points, scheme), *_changes(changes, commits, scheme)]
    layout |= _marked(marks, layout["xaxis"]["range"])
    data += _failures(points, commits, scheme, layout)
    rows = max((note["yshift"] for note in layout["annotations"]), default=0)
    layout["margin"] = {"l": 62, "r": 24, "t": 26 + rows, "b": 30}
    return {"data": data, "layout": layout}


def _first(points: Sequence[tuple[Point, Measured | None]]) -> int:
    """Return the commit index of the first drawn point, which is a number or a failure; 0 if there is none."""
    return next((point.commit for point, measured in points if measured is not None or point.state == "failed"), 0)


def figure_height(figure: Mapping[str, Any]) -> int:
    """Return the chart's height in pixels, which grows with the number of parts below the main part."""
    below = [name for name in figure["layout"] if name.startswith("yaxis") and name not in ("yaxis", "yaxis9")]
    return 340 + 95 * len(below)


def _main(
    shown: Sequence[tuple[Point, Measured]],
    commits: Sequence[Commit],
    quantity: Quantity,
    style: Style,
    scheme: Scheme,
    zoom: tuple[float, ...],
) -> list[Figure]:
    data: list[Figure] = []
    for run in _segments(shown):
        banded = [(p.commit, n.low, n.high) for p, n in run if n.low is not None and n.high is not None]
        xs = [x for x, _, _ in banded]
        outline = [high for _, _, high in banded] + [low for _, low, _ in reversed(banded)]
        fill = {"fill": "toself", "fillcolor": style.band(scheme), "line": {"width": 0}, "mode": "lines"}
        place = {"x": _numbers(xs + xs[::-1]), "y": _numbers(outline)}
        data.append({"type": "scatter", "hoverinfo": "skip", **fill, **place})
    if len(shown) <= _SAMPLED:
        scattered = [(p.commit, s) for p, n in shown for s in _samples(p, n)]
        dot = {"size": 3, "color": style.colour(scheme), "opacity": 0.35}
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "marker": dot,
                "hoverinfo": "skip",
                "x": [x for x, _ in scattered],
                "y": [y for _, y in scattered],
            }
        )
    marked = sum(in_zoom(point.commit, zoom) for point, _ in shown) <= MARKED
    for run in _segments(shown):
        symbol = symbols(style.marker, [bool(point.same_work_as) for point, _ in run]) or style.marker
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if marked else "lines",
                "name": "value",
                "line": {"color": style.colour(scheme), "width": 1.5, "dash": style.dash},
                "marker": {"color": style.colour(scheme), "size": 6, "symbol": symbol},
                "hovertemplate": "%{text}<extra></extra>",
                "text": [_hover(p, n, quantity, commits[p.commit]) for p, n in run],
                **_places([p.commit for p, _ in run]),
                "y": _numbers([n.value for _, n in run]),
            }
        )
    timed = [(point.commit, number.value) for point, number in shown if not point.same_work_as]
    if not marked and len(timed) < min(len(shown), MARKED):
        dots = {"mode": "markers", "marker": {"color": style.colour(scheme), "size": 4}, "hoverinfo": "skip"}
        data.append({"type": "scatter", **dots, "x": [x for x, _ in timed], "y": [y for _, y in timed]})
    return data


def _numbers(values: Sequence[float]) -> Any:
    """Return numbers for Plotly, many of them as a typed array."""
    return list(values) if len(values) <= MARKED else packed(np.asarray(values, dtype=np.float64))


def _places(at: Sequence[int]) -> Figure:
    contiguous = len(at) > 1 and at[-1] - at[0] == len(at) - 1
    return {"x0": at[0], "dx": 1} if contiguous else {"x": list(at)}


def _runs(shown: Sequence[tuple[Point, Measured]]) -> list[list[tuple[Point, Measured]]]:
    """Split the points where the benchmark version changes, because points of different versions do not compare."""
    runs: list[list[tuple[Point, Measured]]] = []
    for place, entry in enumerate(shown):
        if not place or entry[0].version != shown[place - 1][0].version:
            runs.append([])
        runs[-1].append(entry)
    return runs


def _segments(shown: Sequence[tuple[Point, Measured]]) -> list[list[tuple[Point, Measured]]]:
    """Split the points where the line breaks: at a new benchmark version, or at a move to another GPU."""
    segments: list[list[tuple[Point, Measured]]] = []
    for run in _runs(shown):
        for place, entry in enumerate(run):
            if not place or moved(run[place - 1][0], entry[0]):
                segments.append([])
            segments[-1].append(entry)
    return segments


def moved(before: Point, after: Point) -> bool:
    """Return whether two points were measured on different GPUs."""
    return before.gpu != after.gpu and bool(before.gpu and after.gpu)


def _samples(point: Point, number: Measured) -> list[float]:
    """Return the point's samples, converted by the factor that leads from the stored value to the drawn number."""
    if not point.value:
        return []
    return [sample * number.value / point.value for sample in point.samples]


def _levels(analysis: Behaviour, shown: Sequence[tuple[Point, Measured]], scheme: Scheme) -> list[Figure]:
    commits_analysed = _analysed(analysis, shown)
    if not commits_analysed:
        return []
    factor = next((number.value / point.value for point, number in shown if point.value), 1.0)
    line = {"color": neutral(scheme), "width": 1.25, "dash": "dash"}
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "line": line,
            "hoverinfo": "skip",
            "x": [commits_analysed[level.start] - 0.5, commits_analysed[level.stop - 1] + 0.5],
            "y": [level.value * factor] * 2,
        }
        for level in analysis.levels
        if math.isfinite(level.value)
    ]


def _marked(marks: Sequence[tuple[Figure, Figure]], view: Sequence[float]) -> Figure:
    """Return the layout of marks: lines, each with its text on the side with more space in the visible range.

    Texts that would overlap stand above one another. Texts beyond ``_ROWS`` rows are left out; the page lists all
    changes.
    """
    low, high = view
    notes: list[Figure] = []
    taken: list[list[tuple[float, float]]] = [[] for _ in range(_ROWS)]
    for _, note in marks:
        share, width = (note["x"] - low) / (high - low), len(note["text"]) * _LETTER / _NARROW
        side = _inward(share)
        span = (share - width, share) if side["xanchor"] == "right" else (share, share + width)
        free = (row for row, spans in enumerate(taken) if all(span[1] < start or end < span[0] for start, end in spans))
        row = next(free, None)
        if row is not None:
            taken[row].append(span)
            notes.append(note | side | {"yshift": _ROW * row})
    return {"shapes": [shape for shape, _ in marks], "annotations": notes}


def _analysed(analysis: Behaviour, shown: Sequence[tuple[Point, Measured]]) -> list[int]:
    """Return the commit index of each point of the analysis; [] if the analysis belongs to other points than shown."""
    measured_commits = [point.commit for point, _ in _last_version(shown) if not point.same_work_as]
    return measured_commits if analysis.levels and analysis.levels[-1].stop == len(measured_commits) else []


def _last_version(shown: Sequence[tuple[Point, Measured]]) -> Sequence[tuple[Point, Measured]]:
    return _runs(shown)[-1] if shown else ()


def _condition_marks(points: Sequence[tuple[Point, Measured | None]], scheme: Scheme) -> list[tuple[Figure, Figure]]:
    marks = []
    for (before, _), (after, _) in pairwise(points):
        moved = changed_conditions(before, after)
        if moved:
            text = escape(", ".join(moved[:2]) + (" …" if len(moved) > 2 else ""))
            marks.append(_mark(after.commit - 0.5, text, neutral(scheme), "dot"))
    return marks


def changed_conditions(before: Point, after: Point) -> list[str]:
    """Return "another GPU" if two points were measured on different GPUs, and ``triton 3.6.0 → 3.7.1`` for each
    toolchain version that differs.
    """
    other_board = [f"another GPU, {after.gpu}"] if moved(before, after) else []
    old, new = before.run.toolchain, after.run.toolchain
    versions = [f"{name} {old.get(name, '–')} → {new.get(name, '–')}" for name in new if new.get(name) != old.get(name)]
    return other_board + versions


def _changes(changes: Sequence[FoundChange], commits: Sequence[Commit], scheme: Scheme) -> list[tuple[Figure, Figure]]:
    place = {commit.hash: at for at, commit in enumerate(commits)}
    marks = []
    for change in changes:
        at = place.get(change.commit)
        if at is not None:
            source = escape(commits[at].subject[:48]) if change.exact else change.range_text
            size = f"{sign(change.sense)} {amount(change)}"
            text = " · ".join(part for part in (size, change.cause.kind, source) if part)
            marks.append(_mark(at - 0.5, text, cause_colour(change.cause.kind, scheme), "solid"))
    return marks


def _mark(x: float, text: str, colour: str, dash: str) -> tuple[Figure, Figure]:
    place = {"x": x, "y": 1, "yref": "paper", "yanchor": "bottom"}
    return upright(x, colour, dash), {"text": text, "showarrow": False, "font": {"color": colour, "size": 11}, **place}


def _inward(share: float) -> Figure:
    """Return the alignment that puts a mark's text inside the chart; ``share`` is its position, 0 left to 1 right."""
    return {"xanchor": "right", "xshift": 2} if share > 0.6 else {"xanchor": "left", "xshift": -2}


def _failures(
    points: Sequence[tuple[Point, Measured | None]], commits: Sequence[Commit], scheme: Scheme, layout: Figure
) -> list[Figure]:
    failed = [point for point, _ in points if point.state == "failed"]
    if not failed:
        return []
    layout["yaxis9"] = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
    marker = {"symbol": "x-thin", "size": 8, "line": {"width": 1.75, "color": cause_colour("own commit", scheme)}}
    text = [f"failed: {wrapped(point.reason)}<br>{commit_line(commits[point.commit])}" for point in failed]
    coordinates = {"x": [point.commit for point in failed], "y": [0.04] * len(failed), "yaxis": "y9"}
    hover = {"text": text, "hovertemplate": "%{text}<extra></extra>"}
    return [{"type": "scatter", "mode": "markers", "marker": marker, **coordinates, **hover}]


def _hover(point: Point, number: Measured, quantity: Quantity, commit: Commit) -> str:
    ends = f" [{number.ends(', ')}]" if number.ends("") else ""
    value = (
        f"{number.value:.3e}" if quantity.name == "error" else f"{significant(number.value, 5)} {escape(quantity.unit)}"
    )
    lines = [f"<b>{value}</b>{ends}", commit_line(commit)]
    return "<br>".join([*lines, wrapped(point.note)] if point.note else lines)


def _domains(below: int) -> list[list[float]]:
    """Return bottom and top of each part as shares of the height: the main part, then ``below`` parts under it."""
    total = _MAIN + below * (_BELOW + _GAP)
    tops, top = [[1 - _MAIN / total, 1.0]], 1 - _MAIN / total
    for _ in range(below):
        top -= _GAP / total
        tops.append([max(top - _BELOW / total, 0.0), top])
        top -= _BELOW / total
    return tops
