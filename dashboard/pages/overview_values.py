"""The overview's columns as values of all its series, for a table that the server searches, filters and sorts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dashboard.pages.row_source import Values
from lockstep.compare.rows import QUANTITIES, STATE_LABELS, VALUE
from lockstep.compare.status import Statuses
from lockstep.compare.verdict import LOUDEST
from lockstep.history.model import STATES, Floats


def known(numbers: Floats) -> list[float | None]:
    """Return the numbers, ``None`` for NaN."""
    return [None if number != number else number for number in numbers.tolist()]


def percent(logs: Floats) -> list[float | None]:
    """Return logs of factors as changes in percent."""
    return known(100 * np.expm1(logs))


def _measured(quantity: str) -> Callable[[Statuses], list[float | None]]:
    return lambda every: known(every.rows.measured(quantity))


def _of_key(name: str) -> Callable[[Statuses], list[str]]:
    return lambda every: [getattr(key, name) for key in every.rows.keys]


def _units(every: Statuses) -> list[str]:
    return every.rows.units


def _states(every: Statuses) -> list[str]:
    return [STATE_LABELS[STATES[code]] for code in every.rows.columns["state"].tolist()]


def _verdicts(every: Statuses) -> list[Any]:
    return [LOUDEST[code] for code in every.verdict.tolist()]


#: Values by column of ``overview_table.columns``; those that rows of the grid have are the same.
VALUES: Values[Statuses] = {
    **{column: _of_key(name) for column, name in (("family", "suite"), ("variant", "variant"), ("case", "case"))},
    "l2": _of_key("l2"),
    **{quantity: _measured(quantity) for quantity in (*QUANTITIES, VALUE)},
    "unit": _units,
    "change": lambda every: percent(every.worse),
    "mde": lambda every: known(100 * every.rows.columns["mde"]),
    "state": _states,
    "commit": lambda every: every.rows.short_commits,
    "verdict": _verdicts,
    "stale": lambda every: ["stale" if stale else "" for stale in every.stale.tolist()],
}
