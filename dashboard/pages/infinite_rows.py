"""Send the rows of a long table in blocks. The server searches, filters and sorts.

AG Grid's infinite row model requests rows ``startRow`` to ``endRow`` under a filter and a sort order. Only the rows of
the block are sent, so a table of 60,000 series loads as fast as a table of a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from lockstep.compare.row import COPIED, STATE_LABELS
from lockstep.compare.row_table import RowTable
from lockstep.history.display_names import natural
from lockstep.history.model import STATES, Floats

T = TypeVar("T", bound=Sequence[Any])

#: By column, a function that returns the values of all rows; ``None`` for rows without a value.
Values = Mapping[str, Callable[[T], Sequence[Any]]]


class Rowed(Protocol):
    """Protocol of the data behind a table of series, such as ``Statuses`` or ``CommitComparison``."""

    @property
    def rows(self) -> RowTable:
        """The table row of each series, in the same order as the series."""


def key_values() -> dict[str, Callable[[Rowed], Sequence[Any]]]:
    """Return functions that give the values of the columns family, variant, case, l2 and state of any table."""

    def of_key(name: str) -> Callable[[Rowed], Sequence[Any]]:
        return lambda table: [getattr(key, name) for key in table.rows.keys]

    named = {"family": "suite", "variant": "variant", "case": "case", "l2": "l2"}
    return {column: of_key(name) for column, name in named.items()} | {"state": lambda table: _states(table.rows)}


def _states(rows: RowTable) -> list[str]:
    columns = (rows.columns[name].tolist() for name in ("state", "same_work_as"))
    return [COPIED if copied else STATE_LABELS[STATES[code]] for code, copied in zip(*columns, strict=True)]


def or_none(numbers: Floats) -> list[float | None]:
    """Return the numbers as a list for JSON, which has ``None`` for NaN."""
    return [None if number != number else number for number in numbers.tolist()]


def percents(logs: Floats) -> list[float | None]:
    """Return changes in percent, from the logarithm of each change's factor."""
    return or_none(100 * np.expm1(logs))


#: Maximum rows of one block, whatever the request.
MOST_ROWS = 1000

_TEXT: dict[str, Callable[[str, str], bool]] = {
    "contains": lambda value, operand: operand in value,
    "notContains": lambda value, operand: operand not in value,
    "equals": lambda value, operand: value == operand,
    "notEqual": lambda value, operand: value != operand,
    "startsWith": lambda value, operand: value.startswith(operand),
    "endsWith": lambda value, operand: value.endswith(operand),
}
_NUMBER: dict[str, Callable[[float, float], bool]] = {
    "equals": lambda value, operand: value == operand,
    "notEqual": lambda value, operand: value != operand,
    "lessThan": lambda value, operand: value < operand,
    "lessThanOrEqual": lambda value, operand: value <= operand,
    "greaterThan": lambda value, operand: value > operand,
    "greaterThanOrEqual": lambda value, operand: value >= operand,
}


def chosen_rows(items: T, values: Values[T], request: Mapping[str, Any], search: str = "") -> Sequence[int]:
    """Return the indices of the items that match a request's filter and a search, in the request's order.

    Args:
        items: the items in their default order.
        values: the values of the items by column; the texts of the columns are searched.
        request: AG Grid's ``filterModel`` and ``sortModel``; an unknown filter has no effect.
        search: words, each of which at least one column must contain, in any letter case.
    """
    places: Sequence[int] = range(len(items))
    words = search.lower().split()
    if words:
        columns = (value(items) for value in values.values())
        texts = [column for column in columns if column and isinstance(column[0], str)]
        places = [place for place in places if _mentions(place, texts, words)]
    models = request.get("filterModel")
    for name, model in models.items() if isinstance(models, Mapping) else ():
        if name in values and isinstance(model, Mapping):
            column = values[name](items)
            places = [place for place in places if _passes(column[place], model)]
    # The last criterion is applied first, because sorting keeps the order of equals.
    order = request.get("sortModel")
    for part in reversed(order) if isinstance(order, list) else ():
        name = part.get("colId") if isinstance(part, Mapping) else None
        if isinstance(name, str) and name in values:
            places = _sorted(places, values[name](items), part.get("sort") == "desc")
    return places


def block(
    items: T,
    values: Values[T],
    request: Mapping[str, Any],
    cells: Callable[[list[Any]], list[Any]],
    search: str = "",
) -> dict[str, Any]:
    """Answer AG Grid's request for a block: its rows, and the number of all rows that match.

    Args:
        items, values, request, search: see ``chosen_rows``.
        cells: converts items to the rows of the grid, each a mapping from column to value.
    """
    places = chosen_rows(items, values, request, search)
    start, end = (bound if isinstance(bound, int) else 0 for bound in (request.get("startRow"), request.get("endRow")))
    start = max(start, 0)
    end = max(min(end, start + MOST_ROWS), start)
    return {"rowData": cells([items[place] for place in places[start:end]]), "rowCount": len(places)}


def _mentions(index: int, texts: Sequence[Sequence[str]], words: Sequence[str]) -> bool:
    text = "\n".join([column[index] for column in texts]).lower()
    return all(word in text for word in words)


def _passes(value: Any, model: Mapping[str, Any]) -> bool:
    parts = model.get("conditions")
    if isinstance(parts, list) and parts:
        results = [_passes(value, part) for part in parts if isinstance(part, Mapping) and "conditions" not in part]
        return any(results) if model.get("operator") == "OR" else all(results)
    kind = str(model.get("type", ""))
    operand = model.get("filter")
    if kind in ("blank", "notBlank"):
        return bool(value is None or value == "") == (kind == "blank")
    if model.get("filterType") == "number":
        return operand is None or _passes_number(value, kind, operand, model.get("filterTo"))
    test = _TEXT.get(kind)
    return test is None or test(str(value or "").lower(), str(operand or "").lower())


def _passes_number(value: Any, kind: str, operand: Any, end: Any) -> bool:
    if not all(isinstance(bound, int | float) for bound in (operand, 0 if end is None else end)):
        return True
    if not isinstance(value, int | float):
        return False
    if kind == "inRange":
        return end is None or operand < value < end
    test = _NUMBER.get(kind)
    return test is None or test(value, operand)


def _sorted(places: Sequence[int], column: Sequence[Any], down: bool) -> list[int]:
    """Sort row indices by a column: numbers by size, text with digits compared as numbers, missing values last."""
    present = [place for place in places if not _missing(column[place])]
    if all(isinstance(column[place], int | float) for place in present):
        present.sort(key=lambda place: column[place], reverse=down)
    else:
        present.sort(key=lambda place: natural(str(column[place])), reverse=down)
    return present + [place for place in places if _missing(column[place])]


def _missing(key: Any) -> bool:
    return key is None or key == "" or (isinstance(key, float) and math.isnan(key))
