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
from lockstep.history.model import STATES, Floats, SeriesKey, Trend
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
    "Shapes, small → large": "each cell is a shape and shows the variant that changed, else the fastest",
}


def families(results: Results, statuses: Statuses) -> Any:
    """Return the table of families, those with new failures and slowdowns first; ``None`` without any series.

    ``statuses``: the statuses of one machine's series of one quantity, in the order of the table of series.
    """
    members, number = by_family(statuses)
    if not members:
        return None
    of_shapes = [_of_each_shape(one) for one in members]
    trends = _trends(results, [key for _, best in of_shapes for key in best.rows.keys])
    rows = [_row(own, *shapes, trends) for own, shapes in zip(members, of_shapes, strict=True)]
    slower, faster = (word(verdict, statuses.rows.units[0]) for verdict in ("slower", "faster"))
    # Beside a speedup, a falling line of times looks like a loss.
    heads = {
        f"{name} of the time" if (name, slower) == ("Trend", "slower") else name: hint for name, hint in _HEAD.items()
    }
    card = table(tuple(heads), rows, "Families", "plain families", heads)
    omitted = f"{MOST_SUITES} of {whole(number)} families are shown, those that changed most. "
    legend = f"{omitted if number > MOST_SUITES else ''}Orange: {slower}. Blue: {faster}. Full colour: 23 % or "
    legend += f"more. No colour: within the noise. {SIGNS['unsure']}: only the newest two points show it. Hollow: new."
    card.children = [card.children, html.P(legend, className="legend dim")]
    return card


def by_family(statuses: Statuses) -> tuple[list[Statuses], int]:
    """Return the measured series of each of the first ``MOST_SUITES`` families, and the number of all families.

    Families and series are in the order of ``statuses``.
    """
    statuses = statuses.select(np.flatnonzero(statuses.rows.columns["state"] != STATES.index("na")))
    suites = statuses.rows.series_keys.suite[statuses.rows.columns["key"]]
    first = np.sort(np.unique(suites, return_index=True)[1])
    shown = suites[first[:MOST_SUITES]].tolist()
    return [statuses.select(np.flatnonzero(suites == suite)) for suite in shown], len(first)


def _row(members: Statuses, loudest: Statuses, best: Statuses, trends: Mapping[str, Sequence[Trend]]) -> list[Any]:
    """Return the cells of a family, in the order of the table's columns."""
    key = loudest.rows.key_at(0)
    trend: Any = html.Td("–", className="dim")
    points = list(chained(trends.get(key.suite, ())).values())
    if len(points) > 1:
        label = f"Time of the best variants: {change(math.log(points[-1] / points[0]))} over {len(points)} commits"
        trend = html.Td(html.Img(src=sparkline(points), alt=label, title=label, className="spark"))
    ratios, floors = best.rows.measured("speedup"), best.rows.measured("floor")
    ratios, floors = ratios[ratios > 0], floors[~np.isnan(floors)]
    speedup = significant(float(np.exp(np.log(ratios).mean())), 3) if len(ratios) else ""
    return [
        html.Td(dcc.Link(key.suite, href=FamilyAddress(key.machine, key.suite).link(), className="link row")),
        html.Td(_changes(members), className="nowrap"),
        trend,
        _number(ratios, speedup),
        _number(floors, f"{np.median(floors):.0f}" if len(floors) else ""),
        html.Td(html.Div(_cells(loudest), className="cells")),
    ]


def _number(values: Floats, text: str) -> Any:
    """Return a cell with ``text`` for the values of a family's shapes; their ends and count are its tooltip."""
    if not len(values):
        return html.Td("–", className="dim")
    ends = f"{significant(min(values), 3)} … {significant(max(values), 3)} over {len(values)} shapes"
    return html.Td(text, className="number", title=ends)


def _of_each_shape(members: Statuses) -> tuple[Statuses, Statuses]:
    """Return two series of each shape, small shapes first: the first of ``members``, and the fastest variant.

    The baseline is the fastest variant only of a shape that has no other. At most ``MOST_SHAPES`` shapes, the first.
    """
    rows = members.rows
    shape = rows.series_keys.case[rows.columns["key"]]
    shapes, first = np.unique(shape, return_index=True)
    shown = first <= np.sort(first)[:MOST_SHAPES][-1]
    time = np.where(np.isnan(rows.column("latency")), rows.column("value"), rows.column("latency"))
    order = np.lexsort((np.where(np.isnan(time), np.inf, time), rows.is_baseline, shape))
    fastest = order[np.searchsorted(shape[order], shapes[shown])]
    return members.select(first[shown]), members.select(fastest)


def _changes(members: Statuses) -> list[Any]:
    """Return the counts of failures and confirmed changes of a family, each kind of change with the largest of them."""
    parts: list[Any] = []
    for verdict in ("failed", *CHANGED):
        places = np.flatnonzero(members.are(verdict))
        if len(places):
            sizes = np.abs(members.worse[places])
            text = f"{len(places)} failed" if verdict == "failed" else str(len(places))
            if verdict != "failed" and not np.isnan(sizes).all():
                largest = change(float(members.moved[places[np.nanargmax(sizes)]]))
                text = largest if len(places) == 1 else f"{text} up to {largest}"
            parts.append(html.Span(f"{SIGNS[verdict]} {text} ", className=verdict))
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
        return ", in the newest two points alone, not confirmed"
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
