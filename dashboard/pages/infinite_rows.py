"""Send the rows of a long table in blocks. The server searches, filters and sorts.

AG Grid's infinite row model requests rows ``startRow`` to ``endRow`` under a filter and a sort order. Only the rows of
the block are sent, so a table of 60,000 series loads as fast as a table of a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dashboard.address import SeriesAddress
from lockstep.compare.difference import Differences
from lockstep.compare.row import COPIED, STATE_LABELS
from lockstep.compare.row_table import RowTable
from lockstep.compare.verdict import LOUDEST
from lockstep.history.display_names import natural
from lockstep.history.model import STATES, Floats


class Table(Protocol):
    """Protocol of the data behind a table of series, such as ``Statuses`` or ``CommitComparison``."""

    @property
    def rows(self) -> RowTable:
        """The row of each series, in the same order as the series."""

    def __len__(self) -> int: ...

    def select(self, places: NDArray[np.intp]) -> Self:
        """Return the table of the series at these indices."""


T = TypeVar("T", bound=Table)

#: By field of the grid's rows, a function that returns the values of all rows; ``None`` for rows without a value.
Columns = Mapping[str, Callable[[T], Sequence[Any]]]

#: Fields of text that a search looks at.
_SEARCHED = {"family", "variant", "case", "l2", "state", "unit", "commit", "quantity", "interval", "verdict"}


def series_columns(verdicts: Callable[[T], NDArray[np.uint8]]) -> Columns[T]:
    """Return the columns of every table of series: the key, its page, and the state.

    ``verdicts`` returns the codes of a table's verdicts.
    """

    def of_key(name: str) -> Callable[[T], Sequence[Any]]:
        return lambda table: [getattr(key, name) for key in table.rows.keys]

    named = {"family": "suite", "variant": "variant", "case": "case", "l2": "l2"}
    return {
        # A cell is drawn again only in a new row, and the later analysis changes more than the cell's value.
        "id": lambda table: [
            "\n".join((*key[1:], LOUDEST[code])) for key, code in zip(table.rows.keys, verdicts(table), strict=True)
        ],
        "href": lambda table: [SeriesAddress(*key).link() for key in table.rows.keys],
        **{column: of_key(name) for column, name in named.items()},
        "state": lambda table: _states(table.rows),
    }


def times_columns(differences: Callable[[T], Differences]) -> Columns[T]:
    """Return the columns that say why a series changed: the changes of both times of a ratio, reason and note.

    ``differences`` returns the differences of a table.
    """

    def times(name: str) -> Callable[[T], Sequence[Any]]:
        def of(table: T) -> Sequence[Any]:
            known = differences(table).times
            changed = (known.get(place) for place in range(len(table)))
            return [None if one is None else 100 * math.expm1(getattr(one, name)) for one in changed]

        return of

    def why(table: T) -> list[str]:
        known, notes = differences(table).times, table.rows.columns["note"].tolist()
        return [
            ". ".join(
                part for part in (table.rows.reason(place), known[place].text if place in known else "", note) if part
            )
            for place, note in enumerate(notes)
        ]

    return {"own_change": times("own"), "baseline_change": times("baseline"), "why": why}


def cells(table: T, columns: Columns[T]) -> list[dict[str, Any]]:
    """Return the rows of the grid: for each series, the values of the columns by field, without missing values."""
    values = [of(table) for of in columns.values()]
    return [
        {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        for row in zip(*values, strict=True)
    ]


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


def chosen_rows(table: T, columns: Columns[T], request: Mapping[str, Any], search: str = "") -> Sequence[int]:
    """Return the indices of the rows that match a request's filter and a search, in the request's order.

    Args:
        request: AG Grid's ``filterModel`` and ``sortModel``; an unknown filter has no effect.
        search: words, each of which at least one column of text must contain, in any letter case.
    """
    places: Sequence[int] = range(len(table))
    words = search.lower().split()
    if words:
        texts = [of(table) for name, of in columns.items() if name in _SEARCHED]
        places = [place for place in places if _mentions(place, texts, words)]
    models = request.get("filterModel")
    for name, model in models.items() if isinstance(models, Mapping) else ():
        if name in columns and isinstance(model, Mapping):
            column = columns[name](table)
            places = [place for place in places if _passes(column[place], model)]
    # The last criterion is applied first, because sorting keeps the order of equals.
    order = request.get("sortModel")
    for part in reversed(order) if isinstance(order, list) else ():
        name = part.get("colId") if isinstance(part, Mapping) else None
        if isinstance(name, str) and name in columns:
            places = _sorted(places, columns[name](table), part.get("sort") == "desc")
    return places


def block(
    table: T,
    columns: Columns[T],
    request: Mapping[str, Any],
    search: str = "",
    cells_of: Callable[[T], list[dict[str, Any]]] | None = None,
) -> dict[str, Any]:
    """Answer AG Grid's request for a block: its rows, and the number of all rows that match.

    Args:
        table, columns, request, search: see ``chosen_rows``.
        cells_of: returns the rows of the grid, by default those of ``columns``.
    """
    places = chosen_rows(table, columns, request, search)
    start, end = (bound if isinstance(bound, int) else 0 for bound in (request.get("startRow"), request.get("endRow")))
    start = max(start, 0)
    end = max(min(end, start + MOST_ROWS), start)
    shown = table.select(np.array(places[start:end], dtype=np.intp))
    return {"rowData": cells_of(shown) if cells_of else cells(shown, columns), "rowCount": len(places)}


def _mentions(index: int, texts: Sequence[Sequence[str]], words: Sequence[str]) -> bool:
    text = "\n".join([column[index] for column in texts]).lower()
    return all(word in text for word in words)


def _passes(value: Any, model: Mapping[str, Any]) -> bool:
    """Return whether a value passes one of the filters that ``series_grid`` offers."""
    kind, operand = model.get("type"), model.get("filter")
    if model.get("filterType") == "number":
        if not isinstance(operand, int | float):
            return True
        number = value if isinstance(value, int | float) else math.nan
        return {"greaterThan": number > operand, "lessThan": number < operand}.get(str(kind), True)
    text, wanted = str(value or "").lower(), str(operand or "").lower()
    return {"contains": wanted in text, "equals": text == wanted}.get(str(kind), True)


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
