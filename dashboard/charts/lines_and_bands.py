"""The chart of a trend, as a plain Plotly dictionary (``plotly.graph_objects`` would validate it for 30 ms)."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashboard.charts.axes import commit_axis, fitted, scientific, value_axis
from dashboard.charts.marks import Mark, commit_line, wrapped
from dashboard.charts.theme import NEUTRAL, Scheme, Style, chart_layout
from dashboard.charts.thinning import envelope, outline_points
from lockstep.compare.number_format import THIN, decimals
from lockstep.compare.row import STATE_LABELS, Measured, Row
from lockstep.compare.row_table import RowTable
from lockstep.compare.shown_quantities import Quantity
from lockstep.history.hex_digits import copied_words, unpacked
from lockstep.history.model import STATES, Commit, Floats, Ints, gpu_moves

Figure = dict[str, Any]

Places = NDArray[np.intp]

#: Maximum number of visible commits of a chart that draws a marker for each point; with more, hollow ones are not seen.
MARKED = 200


def trend(
    rows: RowTable,
    commits: Sequence[Commit],
    quantity: Quantity,
    style_of: Mapping[str, Style],
    scheme: Scheme,
    marks: Sequence[Mark] = (),
    zoom: tuple[float, ...] = (),
    columns: int = 0,
    begin: int = 0,
    steps: Sequence[int] = (),
) -> Figure:
    """Return the chart of one quantity of one case over the commits of a machine.

    Each variant has a line, and its interval is a band. Twenty series of two thousand commits are forty thousand
    points, and a marker and a hover text for each take the server seconds and the browser longer. Therefore
    ``columns`` reduces the number of points (``dashboard.charts.thinning``).

    Args:
        rows: the rows of one machine, suite, case and cache state.
        commits: the x axis, oldest first.
        style_of: the style of each variant to draw, in order.
        zoom: visible range of the x axis, () for all. The y axis fits the visible points.
        columns: approximate width of the chart in pixels, of which each gets at most two points of a line; 0 draws
            every point.
        begin: index of the first visible commit without a zoom.
        steps: indices of commits before which lines break, because the level of the series changed there.
    """
    first, last = zoom or (float(begin), float(max(len(commits) - 1, 1)))
    thinned = _Thinning(first, last, (last - first) / columns) if columns else None
    bands: list[Figure] = []
    lines: list[Figure] = []
    drawn: list[tuple[Floats, Floats, Floats]] = []
    failed: list[tuple[int, str]] = []
    keys = rows.columns["key"]
    key_of = {rows.series_keys.keys[key].variant: key for key in np.unique(keys).tolist()}
    for variant, style in style_of.items():
        variant_rows = rows.select(keys == key_of.get(variant, -1))
        variant_rows = variant_rows.select(np.argsort(variant_rows.columns["commit"], kind="stable"))
        x, (y, low, high) = variant_rows.columns["commit"], variant_rows.interval(quantity.name)
        for run in _runs(y, variant_rows, steps):
            visible = run[(x[run] >= first) & (x[run] <= last)] if zoom else run
            drawn.append((y[visible], low[visible], high[visible]))
            if thinned:
                run = thinned.nearby(x, run)
            known = run[~np.isnan(low[run]) & ~np.isnan(high[run])]
            if len(run):
                bands.append(_band(x[known], low[known], high[known], style, scheme, thinned))
                shape = stroke(style, scheme) | {"name": escape(variant)}
                lines.append(_line(variant_rows, run, x, y, quantity, commits, shape, thinned))
                lines += _dots(variant_rows, run, x, y, shape) if thinned and not thinned.marked else []
        for place in np.flatnonzero(variant_rows.columns["state"] == STATES.index("failed")).tolist():
            row, commit = variant_rows[place], commits[x[place]]
            reason = f"<b>{escape(variant)}</b> {STATE_LABELS[row.state]}<br>{wrapped(row.reason)}"
            failed.append((int(x[place]), f"{reason}<br>{commit_line(commit)}"))
    extent = fitted(*map(np.concatenate, zip(*drawn, strict=True))) if drawn else None
    figure = finished([*bands, *lines], commits, quantity, extent, failed, scheme, marks, zoom, begin)
    if (thinned is None or thinned.marked) and rows.columns["same_work_as"].any():
        explain_hollow(figure, scheme)
    return figure


def explain_hollow(figure: Figure, scheme: Scheme) -> None:
    """Write above a chart what its hollow points are, beside the notes that it has."""
    # The buttons that save the chart appear on the right.
    place = {"xref": "paper", "x": 0, "xanchor": "left", "yref": "paper", "y": 1, "yanchor": "bottom"}
    font = {"color": NEUTRAL[scheme], "size": 11}
    text = "hollow: same work as another commit, not timed again"
    layout = figure["layout"]
    layout["annotations"] = [*layout.get("annotations", ()), {"text": text, "showarrow": False, "font": font, **place}]
    layout["margin"]["t"] = max(layout["margin"]["t"], 22)


@dataclass(frozen=True)
class _Thinning:
    """Range and resolution of a chart with fewer points: commits ``first`` to ``last``, ``width`` commits a column."""

    first: float
    last: float
    width: float

    @property
    def marked(self) -> bool:
        """Whether so few commits are visible that each point gets a marker."""
        return self.last - self.first <= MARKED

    def nearby(self, x: Ints, run: Places) -> Places:
        """Return the points of ``run`` in the visible range, and as far to its left and right as a drag can move."""
        nearby = (x[run] >= 2 * self.first - self.last) & (x[run] <= 2 * self.last - self.first)
        return run[nearby]


def finished(
    data: Sequence[Figure],
    commits: Sequence[Commit],
    quantity: Quantity,
    ends: tuple[float, float] | None,
    failed: Sequence[tuple[int, str]],
    scheme: Scheme,
    marks: Sequence[Mark],
    zoom: tuple[float, ...] = (),
    begin: int = 0,
) -> Figure:
    """Return a chart of the given lines over commits, with axes, crosses for failures and the marks of changes.

    Args:
        commits: the x axis, oldest first.
        ends: lowest and highest value within ``zoom``; ``None`` without values.
        failed: commit index and hover text (escaped for HTML) of each failure, drawn as a cross at the bottom.
        zoom: visible range of the x axis, () for all from the commit ``begin``.
    """
    layout = chart_layout(scheme)
    layout["xaxis"] |= commit_axis(commits, zoom, begin)
    # Fixed margins with space for every label. With automatic margins Plotly would draw everything twice.
    layout["margin"] = {"l": 52, "r": 24, "t": 8, "b": 30}
    layout["xaxis"]["automargin"], layout["yaxis"]["automargin"] = False, "left"
    layout["yaxis"]["fixedrange"] = True
    # Without numbers there are still marks of failures, and marks need a range.
    unit = quantity.unit if quantity.unit in "×%" else ""
    layout["yaxis"] |= value_axis(*ends, unit) if ends else {"range": [0, 1], "showticklabels": False}
    if quantity.name == "error":
        scientific(layout["yaxis"])
    line = {"type": "line", "layer": "below"}
    along, upright = {"xref": "paper", "x0": 0, "x1": 1}, {"yref": "paper", "y0": 0, "y1": 1}
    layout["shapes"] = [
        line
        | upright
        | {"x0": mark.place - 0.5, "x1": mark.place - 0.5, "line": {"color": mark.colour, "width": 1.25, "dash": "dot"}}
        for mark in marks
    ]
    if quantity.name == "speedup":
        one = {"y0": 1.0, "y1": 1.0, "line": {"color": NEUTRAL[scheme], "width": 1, "dash": "dot"}}
        layout["shapes"].insert(0, line | along | one)
    below = [_crosses(failed, scheme) | _height(layout, [0.03] * len(failed))] if failed else []
    above = []
    if marks:
        # Signs of one place stand below each other.
        places = [(mark.place, mark.beside) for mark in marks]
        shares = [(0.80 if place[1] else 0.96) - 0.08 * places[:at].count(place) for at, place in enumerate(places)]
        above = [_signs(marks, sum(layout["xaxis"]["range"]) / 2) | _height(layout, shares)]
    return {"data": [*data, *below, *above], "layout": layout}


def _height(layout: Figure, shares: Sequence[float]) -> Figure:
    """Return the vertical positions of marks that have no value, each at a share of the chart's height."""
    low, high = layout["yaxis"]["range"]
    heights = [low + share * (high - low) for share in shares]
    return {"y": [10**height if layout["yaxis"].get("type") == "log" else height for height in heights]}


def _signs(marks: Sequence[Mark], middle: float) -> Figure:
    """Return the signs above the marks' lines, with the hover texts. ``middle`` is the middle of the x axis."""
    colours = [mark.colour for mark in marks]
    return {
        "type": "scatter",
        "mode": "text",
        "x": [mark.place - 0.5 for mark in marks],
        "text": [mark.sign for mark in marks],
        # A text beside its line is not cut off at the ends of the chart.
        "textposition": [
            "middle center" if len(mark.sign) == 1 else f"middle {'right' if mark.place < middle else 'left'}"
            for mark in marks
        ],
        "textfont": {"color": colours, "size": 12},
        "hovertext": [mark.hover for mark in marks],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _runs(y: Floats, rows: RowTable, steps: Sequence[int]) -> list[Places]:
    """Split the indices of a line's numbers where the line breaks: at a new benchmark version, a missing number, a
    move to another GPU, or a step.
    """
    places = np.flatnonzero(~np.isnan(y))
    version, gpu = (rows.columns[name][places] for name in ("version", "gpu"))
    level = np.searchsorted(sorted(steps), rows.columns["commit"][places], "right")
    turn = (np.diff(places) > 1) | (np.diff(version) != 0) | gpu_moves(gpu) | (np.diff(level) > 0)
    return np.split(places, np.flatnonzero(turn) + 1) if len(places) else []


def _band(x: Ints, low: Floats, high: Floats, style: Style, scheme: Scheme, thinned: _Thinning | None) -> Figure:
    at: Floats | Ints = x
    if thinned and len(x):
        at, low, high = envelope(x, low, high, thinned.width)
    outline = np.concatenate([at, at[::-1]]), np.concatenate([high, low[::-1]])
    xs, ys = (packed(values) if thinned else values.tolist() for values in outline)
    fill = {"fill": "toself", "fillcolor": style.band(scheme), "line": {"width": 0}, "mode": "lines"}
    return {"type": "scatter", "x": xs, "y": ys, "hoverinfo": "skip", **fill}


def _line(
    rows: RowTable,
    run: Places,
    x: Ints,
    y: Floats,
    quantity: Quantity,
    commits: Sequence[Commit],
    shape: Figure,
    thinned: _Thinning | None,
) -> Figure:
    copied = rows.columns["same_work_as"]

    def marker(run: Places) -> Figure:
        symbol = shape["marker"]["symbol"]
        return {**shape["marker"], "symbol": symbols(symbol, copied[run] != 0) or symbol}

    if thinned:
        run = run[outline_points(x[run], y[run], thinned.width)]
        name, unit = shape["name"], escape(quantity.unit)
        hover = f"<b>{name}</b><br><b>%{{y:,.4r}} {unit}</b><br>%{{text}}<extra></extra>"
        texts = [
            f"{commits[at].short}<br>{copied_words(unpacked(digits))}" if digits else commits[at].short
            for at, digits in zip(x[run].tolist(), copied[run].tolist(), strict=True)
        ]
        thin = {"mode": "lines+markers" if thinned.marked else "lines", "hovertemplate": hover, "marker": marker(run)}
        return shape | thin | {"x": packed(x[run]), "y": packed(y[run]), "text": texts}
    low, high = rows.interval(quantity.name)[1:]
    texts = []
    for place in run.tolist():
        ends = (None if np.isnan(end) else float(end) for end in (low[place], high[place]))
        texts.append(
            hover_text(rows[place], Measured(float(y[place]), *ends), quantity, commit_line(commits[x[place]]))
        )
    return shape | {"marker": marker(run), "x": x[run].tolist(), "y": y[run].tolist(), "text": texts}


def _dots(rows: RowTable, run: Places, x: Ints, y: Floats, shape: Figure) -> list[Figure]:
    """Return dots at the measurements of a line without markers whose other points are copies; [] for other lines."""
    timed = run[rows.columns["same_work_as"][run] == 0]
    if not 0 < len(timed) < min(len(run), MARKED):
        return []
    dots = {
        "mode": "markers",
        "marker": shape["marker"] | {"size": 4, "symbol": "circle"},
        "hoverinfo": "skip",
        "hovertemplate": None,
    }
    return [shape | dots | {"x": packed(x[timed]), "y": packed(y[timed])}]


def symbols(marker: str, copied: Sequence[bool] | NDArray[np.bool_]) -> list[str]:
    """Return the symbol of each point, hollow for copies of the same work; [] if no point is a copy."""
    return [f"{marker}-open" if hollow else marker for hollow in copied] if any(copied) else []


def packed(values: Floats | Ints) -> dict[str, str]:
    """Return numbers as Plotly's typed array, which takes 4 bytes per number instead of 18."""
    kind = "i4" if values.dtype.kind == "i" else "f4"
    return {"dtype": kind, "bdata": base64.b64encode(values.astype(f"<{kind}").tobytes()).decode()}


def stroke(style: Style, scheme: Scheme) -> Figure:
    """Return the Plotly options of a variant's line: colour, width, dash and markers."""
    colour = style.colour(scheme)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "line": {"color": colour, "width": style.width, "dash": style.dash},
        "marker": {"color": colour, "size": 6, "symbol": style.marker},
        "hovertemplate": "%{text}<extra></extra>",
    }


def _crosses(failed: Sequence[tuple[int, str]], scheme: Scheme) -> Figure:
    """Return crosses at the failures of a series, with the reason in the hover."""
    marker = {"symbol": "x-thin", "size": 7, "line": {"width": 1.5, "color": NEUTRAL[scheme]}}
    points = {"x": [place for place, _ in failed], "text": [hover for _, hover in failed]}
    return {"type": "scatter", "mode": "markers", "marker": marker, "hovertemplate": "%{text}<extra></extra>", **points}


def hover_text(row: Row, value: Measured, quantity: Quantity, place: str) -> str:
    """Return the hover text of a point. ``place`` says which commit or case the point belongs to, escaped for HTML."""
    digits = decimals(value.value, 4) if value.value else 0
    interval = f" [{value.low:,.{digits}f} … {value.high:,.{digits}f}]" if value.low and value.high else ""
    number = f"<b>{value.value:,.{digits}f} {quantity.unit}</b>{interval}".replace(",", THIN)
    if quantity.name == "error":
        number = f"<b>{value.value:.3e}</b>"
    lines = [f"<b>{escape(row.variant or row.suite)}</b>", number, place]
    if row.sm_mhz:
        reasons = f", {', '.join(map(escape, row.clock_reasons))}" if row.clock_reasons else ""
        lines.append(f"SM {row.sm_mhz:.0f} MHz{reasons}")
    if row.note:
        lines.append(wrapped(row.note))
    if row.state == "bare" and row.variant:
        lines.append(STATE_LABELS["bare"])
    return "<br>".join(lines)
