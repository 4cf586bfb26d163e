"""The table of a comparison, one line per case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from dashboard.address import FamilyAddress
from dashboard.pages.parts import change_cell, table
from lockstep.alerts.text import change as of_log
from lockstep.alerts.text import span
from lockstep.compare.number_format import significant, whole
from lockstep.compare.shown_quantities import SHOWN_AS
from lockstep.compare.two_sides import Pair, Side
from lockstep.compare.verdict import CHANGED, OF_SENSE, SIGNS, word
from lockstep.record.quantity import EXACT, QUANTITIES

#: Units of exact quantities that count something.
_COUNTED = {QUANTITIES[name].unit for name in EXACT} - {"bytes"}


def compare_table(pairs: Sequence[Pair], head: Side, change: str = "Change") -> Any:
    """Return a table of the compared cases, in their order. Each line links to its family on head's machine.

    ``change`` says what the sizes of the changes are of.
    """
    units = {SHOWN_AS.get(pair.unit, (pair.unit, 1.0))[0] for pair in pairs}
    unit = units.pop() if len(units) == 1 else ""
    numbers = [f"{side} {unit}".strip() for side in ("Base", "Head")]
    # The change follows the variant, because a phone shows only the first columns.
    names = ["Suite", "Variant", change, "Case", "L2", "95 % interval", *numbers, "Verdict", "Machine code"]
    return table(names, [_row(pair, head, not unit) for pair in pairs], "Cases, the loudest first")


def _row(pair: Pair, head: Side, with_unit: bool) -> list[Any]:
    variant = pair.head_variant
    if pair.base_variant != pair.head_variant:
        variant = f"{pair.base_variant} → {pair.head_variant}"
    address = FamilyAddress(head.machine, pair.suite, (pair.case,), pair.l2)
    interval = span(pair.low, pair.high) if math.isfinite(pair.error + pair.log) else "–"
    verdict: list[Any] = [
        f"{SIGNS[pair.verdict]} {word(pair.verdict, pair.unit)}" + (f": {pair.why}" if pair.why else "")
    ]
    if pair.verdict == "baseline moved" and pair.times:
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
        html.Td(variant, className="mono"),
        _change(pair),
        html.Td(pair.case, className="mono shape"),
        html.Td(pair.l2),
        html.Td(interval, className="number dim"),
        *numbers,
        html.Td(verdict, className=loud if pair.why else f"{loud} nowrap"),
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
