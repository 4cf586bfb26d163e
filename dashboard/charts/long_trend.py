"""The chart of long trends: as ``dashboard.charts.trend``, from arrays, without a marker and a text for each point.

Twenty series of two thousand commits are forty thousand points; as objects with a hover each they take the server
seconds and the browser longer. Of those in view a chart is sent what it has pixels for, see
``dashboard.charts.thinning``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dashboard.charts.theme import Scheme, Style
from dashboard.charts.thinning import envelope, telling_points
from dashboard.charts.trend import Figure, Mark, finished, stroke
from lockstep.compare.rows import Quantity, series_of
from lockstep.history.model import STATES, Commit, Floats, Ints, SeriesKey, Trend
from lockstep.history.snapshot import Results

#: Points of a page from which its trends are drawn like this.
LONG = 3_000

#: Quantities that a trend has; the others need what only rows have.
DRAWN = ("latency", "speedup")


def long_trends(results: Results, suite: str, keys: Sequence[SeriesKey]) -> dict[str, dict[SeriesKey, Trend]]:
    """Trends of these rows of a suite, by quantity."""
    if not keys:
        return {}
    there = series_of(results, suite, keys[0][0])
    wanted = {one: key for key in keys for one in there.get(key, ())}
    found: dict[str, dict[SeriesKey, Trend]] = {name: {} for name in DRAWN}
    for trend in results.trends(wanted):
        found.setdefault(trend.benchmark.part, {})[wanted[trend.series]] = trend
    return found


def long_trend(
    lines: Mapping[str, Trend],
    commits: Sequence[Commit],
    what: Quantity,
    drawn: Mapping[str, Style],
    scheme: Scheme,
    marks: Sequence[Mark] = (),
    zoom: tuple[float, ...] = (),
    columns: int = 400,
) -> Figure:
    """One quantity of one case over the commits of a machine, a line a variant with its interval as a band.

    Args:
        lines: by variant, of one case and cache state.
        commits: the x axis, oldest first.
        what: "latency" or "speedup".
        drawn: the variants to draw, in order, and how.
        scheme: "light" or "dark".
        marks: changes to mark.
        zoom: range of the x axis, () all; the other axis fits what is in it.
        columns: of pixels that the chart has about; a line has at most two points in each.
    """
    first, last = zoom or (0.0, float(max(len(commits) - 1, 1)))
    width = (last - first) / columns
    factor = 1e6 if what.name == "latency" else 1.0
    bands: list[Figure] = []
    data: list[Figure] = []
    ends: list[float] = []
    failed: set[int] = set()
    for variant, style in drawn.items():
        if variant not in lines:
            continue
        trend = lines[variant]
        failed.update(trend.commit[trend.state == STATES.index("failed")].tolist())
        for own in _runs(trend):
            x, y = trend.commit[own], trend.value[own] * factor
            low, high = (np.where(np.isfinite(end), end * factor, y) for end in (trend.low[own], trend.high[own]))
            seen = (x >= first) & (x <= last)
            if seen.any():
                ends += [float(low[seen].min()), float(high[seen].max())]
            # What lies as far away as a drag of the whole chart leads is drawn as well.
            near = (x >= 2 * first - last) & (x <= 2 * last - first)
            if near.any():
                bands.append(_band(x[near], low[near], high[near], width, style, scheme))
                data.append(_line(x[near], y[near], width, commits, stroke(style, scheme) | _named(variant, what)))
    known = (min(ends), max(ends)) if ends else None
    crosses = [(at, f"failed<br>{commits[at].short}") for at in sorted(failed)]
    return finished([*bands, *data], commits, what, known, crosses, scheme, marks, zoom)


def _named(variant: str, what: Quantity) -> Figure:
    hover = f"<b>{escape(variant)}</b><br><b>%{{y:,.4r}} {escape(what.unit)}</b><br>%{{text}}<extra></extra>"
    return {"mode": "lines", "hovertemplate": hover, "name": escape(variant)}


def _band(x: Ints, low: Floats, high: Floats, width: float, style: Style, scheme: Scheme) -> Figure:
    at, low, high = envelope(x, low, high, width)
    outline = {"x": packed(np.concatenate([at, at[::-1]])), "y": packed(np.concatenate([high, low[::-1]]))}
    fill = {"fill": "toself", "fillcolor": style.band(scheme), "line": {"width": 0}, "mode": "lines"}
    return {"type": "scatter", "hoverinfo": "skip", **fill, **outline}


def _line(x: Ints, y: Floats, width: float, commits: Sequence[Commit], style: Figure) -> Figure:
    kept = telling_points(x, y, width)
    x, y = x[kept], y[kept]
    return style | {"x": packed(x), "y": packed(y), "text": [commits[at].short for at in x.tolist()]}


def packed(values: Floats | Ints) -> dict[str, str]:
    """Numbers as Plotly's typed array: 4 bytes each in place of 18."""
    kind = "i4" if values.dtype.kind == "i" else "f4"
    return {"dtype": kind, "bdata": base64.b64encode(values.astype(f"<{kind}").tobytes()).decode()}


def _runs(trend: Trend) -> list[NDArray[np.intp]]:
    """Places of stretches that compare: a new ruler, or a commit without a number, begins another."""
    known = np.isfinite(trend.value) & (trend.value > 0)
    places = np.flatnonzero(known)
    if not places.size:
        return []
    turn = (np.diff(places) > 1) | (np.diff(trend.version[places]) != 0)
    edges = [0, *(np.flatnonzero(turn) + 1).tolist(), len(places)]
    return [places[start:stop] for start, stop in pairwise(edges)]
