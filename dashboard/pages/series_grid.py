"""The table of series that several pages have: its columns, its rows, its order, its links."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

import dash_ag_grid as dag
import numpy as np
from dash import Dash, Input, Output
from numpy.typing import NDArray

from dashboard.address import SeriesAddress
from dashboard.pages.parts import HINTS, in_browser
from lockstep.compare.difference import Differences
from lockstep.compare.number_format import whole
from lockstep.compare.row import COPIED, STATE_LABELS
from lockstep.compare.row_table import RowTable
from lockstep.compare.verdict import LOUDEST, word
from lockstep.history.model import STATES, Floats, SeriesKey

#: Maximum number of rows for which the table is as high as its rows. A longer table scrolls.
FEW_ROWS = 40

Column = dict[str, Any]


def grid(name: str, columns: Sequence[Column], rows: int, empty: str) -> Any:
    """Return a table without rows, which callbacks of the page fill. Until then it says that it is loading.

    Args:
        columns: the columns, see ``text`` and ``number``.
        rows: maximum number of rows that the table will have.
        empty: the text that the table shows if there are no rows.
    """
    return dag.AgGrid(
        id=name,
        columnDefs=list(columns),
        defaultColDef={"sortable": True, "filter": True, "resizable": True},
        getRowId="params.data.id",
        dashGridOptions={
            "theme": {"function": "lockstepTheme(themeQuartz)"},
            "getRowHeight": {"function": "rowHeight()"},
            "headerHeight": 34,
            "tooltipShowDelay": 300,
            "localeText": {"loadingOoo": "Loading …", "noRowsToShow": empty, "noMatchingRows": "No series match."},
            "enableCellTextSelection": True,
            "domLayout": "normal" if rows > FEW_ROWS else "autoHeight",
        },
        className="grid" if rows > FEW_ROWS else "grid short",
        style={"height": None},
    )


def open_rows(app: Dash, name: str) -> None:
    """Add the callback that opens the page of a table's row after a click."""
    in_browser(app, "openRow", Output("url", "href", allow_duplicate=True), Input(name, "cellClicked"))


def text(field: str, header: str, width: int, **options: Any) -> Column:
    """Return a column of text, ``width`` pixels wide. ``options`` are further options of AG Grid's column."""
    return (
        {"field": field, "headerName": header, "width": width, "filter": "agTextColumnFilter"}
        | {"headerTooltip": HINTS.get(header)}
        | {"filterParams": {"filterOptions": ["contains", "equals"], "maxNumConditions": 1}}
        | options
    )


def number(field: str, header: str, width: int, **options: Any) -> Column:
    """Return a column of numbers. ``options`` are further options of AG Grid's column."""
    column = {"field": field, "headerName": header, "width": width, "type": "rightAligned", "cellClass": "number"}
    params = {"filterOptions": ["greaterThan", "lessThan"], "maxNumConditions": 1}
    column |= {"filter": "agNumberColumnFilter", "filterParams": params, "headerTooltip": HINTS.get(header)}
    return column | options


def case_column(keys: Sequence[SeriesKey]) -> Column:
    """Return the column of shapes, sorted by the numbers in them. Shapes often differ only at their ends, so it fits
    the longest one, at 7.4 px a letter.
    """
    width = min(max(150, round(7.4 * max((len(key.case) for key in keys), default=0)) + 24), 330)
    sorting = {"cellClass": "mono", "comparator": {"function": "byShape"}, "tooltipField": "case"}
    return text("case", "Case", width, flex=1, minWidth=width, **sorting)


def grid_function(name: str) -> dict[str, str]:
    """Return a reference to a function in ``assets/grid.js``, for a column's ``valueFormatter``."""
    return {"function": f"{name}(params)"}


class Table(Protocol):
    """Protocol of the data behind a table of series: ``Statuses`` or ``CommitComparison``."""

    @property
    def rows(self) -> RowTable:
        """The row of each series, in the same order as the series."""

    def __len__(self) -> int: ...

    def select(self, places: NDArray[np.intp]) -> Self:
        """Return the table of the series at these indices."""


T = TypeVar("T", bound=Table)

#: Maximum number of rows that a browser gets of a table, and sorts and filters.
MOST_ROWS = 500

#: Values of all rows, by field of the grid's rows; ``None`` for rows without a value.
Columns = Mapping[str, Sequence[Any]]


def series_columns(differences: Differences, verdicts: NDArray[np.uint8]) -> Columns:
    """Return the columns of every table of series: the key, its page, the state, and why the series changed.

    The last are the changes of both times of a ratio, and the reason with the note. ``verdicts`` are codes.
    """
    rows, times = differences.rows, differences.times
    changed = [times.get(place) for place in range(len(rows))]
    notes = rows.columns["note"].tolist()
    reasons = (
        (rows.reason(place), "" if one is None else one.text, note)
        for place, (one, note) in enumerate(zip(changed, notes, strict=True))
    )
    return {
        # A cell is drawn again only in a new row, and the later analysis changes more than the cell's value.
        "id": ["\n".join((*key[1:], LOUDEST[code])) for key, code in zip(rows.keys, verdicts, strict=True)],
        "href": [SeriesAddress(*key).link() for key in rows.keys],
        "family": [key.suite for key in rows.keys],
        "variant": [key.variant for key in rows.keys],
        "case": [key.case for key in rows.keys],
        "l2": [key.l2 for key in rows.keys],
        "state": _states(rows),
        "own_change": [None if one is None else 100 * math.expm1(one.own) for one in changed],
        "baseline_change": [None if one is None else 100 * math.expm1(one.baseline) for one in changed],
        "why": [". ".join(filter(None, parts)) for parts in reasons],
    }


def cells(columns: Columns) -> list[dict[str, Any]]:
    """Return the rows of the grid: for each series, the values of the columns by field, without missing values."""
    return [
        {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        for row in zip(*columns.values(), strict=True)
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


def matching(table: T, verdicts: NDArray[np.uint8], search: str) -> T:
    """Return the series that match a search, in any letter case.

    Each word must occur in the key, the state, the unit, the commit or the verdict. ``verdicts`` are codes.
    """
    words = search.lower().split()
    if not words:
        return table
    rows, codes = table.rows, verdicts.tolist()
    parts = zip(rows.keys, _states(rows), rows.units, rows.short_commits, codes, strict=True)
    texts = (
        "\n".join((*key, state, unit, commit, LOUDEST[code], word(LOUDEST[code], unit))).lower()
        for key, state, unit, commit, code in parts
    )
    found = [place for place, text in enumerate(texts) if all(part in text for part in words)]
    return table.select(np.array(found, dtype=np.intp))


def first_rows(table: T) -> tuple[T, str]:
    """Return the series of a table that a browser gets, and the words below them if the table has more."""
    if len(table) <= MOST_ROWS:
        return table, ""
    text = f"The first {whole(MOST_ROWS)} of {whole(len(table))} series: search for others."
    return table.select(np.arange(MOST_ROWS)), text
