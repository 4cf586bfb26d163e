"""The table of one series, one line per commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from dashboard.charts.axes import in_zoom
from dashboard.charts.series_figure import changed_conditions
from dashboard.charts.telemetry import Points
from dashboard.pages.parts import commit_link, count, day, minus, table
from lockstep.compare.number_format import significant, whole
from lockstep.compare.row import COPIED, STATE_LABELS, Measured
from lockstep.compare.shown_quantities import Quantity
from lockstep.history.model import Commit, Point
from lockstep.record.quantity import SUITE_BENCHMARK

#: Maximum number of listed commits. The chart shows all commits, and its zoom selects the listed ones.
MOST_ROWS = 50


def commit_table(
    commits: Sequence[Commit], machine: str, points: Points, quantity: Quantity, zoom: tuple[float, ...] = ()
) -> list[Any]:
    """Return a table of the newest visible commits: number, change since the commit before, clock, state, subject.

    The change is that of the number itself; for a speedup, and rates of a Lockstep suite, that of the time.
    """
    visible = [place for place, (point, _) in enumerate(points) if in_zoom(point.commit, zoom)]
    listed = visible[-MOST_ROWS:][::-1]
    head = ("Commit", "Date", f"{quantity.label} {quantity.unit}", "Change %", "SM MHz", "°C", "State", "Subject")
    rows = [_table_cells(commits, machine, points, quantity, place) for place in listed]
    parts: list[Any] = [table(head, rows, "Commits", "commits")]
    if omitted := len(visible) - len(listed):
        text = f"and {count(omitted, 'older commit')}: drag along the chart to list them"
        parts.append(html.P(text, className="dim"))
    return parts


def _table_cells(commits: Sequence[Commit], machine: str, points: Points, quantity: Quantity, index: int) -> list[Any]:
    point, number = points[index]
    before, last = points[index - 1] if index else (None, None)
    commit = commits[point.commit]
    conditions = changed_conditions(before, point) if before else []
    state = STATE_LABELS[point.state] + (f": {point.reason}" if point.reason else "")
    state = f"{COPIED} as {point.same_work_as[:8]}" if point.same_work_as else state
    return [
        html.Td(commit_link(commit, machine)),
        html.Td(day(commit.date), className="dim"),
        html.Td("–" if number is None else significant(number.value, 5), className="number"),
        html.Td(_moved(quantity, before, last, point, number), className="number dim"),
        html.Td("" if point.sm_mhz is None else whole(point.sm_mhz), className="number dim"),
        html.Td("" if point.temperature_c is None else f"{point.temperature_c:.0f}", className="number dim"),
        html.Td(state, className="failed" if point.state == "failed" else "dim"),
        html.Td([commit.subject, html.Span(f" {', '.join(conditions)}" if conditions else "", className="slower")]),
    ]


def _moved(
    quantity: Quantity, before: Point | None, last: Measured | None, point: Point, number: Measured | None
) -> str:
    """Return the change from the number ``last`` to ``number`` in per cent; "" if they do not compare."""
    if not (number and last and before and before.version == point.version and min(number.value, last.value) > 0):
        return ""
    # As on every page, a speedup stands for a time: if 1.5 × become 1.4 ×, the time grows by 7 %.
    inverse = quantity.better == "higher" and SUITE_BENCHMARK.fullmatch(point.series.benchmark)
    old, new = (number.value, last.value) if inverse else (last.value, number.value)
    return minus(f"{100 * (new / old - 1):+z.2f}")
