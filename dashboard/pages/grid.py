"""The table of series that pages narrow, sort and open rows of: its looks and its kinds of column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_ag_grid as dag

#: Rows up to which the table is as high as they are.
FEW_ROWS = 40

Column = dict[str, Any]


def grid(name: str, columns: Sequence[Column], rows: int, empty: str, search: str = "") -> Any:
    """An empty table.

    Args:
        name: its id.
        columns: see ``text`` and ``number``.
        rows: how many it will have at most.
        empty: what it says if it has none.
        search: text that rows must hold.
    """
    return dag.AgGrid(
        id=name,
        columnDefs=list(columns),
        rowData=[],
        defaultColDef={"sortable": True, "filter": True, "resizable": True},
        getRowId="params.data.id",
        dashGridOptions={
            "theme": {"function": "lockstepTheme(themeQuartz)"},
            "rowHeight": 30,
            "headerHeight": 34,
            "tooltipShowDelay": 300,
            "localeText": {"noRowsToShow": empty, "noMatchingRows": "No series match."},
            "enableCellTextSelection": True,
            "quickFilterText": search,
            "domLayout": "normal" if rows > FEW_ROWS else "autoHeight",
        },
        className="grid" if rows > FEW_ROWS else "grid short",
        style={"height": None},
    )


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
