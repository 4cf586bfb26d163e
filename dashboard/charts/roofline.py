"""The roofline chart: the rate of each case, below the rates of a copy and a matmul in the same run.

Williams, Waterman and Patterson 2009, "Roofline: an insightful visual performance model for multicore architectures":
attainable FLOP/s = min(peak FLOP/s, intensity · peak B/s). The peaks are the measured rates of two controls, a copy
and a matmul, not the peaks of a datasheet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dashboard.charts.axes import log_axis
from dashboard.charts.theme import Scheme, Style, chart_layout, neutral
from lockstep.compare.number_format import significant
from lockstep.compare.row import Row
from lockstep.history.model import Control


def roofline(
    rows: Sequence[Row], controls: Mapping[str, Control], style_of: Mapping[str, Style], scheme: Scheme
) -> dict[str, Any] | None:
    """Return a log-log chart of TFLOP/s against FLOP per byte; ``None`` if costs or the controls' rates are unknown.

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
    line = {"color": neutral(scheme), "width": 1.5}
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "line": line,
            "hoverinfo": "skip",
            "x": [low, ridge, high],
            "y": [low * copy / 1e12, matmul / 1e12, matmul / 1e12],
        }
    ]
    for variant, style in style_of.items():
        variant_rows = [row for row in known if row.variant == variant]
        if variant_rows:
            data.append(_points(variant_rows, variant, style, scheme))
    layout = chart_layout(scheme)
    small = {"size": 11, "color": neutral(scheme)}
    heights = [rate for trace in data for rate in trace["y"]]
    layout["xaxis"] |= log_axis(low, high, narrow=True) | {
        "title": {"text": "FLOP per byte", "standoff": 4, "font": small}
    }
    layout["yaxis"] |= log_axis(min(heights) / 1.5, max(heights) * 1.5) | {"title": {"text": "TFLOP/s", "font": small}}
    return {"data": data, "layout": layout}


def _points(rows: Sequence[Row], variant: str, style: Style, scheme: Scheme) -> dict[str, Any]:
    reached = [(row, row.flops / row.latency.value / 1e12) for row in rows if row.latency]
    text = [
        f"<b>{escape(variant)}</b> {escape(row.l2)}<br>{escape(row.case)}<br><b>{significant(rate, 4)} TFLOP/s</b> at "
        f"{significant(row.flops / row.bytes, 3)} FLOP/B" + (f"<br>bound by {row.bound}" if row.bound else "")
        for row, rate in reached
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": escape(variant),
        "marker": {"color": style.colour(scheme), "size": 7, "symbol": style.marker},
        "x": [row.flops / row.bytes for row, _ in reached],
        "y": [rate for _, rate in reached],
        "text": text,
        "hovertemplate": "%{text}<extra></extra>",
    }
