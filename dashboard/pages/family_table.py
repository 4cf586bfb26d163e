"""The table of a family's selected cases at one commit, one line per series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dash import dcc, html

from dashboard.address import SeriesAddress
from dashboard.pages.parts import count, mono, table
from lockstep.compare.number_format import significant, whole
from lockstep.compare.row import Row
from lockstep.compare.shown_quantities import VALUE

_HEAD = ("Case", "Variant", "Value", "Latency µs", "Speedup ×", "% of floor", "GB/s", "TFLOP/s", "MDE %", "State")


def family_table(rows: Sequence[Row], cases: Sequence[str], variants: Sequence[str]) -> Any:
    """Return a table of the rows, in the order of ``cases`` and ``variants``; series that are n/a end each case."""
    rows = sorted(rows, key=lambda row: (cases.index(row.case), row.state == "na", variants.index(row.variant)))
    return table(_HEAD, [_cells(row) for row in rows], count(len(rows), "series"), "numbers")


def _plain(value: float) -> str:
    """Format a value. A whole number has no decimals."""
    return significant(value, 4) if value % 1 else whole(value)


def _cells(row: Row) -> list[Any]:
    def number(quantity: str, formatted: Callable[[float], str], interval: bool = False) -> Any:
        measured = row.measured(quantity)
        if measured is None:
            return html.Td("–", className="number dim")
        text: list[Any] = [formatted(measured.value), " "]
        if interval:
            # The cell is added even if it is empty, so that the numbers of a column align.
            ends = measured.ends("–") if measured.low != measured.high else ""
            text.append(html.Span(ends, className="dim ends"))
        return html.Td(text, className="number")

    def linked(text: str) -> Any:
        return dcc.Link(text, href=SeriesAddress(*row.key).link(), className="link mono")

    state = row.label + (f": {row.reason}" if row.reason else "")
    return [
        # Benchmarks of other projects have no variants, and may have no cases.
        html.Td(mono(row.case) if row.variant else linked(row.case or row.suite), className="shape"),
        html.Td(linked(row.variant) if row.variant else ""),
        number(VALUE, lambda value: f"{_plain(value)} {row.unit}".strip()),
        number("latency", partial(significant, count=4), interval=True),
        number("speedup", partial(significant, count=4), interval=True),
        number("floor", "{:.1f}".format),
        number("bandwidth", whole),
        number("compute", partial(significant, count=3)),
        html.Td("–" if row.mde is None else f"{100 * row.mde:.2f}", className="number" if row.mde else "number dim"),
        html.Td(state, className="failed" if row.state == "failed" else "dim"),
    ]
