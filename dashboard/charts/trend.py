"""The charts, as plain Plotly dictionaries (``plotly.graph_objects`` would check them at 30 ms each)."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from html import escape
from typing import Any

from dashboard.charts.axes import commit_axis, value_axis, within
from dashboard.charts.theme import Scheme, Style, chart_layout, neutral
from lockstep.compare.number_format import THIN, decimals
from lockstep.compare.rows import STATE_LABELS, Measured, Quantity, Row, described
from lockstep.history.model import Commit

Figure = dict[str, Any]


@dataclass(frozen=True)
class Mark:
    """A change on a trend: before which commit's place, ▼ or ▲, in which colour, and its hover (escaped)."""

    place: int
    sign: str
    colour: str
    hover: str


def trend(
    rows: Sequence[Row],
    commits: Sequence[Commit],
    quantity: str,
    drawn: Mapping[str, Style],
    scheme: Scheme,
    marks: Sequence[Mark] = (),
    zoom: tuple[float, ...] = (),
) -> Figure:
    """One quantity of one case over the commits of a machine, one line a variant with its interval as a band.

    Args:
        rows: of one machine, suite, case and cache state.
        commits: the x axis, oldest first.
        quantity: a name in ``QUANTITIES``.
        drawn: the variants to draw, in order, and how.
        scheme: "light" or "dark".
        marks: changes to mark.
        zoom: range of the x axis, () all; the other axis fits what is in it.
    """
    what = described(rows, quantity)
    place = {commit.hash: index for index, commit in enumerate(commits)}
    lows, highs = _extremes([row for row in rows if within(place[row.commit], zoom)], quantity, drawn)
    bands, lines, absent = [], [], []
    for variant, style in drawn.items():
        own = sorted((row for row in rows if row.variant == variant), key=lambda row: place[row.commit])
        for run in _runs(own, quantity):
            points = [(place[row.commit], row, row.measured(quantity)) for row in run]
            bands.append(_band([(x, m) for x, _, m in points if m], style, scheme))
            lines.append(_line(points, commits, what, variant, style, scheme))
        absent += [row for row in own if row.state == "failed"]
    ends = (min(lows), max(highs)) if lows else None
    failed = [(place[row.commit], _failed_text(row, commits[place[row.commit]])) for row in absent]
    return finished([*bands, *lines], commits, what, ends, failed, scheme, marks, zoom)


def finished(
    data: Sequence[Figure],
    commits: Sequence[Commit],
    what: Quantity,
    ends: tuple[float, float] | None,
    failed: Sequence[tuple[int, str]],
    scheme: Scheme,
    marks: Sequence[Mark],
    zoom: tuple[float, ...] = (),
) -> Figure:
    """Lines over commits as a chart: axes, failures, the marks of changes.

    Args:
        data: the lines.
        commits: the x axis, oldest first.
        what: the quantity.
        ends: lowest and highest value within ``zoom``; ``None`` there is none.
        failed: place and hover (escaped) of each cross at the foot.
        scheme: "light" or "dark".
        marks: changes to mark.
        zoom: range of the x axis, () all.
    """
    layout = chart_layout(scheme)
    layout["xaxis"] |= commit_axis(commits, zoom)
    # Room for every label, half the newest commit's on the right: where Plotly has to make some, it draws all again.
    layout["margin"] = {"l": 52, "r": 24, "t": 8, "b": 30}
    layout["xaxis"]["automargin"], layout["yaxis"]["automargin"] = False, "left"
    layout["yaxis"]["fixedrange"] = True
    if ends and ends[0] > 0:
        layout["yaxis"] |= value_axis(*ends, what.unit if what.unit in "×%" else "")
    levels = [_level(1.0, scheme)] if what.name == "speedup" else []
    layout["shapes"] = [*levels, *(_upright(mark) for mark in marks)]
    below = [_crosses(failed, scheme) | _height(layout, 0.03, len(failed))] if failed else []
    above = [_signs(marks) | _height(layout, 0.96, len(marks))] if marks else []
    return {"data": [*data, *below, *above], "layout": layout}


def _height(layout: Figure, share: float, count: int) -> Figure:
    """Where in a chart of a known range stands what has no value: this share of the height.

    Else an axis of its own is laid over it, which takes a browser as long as half a chart.
    """
    axis = layout["yaxis"]
    if "range" not in axis:
        layout["yaxis2"] = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
        return {"y": [share] * count, "yaxis": "y2"}
    low, high = axis["range"]
    at = low + share * (high - low)
    return {"y": [10**at if axis.get("type") == "log" else at] * count}


def _upright(mark: Mark) -> Figure:
    line = {"color": mark.colour, "width": 1.25, "dash": "dot"}
    x = mark.place - 0.5
    return {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": line, "layer": "below"}


def _signs(marks: Sequence[Mark]) -> Figure:
    """Signs at the top of the lines, which have the hover."""
    colours = [mark.colour for mark in marks]
    return {
        "type": "scatter",
        "mode": "text",
        "x": [mark.place - 0.5 for mark in marks],
        "text": [mark.sign for mark in marks],
        "textfont": {"color": colours, "size": 12},
        "hovertext": [mark.hover for mark in marks],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _extremes(rows: Sequence[Row], quantity: str, drawn: Mapping[str, Style]) -> tuple[list[float], list[float]]:
    values = [value for row in rows if row.variant in drawn and (value := row.measured(quantity))]
    return [v.value if v.low is None else v.low for v in values], [
        v.value if v.high is None else v.high for v in values
    ]


def _runs(rows: Sequence[Row], quantity: str) -> list[list[Row]]:
    """Stretches that compare: a new ruler, or a commit at which the series failed, begins another."""
    runs: list[list[Row]] = []
    version = None
    for row in rows:
        if row.measured(quantity) is None:
            version = None
            continue
        if row.version != version:
            runs.append([])
        version = row.version
        runs[-1].append(row)
    return runs


def _band(points: Sequence[tuple[int, Measured]], style: Style, scheme: Scheme) -> Figure:
    known = [(x, m.low, m.high) for x, m in points if m.low is not None and m.high is not None]
    xs = [x for x, _, _ in known]
    outline = [high for _, _, high in known] + [low for _, low, _ in reversed(known)]
    fill = {"fill": "toself", "fillcolor": style.band(scheme), "line": {"width": 0}, "mode": "lines"}
    return {"type": "scatter", "x": xs + xs[::-1], "y": outline, "hoverinfo": "skip", **fill}


def _line(
    points: Sequence[tuple[int, Row, Measured | None]],
    commits: Sequence[Commit],
    what: Quantity,
    variant: str,
    style: Style,
    scheme: Scheme,
) -> Figure:
    return {
        **stroke(style, scheme),
        "name": escape(variant),
        "x": [x for x, _, _ in points],
        "y": [value.value for _, _, value in points if value],
        "text": [hover_text(row, value, what, commit_line(commits[x])) for x, row, value in points if value],
    }


def stroke(style: Style, scheme: Scheme) -> Figure:
    """How the line of a variant is drawn."""
    colour = style.colour(scheme)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "line": {"color": colour, "width": style.width, "dash": style.dash},
        "marker": {"color": colour, "size": 6, "symbol": style.marker},
        "hovertemplate": "%{text}<extra></extra>",
    }


def _failed_text(row: Row, commit: Commit) -> str:
    reason = f"<b>{escape(row.variant)}</b> {STATE_LABELS[row.state]}<br>{wrapped(row.reason)}"
    return f"{reason}<br>{commit_line(commit)}"


def _crosses(failed: Sequence[tuple[int, str]], scheme: Scheme) -> Figure:
    """Crosses where a series failed, with the reason in the hover."""
    marker = {"symbol": "x-thin", "size": 7, "line": {"width": 1.5, "color": neutral(scheme)}}
    points = {"x": [place for place, _ in failed], "text": [hover for _, hover in failed]}
    return {"type": "scatter", "mode": "markers", "marker": marker, "hovertemplate": "%{text}<extra></extra>", **points}


def hover_text(row: Row, value: Measured, what: Quantity, where: str) -> str:
    """What stands beside the pointer at a point; ``where`` (escaped) says which it is."""
    digits = decimals(value.value, 4) if value.value else 0
    interval = f" [{value.low:,.{digits}f} … {value.high:,.{digits}f}]" if value.low and value.high else ""
    number = f"<b>{value.value:,.{digits}f} {what.unit}</b>{interval}".replace(",", THIN)
    lines = [f"<b>{escape(row.variant or row.suite)}</b>", number, where]
    if row.sm_mhz:
        reasons = f", {', '.join(map(escape, row.clock_reasons))}" if row.clock_reasons else ""
        lines.append(f"SM {row.sm_mhz:.0f} MHz{reasons}")
    if row.note:
        lines.append(wrapped(row.note))
    if row.state == "bare":
        lines.append(STATE_LABELS["bare"])
    return "<br>".join(lines)


def wrapped(text: str, width: int = 60) -> str:
    """Text of a hover: escaped, in lines of some letters, and no more than 300 of them."""
    return "<br>".join(map(escape, textwrap.wrap(text[:300], width)))


@lru_cache(maxsize=10_000)
def commit_line(commit: Commit) -> str:
    """Hash, date and subject of a commit for a hover."""
    day = datetime.fromtimestamp(commit.date / 1000, UTC).strftime("%Y-%m-%d")
    return f"{commit.short} {day}<br>{wrapped(commit.subject)}" if commit.subject else f"{commit.short} {day}"


def _level(value: float, scheme: Scheme) -> Figure:
    line = {"color": neutral(scheme), "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value, "line": line, "layer": "below"}
