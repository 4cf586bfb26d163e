"""The heatmap of families and shapes: one row per suite, one column per shape from small to large."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from dashboard.address import SeriesAddress
from dashboard.charts.theme import MONO, Scheme, chart_layout
from lockstep.alerts.text import change
from lockstep.compare.series_status import Status, Statuses
from lockstep.compare.verdict import LOUDEST, SIGNS, Verdict, word
from lockstep.history.display_names import natural
from lockstep.history.model import STATES

#: The values that the heatmap can show, with their names.
SHOWN: dict[str, str] = {"change": "Change", "speedup": "Speedup", "floor": "% of floor"}

#: Limits of the colour scale: log₂ of the change (0.3 is 23 %), log₂ of the speedup, and percent of the floor.
_CLIP = {"change": 0.3, "speedup": 1.0}

#: Orange is worse, blue is better. Text stays readable on all of these colours.
_DIVERGING: dict[Scheme, tuple[str, str, str]] = {
    "light": ("#F0A05A", "#F1F3F5", "#7DB8E8"),
    "dark": ("#A04E12", "#22282E", "#1F659C"),
}
_ONE_WAY: dict[Scheme, tuple[str, str]] = {"light": ("#F1F3F5", "#7DB8E8"), "dark": ("#22282E", "#1F659C")}

#: Maximum families and shapes of a heatmap.
MOST_SUITES, MOST_SHAPES = 60, 200

_ROW_PX, _LEAST_PX = 30, 12

#: Minimum columns of the layout, so that the cells of a few shapes do not become very wide.
_LEAST_WIDE = 12

#: The order in which a verdict represents several variants of a shape; "baseline moved" represents them last.
_LOUDEST: tuple[Verdict, ...] = (
    "failed",
    "slower",
    "changed",
    "faster",
    "unsure",
    "same",
    "baseline moved",
    "new",
    "not measured",
)

_LOUDNESS = np.array([_LOUDEST.index(verdict) for verdict in LOUDEST])


def heatmap(statuses: Statuses, show: str, scheme: Scheme) -> dict[str, Any]:
    """Return the heatmap of suites and shapes.

    A cell shows one variant of the suite: the one that changed most if ``show`` is "change", else the best.

    Args:
        statuses: the statuses of the series of one machine and one cache state.
        show: the value in the cells, see ``SHOWN``.
    """
    cells = {(status.row.suite, status.row.case): status for status in _chosen(_loudest(statuses), show)}
    order: dict[str, list[str]] = defaultdict(list)
    for suite, case in sorted(cells, key=lambda cell: (cell[0], natural(cell[1]))):
        order[suite].append(case)
    suites = list(order)
    wide = max((len(cases) for cases in order.values()), default=0)
    z: list[list[float | None]] = []
    text, hover, link = [], [], []
    for suite in suites:
        chosen = [cells[suite, case] for case in order[suite]]
        blank = wide - len(chosen)
        z.append([_colour(status, show) for status in chosen] + [None] * blank)
        text.append([_text(status, show, wide) for status in chosen] + [""] * blank)
        hover.append([_hover(status, show) for status in chosen] + [""] * blank)
        link.append([SeriesAddress(*status.row.key).link() for status in chosen] + [""] * blank)
    end = _CLIP.get(show, 100.0)
    trace = {
        "type": "heatmap",
        "z": z,
        "y": [escape(suite) for suite in suites],
        "text": text,
        "texttemplate": "%{text}",
        "customdata": link,
        "hovertext": hover,
        "hovertemplate": "%{hovertext}<extra></extra>",
        "hoverongaps": False,
        "xgap": 2,
        "ygap": 2,
        "zmin": -end if show in _CLIP else 0.0,
        "zmax": end,
        "colorscale": _scale(show, scheme),
        "showscale": False,
    }
    layout = chart_layout(scheme)
    layout["xaxis"] |= {"showgrid": False, "showticklabels": False, "fixedrange": True}
    layout["xaxis"] |= {"range": [-0.5, max(wide, _LEAST_WIDE) - 0.5], "showline": False}
    layout["yaxis"] |= {
        "autorange": "reversed",
        "showgrid": False,
        "fixedrange": True,
        "tickfont": layout["yaxis"]["tickfont"] | {"family": MONO},
    }
    layout["margin"] = {"l": 10, "r": 8, "t": 6, "b": 6}
    return {"data": [trace], "layout": layout}


def _loudest(statuses: Statuses) -> Statuses:
    """Return the series of the suites and shapes with the gravest verdicts, as many as fit into the heatmap."""
    statuses = statuses.select(np.flatnonzero(statuses.rows.columns["state"] != STATES.index("na")))
    index, key = statuses.rows.series_keys, statuses.rows.columns["key"]
    suites, suite = np.unique(index.suite[key], return_inverse=True)
    # A shape has one column for all of its cache states.
    shapes, shape = np.unique(np.stack([suite, index.case[key]]), axis=1, return_inverse=True)
    loud = np.full(shapes.shape[1], len(LOUDEST))
    np.minimum.at(loud, shape, _LOUDNESS[statuses.verdict])
    size = np.zeros(shapes.shape[1])
    np.maximum.at(size, shape, np.where(statuses.beyond_noise & ~np.isnan(statuses.worse), np.abs(statuses.worse), 0.0))
    # Shapes by suite, the loudest first. The first shape of a suite gives the suite's loudness.
    order = np.lexsort((np.arange(len(loud)), -size, loud, shapes[0]))
    start = np.searchsorted(shapes[0][order], np.arange(len(suites)))
    rank = np.empty(len(loud), dtype=np.intp)
    rank[order] = np.arange(len(loud)) - start[shapes[0][order]]
    loudest = order[start]
    chosen = np.lexsort((np.arange(len(suites)), -size[loudest], loud[loudest]))[:MOST_SUITES]
    return statuses.select(np.flatnonzero(np.isin(suite, chosen) & (rank[shape] < MOST_SHAPES)))


def heat_style(figure: Mapping[str, Any]) -> dict[str, Any]:
    """Return the CSS style of the chart: its height, and the number of columns, which sets its width on a phone."""
    suites = len(figure["data"][0]["y"])
    height = 12 + suites * max(_LEAST_PX, min(_ROW_PX, 600 // max(suites, 1)))
    return {"height": height, "--columns": round(figure["layout"]["xaxis"]["range"][1] + 0.5)}


def _chosen(statuses: Statuses, show: str) -> Statuses:
    """Return the series to show for each suite and shape: for "change" the one that changed most, else the best."""
    index, key = statuses.rows.series_keys, statuses.rows.columns["key"]
    shape = index.suite[key].astype(np.int64) << 32 | index.case[key]
    if show == "change":
        size = np.where(np.isnan(statuses.worse), 0.0, np.abs(statuses.worse))
        order = np.lexsort((-size, ~statuses.beyond_noise, _LOUDNESS[statuses.verdict], shape))
    else:
        number = statuses.rows.measured(show)
        order = np.lexsort((-np.where(np.isnan(number), 0.0, number), shape))
    _, first = np.unique(shape[order], return_index=True)
    return statuses.select(order[first])


def _number(status: Status, show: str) -> float | None:
    measured = status.row.measured(show)
    return measured.value if measured else None


def _colour(status: Status, show: str) -> float | None:
    """Return a cell's value on the colour scale; 0, drawn without colour, for a change or speedup within the noise."""
    if show == "change":
        if status.worse is None or not status.beyond_noise or status.verdict == "changed":
            return 0.0
        return -status.worse / math.log(2)
    measured = status.row.measured(show)
    if measured is None:
        return None
    if show != "speedup":
        return measured.value
    significant = measured.low is not None and measured.high is not None and not measured.low <= 1 <= measured.high
    return math.log2(measured.value) if significant else 0.0


def _text(status: Status, show: str, wide: int) -> str:
    if show == "change":
        sign = SIGNS[status.verdict] if status.beyond_noise or status.verdict in ("failed", "not measured") else ""
        # A change from or to zero has no size.
        sized = status.beyond_noise and status.verdict != "failed" and status.worse is not None
        change_text = f" {_percent(status)}" if sized and wide <= 24 else ""
        return sign + change_text or ("·" if status.verdict == "new" else "")
    number = _number(status, show)
    if number is None or wide > 24:
        return ""
    return f"{number:.2f}" if show == "speedup" else f"{number:.0f}"


def _percent(status: Status) -> str:
    return f"{100 * math.expm1(status.moved or 0.0):+z.0f} %".replace("-", "−")


def _hover(status: Status, show: str) -> str:
    row = status.row
    lines = [f"<b>{escape(row.suite)}</b> {escape(row.variant)}", escape(" ".join((row.case, row.l2)).strip())]
    if show == "change":
        number = (
            "no number to compare" if status.moved is None else change(status.moved) + ("" if row.value else " time")
        )
        lines.append(f"<b>{number}</b> · {word(status.verdict, status.row.unit)}{_uncertainty(status)}")
    else:
        value = _number(status, show)
        lines.append(
            "–" if value is None else f"<b>{value:.2f} ×</b>" if show == "speedup" else f"<b>{value:.1f} %</b>"
        )
    return "<br>".join(line for line in lines if line)


def _uncertainty(status: Status) -> str:
    if status.verdict == "not measured":
        return f" since {status.row.commit[:8]}"
    if status.verdict != "unsure" or status.worse is None:
        return ""
    if status.beyond_noise:
        return ", beyond the noise, not confirmed"
    return ", noise unknown" if math.isnan(status.noise) else ", within the noise"


def _scale(show: str, scheme: Scheme) -> list[list[Any]]:
    if show == "floor":
        low, high = _ONE_WAY[scheme]
        return [[0, low], [1, high]]
    worse, none, better = _DIVERGING[scheme]
    return [[0, worse], [0.5, none], [1, better]]
