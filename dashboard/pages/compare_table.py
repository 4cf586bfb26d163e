"""Cases of two sides next to each other, a line each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from dashboard.address import FamilyAddress
from dashboard.comparing import SIGNS
from dashboard.comparison import Pair, Side
from dashboard.pages.parts import change_cell, table
from dashboard.rows import shown_as, significant

_HEAD = ("Suite", "Variant", "Case", "L2", "Change", "95 % interval", "Base", "Head", "Verdict", "Machine code")


def compare_table(pairs: Sequence[Pair], head: Side) -> Any:
    """The pairs in their order; a line leads to its family on head's machine."""
    return table(_HEAD, [_row(pair, head) for pair in pairs], "Cases, the biggest change first")


def _row(pair: Pair, head: Side) -> Any:
    variant = pair.head_variant
    if pair.base_variant != pair.head_variant:
        variant = f"{pair.base_variant} → {pair.head_variant}"
    address = FamilyAddress(head.machine, pair.suite, (pair.case,), pair.l2)
    interval = "–"
    if math.isfinite(pair.error):
        interval = f"{100 * math.expm1(pair.low):+.1f} … {100 * math.expm1(pair.high):+.1f} %".replace("-", "−")
    verdict = f"{SIGNS[pair.verdict]} {pair.verdict}" + (f": {pair.why}" if pair.why else "")
    loud = pair.verdict if pair.verdict in ("slower", "faster", "failed") else "dim"
    numbers = [html.Td(_number(one, pair.unit), className="number") for one in (pair.base, pair.head)]
    cells = [
        html.Td(dcc.Link(pair.suite, href=address.link(), className="link row")),
        html.Td(variant, className="mono"),
        html.Td(pair.case, className="mono"),
        html.Td(pair.l2),
        _change(pair),
        html.Td(interval, className="number dim"),
        *numbers,
        html.Td(verdict, className=loud if pair.why else f"{loud} nowrap"),
        html.Td(html.Div(pair.code or "–", className="clamped", title=pair.code), className="dim code"),
    ]
    return html.Tr(cells)


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "seconds":
        return f"{1e6 * value:.2f} µs"
    unit, factor = shown_as(unit)
    return f"{significant(factor * value, 5)} {unit}".rstrip()


def _change(pair: Pair) -> Any:
    if pair.verdict in ("slower", "faster"):
        return change_cell(pair.log)
    known = math.isfinite(pair.log)
    return html.Td(f"{100 * math.expm1(pair.log):+.1f} %".replace("-", "−") if known else "–", className="number dim")
