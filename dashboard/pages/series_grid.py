"""The table of series that several pages have: its style, its kinds of column, its order, its links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_ag_grid as dag
from dash import Dash, Input, Output

from dashboard.pages.parts import in_browser

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
            "rowHeight": 30,
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
        | {"filterParams": {"filterOptions": ["contains", "equals"], "maxNumConditions": 1}}
        | options
    )


def number(field: str, header: str, width: int, **options: Any) -> Column:
    """Return a column of numbers. ``options`` are further options of AG Grid's column."""
    column = {"field": field, "headerName": header, "width": width, "type": "rightAligned", "cellClass": "number"}
    params = {"filterOptions": ["greaterThan", "lessThan"], "maxNumConditions": 1}
    return column | {"filter": "agNumberColumnFilter", "filterParams": params} | options


def grid_function(name: str) -> dict[str, str]:
    """Return a reference to a function in ``assets/grid.js``, for a column's ``valueFormatter``."""
    return {"function": f"{name}(params)"}


#: A column of shapes, sorted by the numbers in them.
BY_SHAPE = {"cellClass": "mono", "comparator": {"function": "byShape"}, "tooltipField": "case"}
