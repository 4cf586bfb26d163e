"""The overview's table of families: one row per family with its changes, its best variants, and a cell per shape."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
from dash import dcc, html

from dashboard.address import FamilyAddress, SeriesAddress
from dashboard.pages.family_trends import chained
from dashboard.pages.parts import table
from lockstep.alerts.text import change
from lockstep.compare.number_format import significant, whole
from lockstep.compare.series_status import Statuses
from lockstep.compare.verdict import CHANGED, LOUDEST, SIGNS, Verdict, word
from lockstep.history.model import STATES, SeriesKey, Trend
from lockstep.history.snapshot import Results

#: Maximum families of the table, and maximum shapes of a family.
MOST_SUITES, MOST_SHAPES = 60, 40

#: Commits of a trend.
TREND = 24

#: Log of the change at which a cell has its full colour: 23 %.
_FULL = 0.3 * math.log(2)

_HEAD = {
    "Family": "",
    "Changed": "confirmed changes since the compared commit, and the largest of them",
    "Trend": f"time of the best variants over the last {TREND} commits, all shapes; down is faster",
    "Speedup ×": "geometric mean over the shapes: the baseline's time divided by the best variant's",
    "% of floor": "median over the shapes: the hardware's limit divided by the time of the best variant",
    "Shapes, small → large": "each cell is a shape and shows the variant that changed most",
}


def families(results: Results, statuses: Statuses) -> Any:
    """Return the table of families: new failures and slowdowns first, the largest first; ``None`` without any series.

    Args:
        statuses: the statuses of one machine's series of one quantity.
    """
    shown = _loudest(statuses)
    if not len(shown):
        return None
    suites = shown.rows.series_keys.suite[shown.rows.columns["key"]]
    members = [shown.select(np.flatnonzero(suites == suite)) for suite in np.unique(suites)]
    of_shapes = [_of_each_shape(one) for one in members]
    trends = _trends(results, [key for _, best in of_shapes for key in best.rows.keys])
    rows = [_Family(own, *shapes, trends) for own, shapes in zip(members, of_shapes, strict=True)]
    rows.sort(key=lambda row: (row.loudness, -row.lost, row.name))
    cells = [[row.cells.get(name, html.Td("–", className="dim")) for name in _HEAD] for row in rows]
    slower, faster = (word(verdict, shown.rows.units[0]) for verdict in ("slower", "faster"))
    # Beside a speedup, a falling line of times looks like a loss.
    heads = {
        f"{name} of the time" if (name, slower) == ("Trend", "slower") else name: hint for name, hint in _HEAD.items()
    }
    card = table(tuple(heads), cells, "Families", "plain families", heads)
    number = len(np.unique(statuses.rows.series_keys.suite[statuses.rows.columns["key"]]))
    omitted = f"{MOST_SUITES} of {whole(number)} families are shown, those that changed most. "
    legend = (
        f"{omitted if number > MOST_SUITES else ''}Orange: {slower}. Blue: {faster}. Full colour: 23 % or more. No "
    )
    legend += f"colour: within the noise. {SIGNS['unsure']}: beyond the noise, not confirmed. Hollow: new."
    card.children = [card.children, html.P(legend, className="legend dim")]
    return card


def shown_suites(statuses: Statuses) -> list[str]:
    """Return the suites that the table of families shows."""
    return sorted({key.suite for key in _loudest(statuses).rows.keys})


class _Family:
    """One row of the table: the cells by the name of their column, and where the row stands."""

    def __init__(
        self, members: Statuses, loudest: Statuses, best: Statuses, trends: Mapping[str, Sequence[Trend]]
    ) -> None:
        key = loudest.rows.key_at(0)
        self.name = key.suite
        alarming = members.news | members.are("slower")
        self.loudness = int(members.verdict[alarming].min(initial=len(LOUDEST)))
        self.lost = float(np.nanmax(members.worse[alarming], initial=0.0))
        self.cells: dict[str, Any] = {
            "Family": html.Td(
                dcc.Link(key.suite, href=FamilyAddress(key.machine, key.suite).link(), className="link row")
            ),
            "Changed": html.Td(_changes(members), className="nowrap"),
            "Shapes, small → large": html.Td(html.Div(_cells(loudest), className="cells")),
        }
        points = list(chained(trends.get(key.suite, ())).values())
        if len(points) > 1:
            label = f"Time of the best variants: {change(math.log(points[-1] / points[0]))} over {len(points)} commits"
            self.cells["Trend"] = html.Td(html.Img(src=sparkline(points), alt=label, title=label, className="spark"))
        ratios = best.rows.measured("speedup")
        ratios = ratios[ratios > 0]
        if len(ratios):
            mean = float(np.exp(np.mean(np.log(ratios))))
            ends = f"{significant(min(ratios), 3)} … {significant(max(ratios), 3)} over {len(ratios)} shapes"
            self.cells["Speedup ×"] = html.Td(significant(mean, 3), className="number", title=ends)
        floors = best.rows.measured("floor")
        floors = floors[~np.isnan(floors)]
        if len(floors):
            ends = f"{min(floors):.0f} … {max(floors):.0f} over {len(floors)} shapes"
            self.cells["% of floor"] = html.Td(f"{np.median(floors):.0f}", className="number", title=ends)


def _loudest(statuses: Statuses) -> Statuses:
    """Return the series of the suites and shapes with the gravest verdicts, as many as fit into the table."""
    statuses = statuses.select(np.flatnonzero(statuses.rows.columns["state"] != STATES.index("na")))
    index, key = statuses.rows.series_keys, statuses.rows.columns["key"]
    suites, suite = np.unique(index.suite[key], return_inverse=True)
    # A shape has one cell for all of its cache states.
    shapes, shape = np.unique(np.stack([suite, index.case[key]]), axis=1, return_inverse=True)
    loud = np.full(shapes.shape[1], len(LOUDEST))
    np.minimum.at(loud, shape, statuses.verdict)
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


def _of_each_shape(members: Statuses) -> tuple[Statuses, Statuses]:
    """Return two series of each shape, small shapes first: the one that changed most, and the fastest variant.

    The baseline is the fastest variant only of a shape that has no other.
    """
    rows = members.rows
    shape = rows.series_keys.case[rows.columns["key"]]
    size = np.where(np.isnan(members.worse), 0.0, np.abs(members.worse))
    time = np.where(np.isnan(rows.column("latency")), rows.column("value"), rows.column("latency"))
    orders = (
        np.lexsort((-size, ~members.beyond_noise, members.verdict, shape)),
        np.lexsort((np.where(np.isnan(time), np.inf, time), rows.is_baseline, shape)),
    )
    loudest, best = (members.select(order[np.unique(shape[order], return_index=True)[1]]) for order in orders)
    return loudest, best


def _changes(members: Statuses) -> list[Any]:
    """Return the counts of failures and confirmed changes of a family, each kind of change with the largest of them."""
    parts: list[Any] = []
    for verdict in ("failed", *CHANGED):
        places = np.flatnonzero(members.are(verdict))
        if len(places):
            sizes = np.abs(members.worse[places])
            sized = verdict != "failed" and not np.isnan(sizes).all()
            largest = f" {change(float(members.moved[places[np.nanargmax(sizes)]]))}" if sized else " failed"
            text = f"{SIGNS[verdict]} {len(places)}{largest if sized or verdict == 'failed' else ''} "
            parts.append(html.Span(text, className=verdict))
    return parts or [html.Span("–", className="dim")]


def _cells(statuses: Statuses) -> list[Any]:
    """Return a cell for each series, which links to the series' page."""
    rows = statuses.rows
    columns = (rows.keys, rows.units, rows.short_commits, rows.measured("speedup").tolist(), statuses.moved.tolist())
    return [_cell(statuses, place, *facts) for place, facts in enumerate(zip(*columns, strict=True))]


def _cell(statuses: Statuses, place: int, key: SeriesKey, unit: str, commit: str, speedup: float, moved: float) -> Any:
    """Return the cell of a series. Only a change beyond the noise has a colour."""
    verdict, worse = LOUDEST[statuses.verdict[place]], float(statuses.worse[place])
    beyond = bool(statuses.beyond_noise[place])
    number = "no number to compare" if math.isnan(moved) else change(moved)
    uncertainty = f" since {commit}" if verdict == "not measured" else _uncertainty(statuses, place, verdict)
    lines = [f"{key.suite} {key.variant}".strip(), f"{key.case} {key.l2}".strip()]
    lines.append(f"{number}, {word(verdict, unit)}{uncertainty}")
    if not math.isnan(speedup):
        lines.append(f"speedup {significant(speedup, 3)} ×")
    text = "\n".join(line for line in lines if line)
    kind, share = "", 0.0
    if beyond and verdict not in ("changed", "failed") and abs(worse) > 0:
        kind, share = ("slower" if worse > 0 else "faster"), min(abs(worse) / _FULL, 1.0)
    if verdict == "new":
        kind = "new"
    options: dict[str, Any] = {"aria-label": text.replace("\n", ", ")}
    if not share and verdict != "failed":
        options["tabIndex"] = -1
    return html.A(
        SIGNS[verdict] if beyond or verdict in ("failed", "not measured") else "",
        href=SeriesAddress(*key).link(),
        title=text,
        className=f"cell {kind}".strip(),
        style={"--share": f"{25 + 75 * share:.0f}%"} if share else None,
        **options,
    )


def _uncertainty(statuses: Statuses, place: int, verdict: Verdict) -> str:
    if verdict != "unsure" or math.isnan(statuses.worse[place]):
        return ""
    if statuses.beyond_noise[place]:
        return ", beyond the noise, not confirmed"
    return ", noise unknown" if math.isnan(statuses.noise[place]) else ", within the noise"


def _trends(results: Results, keys: Sequence[SeriesKey]) -> Mapping[str, Sequence[Trend]]:
    """Return the last points of series that are not ratios, by suite. One query reads all: a query takes 60 ms."""
    trends: dict[str, list[Trend]] = defaultdict(list)
    series = results.keys(keys[0].machine).series_of(keys)
    for trend in results.trends([one for one in series if not results.benchmarks[one.benchmark].is_ratio], last=TREND):
        trends[trend.benchmark.key_suite].append(trend)
    return trends


def sparkline(points: Sequence[float]) -> str:
    """Return the address of a small picture of a trend. Its axis spans at least 10 %, so that noise looks like noise.

    The picture has no colour scheme: its grey and its blue are readable on light and on dark.
    """
    low, high = min(points), max(points)
    half, middle = max(high - low, 0.1 * low) / 2, (low + high) / 2
    places = [
        f"{2 + at * 92 / (len(points) - 1):.1f},{11 - (value - middle) / half * 8:.1f}"
        for at, value in enumerate(points)
    ]
    x, y = places[-1].split(",")
    line = f'<polyline points="{" ".join(places)}" fill="none" stroke="#7d8894" stroke-width="1.25"/>'
    picture = f'<svg xmlns="http://www.w3.org/2000/svg" width="98" height="22">{line}'
    return "data:image/svg+xml," + quote(f'{picture}<circle cx="{x}" cy="{y}" r="2.2" fill="#3c8fc7"/></svg>')
