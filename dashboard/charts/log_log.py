"""Draw one quantity over another at one commit: a cost or the error over the latency, and the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dashboard.charts.axes import log_axis, scientific
from dashboard.charts.theme import Scheme, Style, chart_layout, guide, titled
from dashboard.charts.trend import Figure
from lockstep.compare.number_format import significant
from lockstep.compare.row import Row
from lockstep.compare.shown_quantities import QUANTITIES, Quantity
from lockstep.history.model import Control


def against(
    pairs: Sequence[tuple[Row, Row]], quantity: Quantity, style_of: Mapping[str, Style], scheme: Scheme
) -> Figure | None:
    """Return a log-log chart of a quantity over the latency of the same cases; ``None`` if no case has both numbers.

    If the quantity is a time, a line marks where it equals the latency.

    Args:
        pairs: for each series, a row with the quantity and a row with the latency.
    """
    latency = QUANTITIES["latency"]
    points = [
        (row, value.value, time.value)
        for row, timed in pairs
        if row.variant in style_of
        and (value := row.measured(quantity.name))
        and (time := timed.measured("latency"))
        and min(value.value, time.value) > 0
    ]
    if not points:
        return None
    low, high = min(x for *_, x in points) / 1.2, max(x for *_, x in points) * 1.2
    data = [guide((low, high), (low, high), scheme, "dot")] if quantity.unit == latency.unit else []
    data += dots([(row, x, y, _hover(row, y, x, quantity)) for row, y, x in points], style_of, scheme)
    titles = f"Latency {latency.unit}", f"{quantity.label} {quantity.unit}"
    figure = log_log(data, (low, high), titles, scheme, 1.2)
    if quantity.name == "error":
        scientific(figure["layout"]["yaxis"])
    return figure


def log_log(
    data: list[Figure], ends: tuple[float, float], titles: tuple[str, str], scheme: Scheme, room: float
) -> Figure:
    """Return a chart with two logarithmic axes.

    Args:
        ends: ends of the horizontal axis.
        titles: titles of the horizontal and the vertical axis.
        room: factor between the outermost values and the ends of the vertical axis.
    """
    layout = chart_layout(scheme)
    heights = [y for trace in data for y in trace["y"]]
    layout["xaxis"] |= log_axis(*ends, narrow=True) | titled(titles[0], scheme)
    layout["yaxis"] |= log_axis(min(heights) / room, max(heights) * room) | titled(titles[1], scheme)
    return {"data": data, "layout": layout}


def dots(
    points: Sequence[tuple[Row, float, float, str]], style_of: Mapping[str, Style], scheme: Scheme
) -> list[Figure]:
    """Return the points of each variant as markers; a point is its row, x, y and hover text."""
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": escape(variant),
            "marker": {"color": style.colour(scheme), "size": 7, "symbol": style.marker},
            "x": [x for _, x, _, _ in own],
            "y": [y for _, _, y, _ in own],
            "text": [hover for *_, hover in own],
            "hovertemplate": "%{text}<extra></extra>",
        }
        for variant, style in style_of.items()
        if (own := [point for point in points if point[0].variant == variant])
    ]


def _hover(row: Row, value: float, time: float, quantity: Quantity) -> str:
    return (
        f"<b>{escape(row.variant)}</b> {escape(row.l2)}<br>{escape(row.case)}<br>"
        f"<b>{quantity.label} {significant(value, 4)} {quantity.unit}</b> at {significant(time, 4)} µs"
    )


def roofline(
    rows: Sequence[Row], controls: Mapping[str, Control], style_of: Mapping[str, Style], scheme: Scheme
) -> dict[str, Any] | None:
    """Return a log-log chart of TFLOP/s against FLOP per byte; ``None`` if costs or the controls' rates are unknown.

    The roof is min(peak FLOP/s, intensity · peak B/s) (Williams, Waterman and Patterson 2009, "Roofline"). The peaks
    are the rates of two controls in the same run, a copy and a matmul, not those of a datasheet.

    Args:
        rows: the rows of one machine at one commit.
        controls: the controls of the run at that commit, by name: "copy" and "matmul".
    """
    known = [row for row in rows if row.variant in style_of and row.flops > 0 and row.bytes > 0 and row.latency]
    copy, matmul = (controls[name].rate if name in controls else None for name in ("copy", "matmul"))
    if not known or not copy or not matmul:
        return None
    intensities = [row.flops / row.bytes for row in known]
    ridge = matmul / copy
    low, high = min(*intensities, ridge) / 1.5, max(*intensities, ridge) * 1.5
    roof = low * copy / 1e12, matmul / 1e12, matmul / 1e12
    data = [guide((low, ridge, high), roof, scheme)]
    data += dots([_point(row, row.latency.value) for row in known if row.latency], style_of, scheme)
    return log_log(data, (low, high), ("FLOP per byte", "TFLOP/s"), scheme, 1.5)


def _point(row: Row, seconds: float) -> tuple[Row, float, float, str]:
    intensity, rate = row.flops / row.bytes, row.flops / seconds / 1e12
    text = f"<b>{escape(row.variant)}</b> {escape(row.l2)}<br>{escape(row.case)}<br>"
    text += f"<b>{significant(rate, 4)} TFLOP/s</b> at {significant(intensity, 3)} FLOP/B"
    return row, intensity, rate, text + (f"<br>bound by {row.bound}" if row.bound else "")
