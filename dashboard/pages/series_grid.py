"""The overview's grid of series: its kinds of columns, its rows, its links, and the search in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_ag_grid as dag
import numpy as np
from dash import Dash, Input, Output
from numpy.typing import NDArray

from dashboard.pages.parts import HINTS, in_browser
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


#: Maximum number of rows that a browser gets of a table, and sorts and filters.
MOST_ROWS = 500


def states_of(rows: RowTable) -> list[str]:
    """Return the state of each row in words."""
    columns = (rows.columns[name].tolist() for name in ("state", "same_work_as"))
    return [COPIED if copied else STATE_LABELS[STATES[code]] for code, copied in zip(*columns, strict=True)]


def or_none(numbers: Floats) -> list[float | None]:
    """Return the numbers as a list for JSON, which has ``None`` for NaN."""
    return [None if number != number else number for number in numbers.tolist()]


def matching(rows: RowTable, verdicts: NDArray[np.uint8], search: str) -> NDArray[np.intp]:
    """Return the indices of the rows that match a search, in any letter case.

    Each word must occur in the key, the state, the unit, the commit or the verdict. ``verdicts`` are codes.
    """
    parts = zip(rows.keys, states_of(rows), rows.units, rows.short_commits, verdicts.tolist(), strict=True)
    texts = (
        "\n".join((*key, state, unit, commit, LOUDEST[code], word(LOUDEST[code], unit))).lower()
        for key, state, unit, commit, code in parts
    )
    words = search.lower().split()
    return np.array([place for place, text in enumerate(texts) if all(part in text for part in words)], dtype=np.intp)
