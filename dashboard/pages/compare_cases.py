"""The cases of a comparison, of two sides or of a commit with the one before: their chart and their table."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from itertools import cycle
from statistics import median
from typing import Any

from dash import dcc, html

from dashboard.address import SeriesAddress
from dashboard.charts.axes import log_axis
from dashboard.charts.lines_and_bands import Figure
from dashboard.charts.theme import LEGEND, LINES, NEUTRAL, Scheme, box, chart_layout
from dashboard.pages.parts import change_cell, table
from lockstep.alerts.text import change, span
from lockstep.alerts.text import change as of_log
from lockstep.compare.number_format import significant, whole
from lockstep.compare.shown_quantities import SHOWN_AS
from lockstep.compare.two_sides import Comparison, Pair
from lockstep.compare.verdict import CHANGED, LOUDEST, OF_SENSE, SIGNS, word
from lockstep.record.quantity import EXACT, QUANTITIES

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
    fast, slow, *_ = LINES[scheme]
    for verdict in LOUDEST:
        plotted = [p for p in pairs if p.verdict == verdict and math.isfinite(p.log) and p.base]
        if not plotted:
            continue
        colour = {"slower": slow, "faster": fast}.get(verdict, NEUTRAL[scheme])
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
    figure = chart_layout(scheme) | LEGEND
    times = [time for trace in data for time in trace["x"]]
    if times:
        figure["xaxis"] |= log_axis(min(times) / 1.15, max(times) * 1.15, narrow=True)
    shown = [100 * abs(math.expm1(pair.log)) for pair in pairs if math.isfinite(pair.log)]
    figure["yaxis"] |= {"ticksuffix": " %"}
    if max(shown, default=0.0) < 1:
        # The noise of two equal commits must not fill the chart.
        figure["yaxis"]["range"] = [-1.2, 1.2]
    line = {"color": NEUTRAL[scheme], "width": 1, "dash": "dot"}
    figure["shapes"] = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 0, "y1": 0, "line": line}]
    return {"data": data, "layout": figure}


#: Maximum number of suites in the chart of suites.
MOST_SUITES = 40


def change_by_suite(comparison: Comparison, scheme: Scheme) -> Figure | None:
    """Return the changes of the numbers in per cent, a dot for each case and a box for each suite.

    The suites whose cases changed most come first; ``None`` if no number changed.
    """
    cases: dict[str, list[tuple[float, str]]] = defaultdict(list)
    logs = comparison.differences.of_number(comparison.differences.worse).tolist()
    for key, log in zip(comparison.head.keys, logs, strict=True):
        if math.isfinite(log):
            cases[key.suite].append((100 * math.expm1(log), escape(" ".join(filter(None, key[2:])))))
    sizes = {suite: [abs(size) for size, _ in own] for suite, own in cases.items() if any(size for size, _ in own)}
    if not sizes:
        return None
    # Plotly draws the first box at the bottom.
    shown = sorted(sizes, key=lambda suite: (median(sizes[suite]), max(sizes[suite])))[-MOST_SUITES:]
    family_of = {suite: suite.partition(".")[0] for suite in shown}
    colour_of = dict(zip(sorted({*family_of.values()}), cycle(LINES[scheme]), strict=False))
    data = []
    for suite in shown:
        changes, texts = zip(*cases[suite], strict=True)
        data.append(box(suite, changes, texts, colour_of[family_of[suite]]))
    layout = chart_layout(scheme)
    layout["margin"]["l"] = 8 + 7 * max(map(len, shown))
    layout["xaxis"] |= {"ticksuffix": " %", "zeroline": True, "zerolinecolor": NEUTRAL[scheme]}
    layout["yaxis"] |= {"showgrid": False, "automargin": False}
    return {"data": data, "layout": layout}


def _hover(pair: Pair) -> str:
    name = " ".join(part for part in (pair.suite, pair.head_variant, pair.case, pair.l2) if part)
    base, head = (f"{significant(1e6 * latency, 4)} µs" if latency else "–" for latency in (pair.base, pair.head))
    lines = [f"<b>{escape(name)}</b>", f"<b>{change(pair.log)}</b> · {base} → {head}"]
    if pair.verdict == "baseline moved" and pair.times:
        lines.append(pair.times.text)
    return "<br>".join(lines)


#: Units of exact quantities that count something.
_COUNTED = {QUANTITIES[name].unit for name in EXACT} - {"bytes"}


def compare_table(
    pairs: Sequence[Pair], machine: str, change: str = "Change", sides: Sequence[str] = ("Base", "Head")
) -> Any:
    """Return a table of the compared cases, in their order. Each line links to its series on head's machine.

    A row has few elements: the browser's time for a table grows with the square of their number.

    ``change`` says what the sizes of the changes are of, and ``sides`` whose the numbers are.
    """
    units = {SHOWN_AS.get(pair.unit, (pair.unit, 1.0))[0] for pair in pairs}
    unit = units.pop() if len(units) == 1 else ""
    numbers = [f"{side} {unit}".strip() for side in sides]
    # A phone shows only the first columns.
    names = ["Suite", "Variant and case", change, "Verdict", "L2", "95 % interval", *numbers, "Machine code"]
    return table(names, [_row(pair, machine, not unit) for pair in pairs], "Cases, the loudest first")


def _row(pair: Pair, machine: str, with_unit: bool) -> list[Any]:
    variant = pair.head_variant
    if pair.base_variant != pair.head_variant:
        variant = f"{pair.base_variant} → {pair.head_variant}"
    address = SeriesAddress(machine, pair.suite, pair.head_variant, pair.case, pair.l2)
    interval = span(pair.low, pair.high) if math.isfinite(pair.error + pair.log) else "–"
    verdict: list[Any] = [
        f"{SIGNS[pair.verdict]} {word(pair.verdict, pair.unit)}" + (f": {pair.why}" if pair.why else "")
    ]
    if pair.times and (pair.verdict == "baseline moved" or 2 * abs(pair.times.own) < abs(pair.log)):
        # Readers see that the times of both sides do not differ so.
        verdict.append(html.Div(pair.times.text, className="behind"))
    loud = pair.verdict if pair.verdict in (*CHANGED, "failed") else "dim"
    unit = SHOWN_AS.get(pair.unit, (pair.unit, 1.0))[0]
    behind = f" {unit}" if with_unit else ""
    numbers = [
        html.Td("–" if value is None else f"{_number(value, pair.unit)}{behind}", className="number")
        for value in (pair.base, pair.head)
    ]
    return [
        html.Td(dcc.Link(pair.suite, href=address.link(), className="link row")),
        html.Td("\n".join(text for text in (variant, pair.case) if text), className="mono shape"),
        _change(pair),
        html.Td(verdict, className=f"{loud} {'wide' if pair.why or len(verdict) > 1 else 'nowrap'}"),
        html.Td(pair.l2),
        html.Td(interval, className="number dim"),
        *numbers,
        html.Td(html.Div(pair.code, className="clamped", title=pair.code) if pair.code else "–", className="dim code"),
    ]


def _number(value: float, unit: str) -> str:
    """Write a value of ``unit`` for the table: a count of registers has no decimals, a time has four digits."""
    _, factor = SHOWN_AS.get(unit, (unit, 1.0))
    counted = unit in _COUNTED and float(value).is_integer()
    return whole(value) if counted else significant(factor * value, 4)


def _change(pair: Pair) -> Any:
    size = of_log(pair.log) if math.isfinite(pair.log) else "–"
    if pair.difference:
        size = f"{SHOWN_AS.get(pair.unit, ('', 1.0))[1] * pair.difference:+.4g}".replace("-", "−")
    sense = next((sense for sense, verdict in OF_SENSE.items() if verdict == pair.verdict), None)
    return html.Td(size, className="number dim") if sense is None else change_cell(sense, size)
