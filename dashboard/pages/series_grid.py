"""The table of series that several pages have: its style, its kinds of column, its search, its order, its links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_ag_grid as dag
from dash import Dash, Input, Output, State

from dashboard.pages.parts import in_browser

#: Maximum number of rows for which the table is as high as its rows. A longer table scrolls.
FEW_ROWS = 40

Column = dict[str, Any]


#: Maximum number of rows that the browser holds. Of a longer table, it requests the visible rows from the server.
WHOLE = 1000

#: Settings with which AG Grid requests the rows of a long table: blocks of 100, at most 30 of them in the browser.
_SERVED = {"cacheBlockSize": 100, "maxBlocksInCache": 30, "infiniteInitialRowCount": 100, "cacheOverflowSize": 2}


def grid(name: str, columns: Sequence[Column], rows: int, empty: str, search: str = "") -> Any:
    """Return a table without rows, which callbacks of the page fill. Until then it says that it is loading.

    Args:
        columns: the columns, see ``text`` and ``number``.
        rows: maximum number of rows that the table will have; more than ``WHOLE`` come from the server in blocks.
        empty: the text that the table shows if there are no rows.
        search: text that rows must contain to be shown.
    """
    served = rows > WHOLE
    source: dict[str, Any] = {"rowModelType": "infinite"} if served else {}
    return dag.AgGrid(
        id=name,
        columnDefs=list(columns),
        **source,
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
            **(_SERVED if served else {"quickFilterText": search}),
        },
        className="grid" if rows > FEW_ROWS else "grid short",
        style={"height": None},
    )


def connect(app: Dash, page: str) -> None:
    """Add a table's callbacks: a search filters its rows, a click opens a row, new data make it request rows again.

    Args:
        page: prefix of the ids of the table "…-grid", its search "…-search", and the version of its data "…-told".
    """
    options, search, answer = f"{page}-grid", Input(f"{page}-search", "value"), f"{page}-told"
    in_browser(app, "search", Output(options, "dashGridOptions"), search, State(options, "dashGridOptions"))
    in_browser(app, "openRow", Output("url", "href", allow_duplicate=True), Input(options, "cellClicked"))
    in_browser(app, "askAgain", Output(answer, "modified_timestamp"), Input(answer, "data"), search)


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
