"""The table of a family's selected cases at one commit, one line per series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dash import dcc, html

from dashboard.address import SeriesAddress
from dashboard.pages.parts import count
from lockstep.compare.number_format import significant, whole
from lockstep.compare.row import Row


def family_table(rows: Sequence[Row], cases: Sequence[str], variants: Sequence[str]) -> Any:
    """Return a table of the rows, in the order of ``cases`` and ``variants``; series that are n/a end each case."""
    rows = sorted(rows, key=lambda row: (cases.index(row.case), row.state == "na", variants.index(row.variant)))
    if any(row.value for row in rows):
        return _value_table(rows)
    head = ["Case", "Variant", "Latency µs", "Speedup ×", "% of floor", "GB/s", "TFLOP/s", "MDE %", "State"]
    return _html_table(head, [html.Tr(_table_cells(row)) for row in rows])


def _value_table(rows: Sequence[Row]) -> Any:
    # Benchmarks of other projects have no variants.
    variants = any(row.variant for row in rows)
    body = [
        html.Tr(
            [
                html.Td(
                    dcc.Link(row.case or row.suite, href=SeriesAddress(*row.key).link(), className="link mono"),
                    className="shape",
                ),
                *([html.Td(row.variant, className="mono")] if variants else []),
                html.Td(row.unit),
                html.Td(_plain(row.value.value), className="number"),
            ]
        )
        for row in rows
        if row.value
    ]
    return _html_table(["Case", *(["Variant"] if variants else []), "Unit", "Value"], body)


def _html_table(head: Sequence[str], body: Sequence[Any]) -> Any:
    caption = html.Caption(count(len(body), "series"), className="visually-hidden")
    titles = html.Thead(html.Tr([html.Th(title, scope="col") for title in head]))
    return html.Div(html.Table([caption, titles, html.Tbody(body)]), className="card table", tabIndex=0)


def _plain(value: float) -> str:
    """Format a value. A whole number has no decimals."""
    return significant(value, 4) if value % 1 else whole(value)


def _table_cells(row: Row) -> list[Any]:
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

    state = row.label + (f": {row.reason}" if row.reason else "")
    return [
        html.Td(row.case, className="mono shape"),
        html.Td(dcc.Link(row.variant, href=SeriesAddress(*row.key).link(), className="link mono")),
        number("latency", partial(significant, count=4), interval=True),
        number("speedup", partial(significant, count=4), interval=True),
        number("floor", "{:.1f}".format),
        number("bandwidth", whole),
        number("compute", partial(significant, count=3)),
        html.Td("–" if row.mde is None else f"{100 * row.mde:.2f}", className="number" if row.mde else "number dim"),
        html.Td(state, className="failed" if row.state == "failed" else "dim"),
    ]
