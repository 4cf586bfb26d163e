"""Log-log charts of the cases at one commit, a dot each: the error over the latency, and the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from dashboard.charts.axes import log_axis, scientific
from dashboard.charts.theme import Scheme, Style, chart_layout, guide, titled
from dashboard.charts.trend import Figure
from lockstep.compare.number_format import significant
from lockstep.compare.row import Row
from lockstep.history.model import Control

#: A case with its horizontal position, its vertical position, and the text of its hover for both.
_Dot = tuple[Row, float, float, str]


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
    for variant, style in style_of.items():
        own = [dot for dot in dots if dot[0].variant == variant]
        if own:
            hovers = [
                f"<b>{escape(variant)}</b> {escape(row.l2)}<br>{escape(row.case)}<br><b>{text}" for row, *_, text in own
            ]
            dot: Figure = {
                "type": "scatter",
                "mode": "markers",
                "name": escape(variant),
                "hovertemplate": "%{text}<extra></extra>",
            }
            dot["marker"] = {"color": style.colour(scheme), "size": 7, "symbol": style.marker}
            data.append(dot | {"x": [x for _, x, _, _ in own], "y": [y for _, _, y, _ in own], "text": hovers})
    heights = [y for trace in data for y in trace["y"]]
    layout = chart_layout(scheme)
    layout["xaxis"] |= log_axis(low, high, narrow=True) | titled(titles[0], scheme)
    layout["yaxis"] |= log_axis(min(heights) / room, max(heights) * room) | titled(titles[1], scheme)
    return {"data": data, "layout": layout}
