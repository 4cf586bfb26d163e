"""The map of a family's shapes: the speedup of the fastest variant over two axes of the shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from dashboard.charts.axes import differing_parts
from dashboard.charts.size_sweep import is_size
from dashboard.charts.theme import Scheme, chart_layout, lines, surface, titled
from dashboard.charts.trend import Figure
from lockstep.compare.number_format import significant, whole
from lockstep.compare.row import Row
from lockstep.compare.series_of_suite import axes_of
from lockstep.history.display_names import natural

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
    fast, slow, *_ = lines(scheme)
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
        "colorscale": [[0, slow], [0.5, surface(scheme)], [1, fast]],
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
