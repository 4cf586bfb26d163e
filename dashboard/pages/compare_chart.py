"""The chart of a comparison: the change of each case against its latency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from html import escape

from dashboard.charts.axes import log_axis
from dashboard.charts.theme import Scheme, chart_layout, lines, neutral
from dashboard.charts.trend import Figure
from lockstep.alerts.text import change
from lockstep.compare.number_format import significant
from lockstep.compare.two_sides import Pair
from lockstep.compare.verdict import LOUDEST

_SYMBOLS = {
    "slower": "triangle-down",
    "faster": "triangle-up",
    "baseline moved": "diamond-open",
    "same": "circle",
    "unsure": "circle-open",
}


def scatter(pairs: Sequence[Pair], scheme: Scheme) -> Figure:
    """Return a chart of each timed case's change in per cent against its latency at base. Markers show verdicts."""
    data: list[Figure] = []
    fast, slow, *_ = lines(scheme)
    for verdict in LOUDEST:
        plotted = [p for p in pairs if p.verdict == verdict and math.isfinite(p.log) and p.base]
        if not plotted:
            continue
        colour = {"slower": slow, "faster": fast}.get(verdict, neutral(scheme))
        known = [p if math.isfinite(p.error) else replace(p, error=0.0) for p in plotted]
        # A ratio's interval is longer upwards. If it were drawn equally long downwards, it would end below -100 %.
        up = [100 * (math.expm1(p.high) - math.expm1(p.log)) for p in known]
        down = [100 * (math.expm1(p.log) - math.expm1(p.low)) for p in known]
        bars = {"type": "data", "array": up, "arrayminus": down, "color": colour, "thickness": 1, "width": 0}
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"{verdict} {len(plotted)}",
                "x": [1e6 * p.base for p in plotted if p.base],
                "y": [100 * math.expm1(p.log) for p in plotted],
                "error_y": bars,
                "text": [_hover(p) for p in plotted],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {"color": colour, "size": 8, "symbol": _SYMBOLS.get(verdict, "x")},
            }
        )
    figure = chart_layout(scheme)
    times = [time for trace in data for time in trace["x"]]
    if times:
        figure["xaxis"] |= log_axis(min(times) / 1.15, max(times) * 1.15, narrow=True)
    shown = [100 * abs(math.expm1(pair.log)) for pair in pairs if math.isfinite(pair.log)]
    figure["yaxis"] |= {"ticksuffix": " %"}
    if max(shown, default=0.0) < 1:
        # The noise of two equal commits must not fill the chart.
        figure["yaxis"]["range"] = [-1.2, 1.2]
    figure["showlegend"] = True
    figure["legend"] = {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0}
    line = {"color": neutral(scheme), "width": 1, "dash": "dot"}
    figure["shapes"] = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 0, "y1": 0, "line": line}]
    return {"data": data, "layout": figure}


def _hover(pair: Pair) -> str:
    name = " ".join(part for part in (pair.suite, pair.head_variant, pair.case, pair.l2) if part)
    base, head = (f"{significant(1e6 * latency, 4)} µs" if latency else "–" for latency in (pair.base, pair.head))
    lines = [f"<b>{escape(name)}</b>", f"<b>{change(pair.log)}</b> · {base} → {head}"]
    if pair.verdict == "baseline moved" and pair.times:
        lines.append(pair.times.text)
    return "<br>".join(lines)
