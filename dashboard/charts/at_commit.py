"""Charts of the cases at one commit: latency over one size, speedup over two, error over latency, and the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from dashboard.charts.axes import differing_parts, log_axis, scientific
from dashboard.charts.lines_and_bands import Figure, hover_text, stroke
from dashboard.charts.theme import CARD, LINES, NEUTRAL, Scheme, Style, chart_layout, guide, titled
from lockstep.compare.number_format import significant, whole
from lockstep.compare.row import Row
from lockstep.compare.series_of_suite import axes_of
from lockstep.compare.shown_quantities import QUANTITIES
from lockstep.history.display_names import natural
from lockstep.history.model import Control

#: Maximum number of labels on the axis, for a phone. Every size has a grid line.
_MOST_LABELS = 8


#: A case with its horizontal position, its vertical position, and the text of its hover for both.
_Dot = tuple[Row, float, float, str]


def sweep(rows: Sequence[Row], axis: str, style_of: Mapping[str, Style], scheme: Scheme) -> Figure:
    """Return a log-log chart of latency in µs over a numeric axis of the case, with a line for each variant.

    A dotted line shows the floor: the lowest latency that the costs of a case allow.
    """
    at = {row.case: float(axes_of(row.case)[axis]) for row in rows}
    data: list[Figure] = []
    latency = QUANTITIES["latency"]
    floors = sorted({(at[row.case], row.floor_s * 1e6) for row in rows if row.floor_s})
    if floors:
        line = guide([x for x, _ in floors], [y for _, y in floors], scheme, "dot")
        hover = f"floor<br>{escape(axis)} = %{{x}}<br><b>%{{y:,.4r}} µs</b><extra></extra>"
        data.append(line | {"hoverinfo": None, "hovertemplate": hover})
    timed = [(row, value) for row in sorted(rows, key=lambda row: at[row.case]) if (value := row.measured("latency"))]
    dots = [(r, at[r.case], value.value, hover_text(r, value, latency, escape(r.case))) for r, value in timed]
    data += _variants(dots, style_of, scheme)
    layout = chart_layout(scheme)
    xs = sorted(set(at.values()))
    step = math.ceil(len(xs) / _MOST_LABELS)
    layout["xaxis"] |= {
        "type": "log",
        **titled(escape(axis), scheme),
        "tickvals": xs,
        "ticktext": ["" if place % step else f"{x:g}" if x < 1e3 else whole(x) for place, x in enumerate(xs)],
        "tickangle": 0,
    }
    values = [y for trace in data for y in trace["y"]]
    if values:
        # The name of the floor is written below the floor's line.
        layout["yaxis"] |= log_axis(min(values) / (1.5 if floors else 1.15), max(values) * 1.15)
    if floors:
        end = {"x": math.log10(floors[0][0]), "y": math.log10(floors[0][1])}
        note = {"text": "floor", "showarrow": False, "xanchor": "left", "yanchor": "top", **end}
        layout["annotations"] = [note | {"font": {"color": NEUTRAL[scheme], "size": 11}}]
    return {"data": data, "layout": layout}


def sweep_axis(cases: Sequence[str], chosen: str) -> tuple[str, list[str]] | None:
    """Return the first numeric axis over which latency can be drawn, and the cases to draw; ``None`` if there is none.

    The cases equal ``chosen`` in all other axes, and there are at least two such cases.
    """
    chosen_axes = axes_of(chosen)
    for axis, value in chosen_axes.items():
        if not is_size(value):
            continue
        other_axes = {name: axis_value for name, axis_value in chosen_axes.items() if name != axis}
        similar = [case for case in cases if _without(case, axis) == other_axes]
        if len(similar) > 1:
            return axis, similar
    return None


def _without(case: str, axis: str) -> dict[str, str] | None:
    """Return a case's axes without ``axis``; ``None`` if its value on that axis is not a positive number."""
    axes = axes_of(case)
    value = axes.pop(axis, "")
    return axes if is_size(value) else None


def is_size(text: str) -> bool:
    """Return whether the value of an axis is a positive number."""
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


#: The speedup, and its inverse, from which a cell has its full colour.
_FULL = 4.0


def speedup_over_axes(rows: Sequence[Row], axis: str, scheme: Scheme) -> Figure | None:
    """Return a heatmap with ``axis`` to the right and the shape's other axes upwards; ``None`` for a single line.

    ``rows``: rows of variants other than the baseline.

    A cell is coloured by the logarithm of the speedup over the baseline: blue is faster, orange is slower.
    """
    fastest: dict[tuple[float, str], Row] = {}
    for row in rows:
        size = axes_of(row.case).get(axis, "")
        if row.speedup is None or row.latency is None or not is_size(size):
            continue
        place = float(size), row.case.replace(f"{axis}={size}", "").strip(",")
        if place not in fastest or row.latency.value < (fastest[place].latency or row.latency).value:
            fastest[place] = row
    across = sorted({size for size, _ in fastest})
    up = sorted({rest for _, rest in fastest}, key=natural)
    if min(len(across), len(up)) < 2:
        return None
    cells = [[fastest.get((size, rest)) for size in across] for rest in up]
    numbers = [[row.speedup.value if row and row.speedup else None for row in line] for line in cells]
    fast, slow, *_ = LINES[scheme]
    short = differing_parts(up)
    layout = chart_layout(scheme)
    layout["xaxis"] |= {"type": "category", "showgrid": False, **titled(escape(axis), scheme)}
    layout["yaxis"] |= {"type": "category", "ticklabelstandoff": 4, "showgrid": False}
    heat = {
        "type": "heatmap",
        "x": [f"{size:g}" if size < 1e4 else whole(size) for size in across],
        "y": [escape(short[rest]) for rest in up],
        "z": [[math.log(number) if number else None for number in line] for line in numbers],
        "text": [[significant(number, 3) if number else "" for number in line] for line in numbers],
        "texttemplate": "%{text}",
        "hovertext": [[_hover(row) if row else "not measured" for row in line] for line in cells],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "colorscale": [[0, slow], [0.5, CARD[scheme]], [1, fast]],
        "zmin": -math.log(_FULL),
        "zmax": math.log(_FULL),
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
    }
    return {"data": [heat], "layout": layout}


def _hover(row: Row) -> str:
    speedup, latency = (measured.value if measured else math.nan for measured in (row.speedup, row.latency))
    numbers = f"<b>{significant(speedup, 4)} ×</b> · {significant(1e6 * latency, 4)} µs"
    return f"<b>{escape(row.variant)}</b><br>{escape(row.case)}<br>{numbers}"


def accuracy(rows: Sequence[Row], style_of: Mapping[str, Style], scheme: Scheme) -> Figure | None:
    """Return a chart of the error of each case against its latency; ``None`` if no case has both numbers."""
    dots = [
        (row, time.value, error.value, f"Error {significant(error.value, 4)}</b> at {significant(time.value, 4)} µs")
        for row in rows
        if (error := row.measured("error")) and (time := row.measured("latency")) and min(error.value, time.value) > 0
    ]
    figure = _chart(dots, (), ("Latency µs", "Error"), style_of, scheme, 1.2)
    if figure:
        scientific(figure["layout"]["yaxis"])
    return figure


def roofline(
    rows: Sequence[Row], controls: Mapping[str, Control], style_of: Mapping[str, Style], scheme: Scheme
) -> Figure | None:
    """Return a chart of TFLOP/s against FLOP per byte; ``None`` if costs or the controls' rates are unknown.

    The roof is min(peak FLOP/s, intensity · peak B/s) (Williams, Waterman and Patterson 2009, "Roofline"). The peaks
    are the rates of two controls in the same run, a copy and a matmul, not those of a datasheet.
    """
    copy, matmul = (controls[name].rate if name in controls else None for name in ("copy", "matmul"))
    if not copy or not matmul:
        return None
    dots = []
    for row in rows:
        if row.flops > 0 and row.bytes > 0 and row.latency:
            intensity, rate = row.flops / row.bytes, row.flops / row.latency.value / 1e12
            text = f"{significant(rate, 4)} TFLOP/s</b> at {significant(intensity, 3)} FLOP/B"
            dots.append((row, intensity, rate, text + (f"<br>bound by {row.bound}" if row.bound else "")))
    return _chart(dots, (copy / 1e12, matmul / 1e12), ("FLOP per byte", "TFLOP/s"), style_of, scheme, 1.5)


def _chart(
    dots: Sequence[_Dot],
    roof: tuple[float, float] | tuple[()],
    titles: tuple[str, str],
    style_of: Mapping[str, Style],
    scheme: Scheme,
    room: float,
) -> Figure | None:
    """Return a chart of the dots of the variants in ``style_of``; ``None`` without any.

    Args:
        roof: slope and height of the line above the dots; () for none.
        titles: titles of the horizontal and the vertical axis.
        room: factor between the outermost values and the ends of the axes.
    """
    dots = [dot for dot in dots if dot[0].variant in style_of]
    if not dots:
        return None
    across = [x for _, x, _, _ in dots] + ([roof[1] / roof[0]] if roof else [])
    low, high = min(across) / room, max(across) * room
    data = [guide((low, across[-1], high), (low * roof[0], roof[1], roof[1]), scheme)] if roof else []
    named = [
        (row, x, y, f"<b>{escape(row.variant)}</b> {escape(row.l2)}<br>{escape(row.case)}<br><b>{text}")
        for row, x, y, text in dots
    ]
    data += [trace | {"mode": "markers"} for trace in _variants(named, style_of, scheme)]
    heights = [y for trace in data for y in trace["y"]]
    layout = chart_layout(scheme)
    layout["xaxis"] |= log_axis(low, high, narrow=True) | titled(titles[0], scheme)
    layout["yaxis"] |= log_axis(min(heights) / room, max(heights) * room) | titled(titles[1], scheme)
    return {"data": data, "layout": layout}


def _variants(dots: Sequence[_Dot], style_of: Mapping[str, Style], scheme: Scheme) -> list[Figure]:
    """Return a line for each variant through its dots, in their order."""
    traces = []
    for variant, style in style_of.items():
        own = [(x, y, text) for row, x, y, text in dots if row.variant == variant]
        if own:
            x, y, text = map(list, zip(*own, strict=True))
            traces.append(stroke(style, scheme) | {"name": escape(variant), "x": x, "y": y, "text": text})
    return traces
