"""The rows of a table of series: their values by column, and the rows that match a search."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dashboard.address import SeriesAddress
from lockstep.compare.difference import Differences
from lockstep.compare.number_format import whole
from lockstep.compare.row import COPIED, STATE_LABELS
from lockstep.compare.row_table import RowTable
from lockstep.compare.verdict import LOUDEST
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

#: Maximum number of rows that a browser gets of a table, and sorts and filters.
MOST_ROWS = 1000

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


def matching(table: T, columns: Columns[T], search: str) -> T:
    """Return the series that match a search: a column of text contains each word of it, in any letter case."""
    words = search.lower().split()
    if not words:
        return table
    texts = zip(*(of(table) for name, of in columns.items() if name in _SEARCHED), strict=True)
    found = [place for place, parts in enumerate(texts) if all(word in "\n".join(parts).lower() for word in words)]
    return table.select(np.array(found, dtype=np.intp))


def first_rows(table: T) -> tuple[T, str]:
    """Return the series of a table that a browser gets, and the words below them if the table has more."""
    if len(table) <= MOST_ROWS:
        return table, ""
    text = f"The first {whole(MOST_ROWS)} of {whole(len(table))} series: search for others."
    return table.select(np.arange(MOST_ROWS)), text
