"""The table of series that pages narrow, sort and open rows of: its looks and its kinds of column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_ag_grid as dag
from dash import Dash, Input, Output, State

from dashboard.pages.parts import in_browser

#: Rows up to which the table is as high as they are.
FEW_ROWS = 40

Column = dict[str, Any]


#: Rows up to which a browser has the whole table; of a longer one it asks the server for what it shows.
WHOLE = 1000

#: How AG Grid asks for the rows of a long table: blocks of 100, at most 30 of them in the browser.
_SERVED = {"cacheBlockSize": 100, "maxBlocksInCache": 30, "infiniteInitialRowCount": 100, "cacheOverflowSize": 2}


def grid(name: str, columns: Sequence[Column], rows: int, empty: str, search: str = "") -> Any:
    """An empty table.

    Args:
        name: its id.
        columns: see ``text`` and ``number``.
        rows: how many it will have at most; more than ``WHOLE`` come from the server, block by block.
        empty: what it says if it has none.
        search: text that rows must hold.
    """
    served = rows > WHOLE
    source: dict[str, Any] = {"rowModelType": "infinite"} if served else {"rowData": []}
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
            "localeText": {"noRowsToShow": empty, "noMatchingRows": "No series match."},
            "enableCellTextSelection": True,
            "domLayout": "normal" if rows > FEW_ROWS else "autoHeight",
            **(_SERVED if served else {"quickFilterText": search}),
        },
        className="grid" if rows > FEW_ROWS else "grid short",
        style={"height": None},
    )


def connect(app: Dash, page: str) -> None:
    """Connect a page's table: a search narrows it, a click opens a row, and a long one asks again for its rows.

    Args:
        app: the application of the page.
        page: prefix of the ids "…-grid", "…-search" and "…-told". The last one changes with the rows.
    """
    options, search, answer = f"{page}-grid", Input(f"{page}-search", "value"), f"{page}-told"
    in_browser(app, "search", Output(options, "dashGridOptions"), search, State(options, "dashGridOptions"))
    in_browser(app, "openRow", Output("url", "href", allow_duplicate=True), Input(options, "cellClicked"))
    in_browser(app, "askAgain", Output(answer, "modified_timestamp"), Input(answer, "data"), search)


def text(field: str, header: str, width: int, **more: Any) -> Column:
    """A column of text, ``width`` pixels wide; ``more``: of AG Grid's column."""
    return {"field": field, "headerName": header, "width": width, "filter": "agTextColumnFilter"} | more


def number(field: str, header: str, width: int, **more: Any) -> Column:
    """A column of numbers."""
    column = {"field": field, "headerName": header, "width": width, "type": "rightAligned", "cellClass": "number"}
    return column | {"filter": "agNumberColumnFilter"} | more


def drawn(name: str) -> dict[str, str]:
    """One of the functions of ``assets/grid.js``, for a column's ``valueFormatter``."""
    return {"function": f"{name}(params)"}


#: A shape, in the order of its numbers.
BY_SHAPE = {"cellClass": "mono", "comparator": {"function": "byShape"}, "tooltipField": "case"}
