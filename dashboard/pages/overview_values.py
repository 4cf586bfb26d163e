"""The overview's columns as values of a standing, for a table that the server searches, filters and sorts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dashboard.pages.row_source import Values
from lockstep.compare.rows import QUANTITIES, STATE_LABELS, VALUE
from lockstep.compare.status import Standing


def _measured(quantity: str) -> Callable[[Standing], float | None]:
    def value(one: Standing) -> float | None:
        measured = one.row.measured(quantity)
        return measured.value if measured else None

    return value


def _change(one: Standing) -> float | None:
    return None if one.worse is None else 100 * math.expm1(one.worse)


def _mde(one: Standing) -> Any:
    return None if one.row.mde is None else 100 * one.row.mde


#: A value by column of ``overview_table.columns``; those that rows of the grid have are the same.
VALUES: Values[Standing] = {
    "family": lambda one: one.row.suite,
    "variant": lambda one: one.row.variant,
    "case": lambda one: one.row.case,
    "l2": lambda one: one.row.l2,
    **{quantity: _measured(quantity) for quantity in (*QUANTITIES, VALUE)},
    "unit": lambda one: one.row.unit,
    "change": _change,
    "mde": _mde,
    "state": lambda one: STATE_LABELS[one.row.state],
    "commit": lambda one: one.row.commit[:8],
    "verdict": lambda one: one.verdict,
    "stale": lambda one: "stale" if one.stale else "",
}
