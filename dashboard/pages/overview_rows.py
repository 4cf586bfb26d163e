"""Fill the overview's table with rows, and save them as files."""

from __future__ import annotations

import base64
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from dash import Dash, Input, Output, State, ctx

from dashboard.pages.overview_quantities import Choice, chosen, of_choice
from dashboard.pages.overview_table import FILE_COLUMNS, cells_of, in_order
from dashboard.pages.series_rows import MOST_ROWS, first_rows, matching
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.compare.series_status import Statuses
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.history.store import Store


def register_rows(app: Dash, store: Store, findings: Findings) -> None:
    """Add the callbacks that fill the table, and that save it as CSV or parquet."""
    choices = ("machine", "l2", "since", "quantity", "search")

    @app.callback(
        Output("overview-grid", "rowData"),
        Output("overview-more", "children"),
        *(Input(f"overview-{name}", "value") for name in choices),
        Input("visit", "data"),
        Input("version", "data"),
    )
    def fill(
        machine: str,
        l2: str,
        since: str,
        quantity: str,
        search: str | None,
        visit: int | None,
        _version: str | None,
    ) -> tuple[list[dict[str, Any]], str]:
        results = store.current()
        choice = chosen(results, findings, machine, l2, quantity, since, visit)
        shown, more = first_rows(_found(results, choice, search))
        return cells_of(results, machine, shown), more

    @app.callback(
        Output("overview-file", "data"),
        Input("overview-csv", "n_clicks"),
        Input("overview-parquet", "n_clicks"),
        State("overview-grid", "virtualRowData"),
        *(State(f"overview-{name}", "value") for name in choices),
        State("visit", "data"),
        prevent_initial_call=True,
    )
    def download(
        _csv: int | None,
        _parquet: int | None,
        rows: list[dict[str, Any]] | None,
        machine: str,
        l2: str,
        since: str,
        quantity: str,
        search: str | None,
        visit: int | None,
    ) -> Any:
        results = store.current()
        choice = chosen(results, findings, machine, l2, quantity, since, visit)
        found = _found(results, choice, search)
        if len(found) > MOST_ROWS:
            # The browser has not all of them.
            rows = cells_of(results, machine, found)
        kind = str(ctx.triggered_id).removeprefix("overview-")
        content = base64.b64encode(saved(rows or [], kind)).decode()
        return {"content": content, "filename": f"lockstep.{kind}", "base64": True}


@remembered
def _ordered(results: Results, choice: Choice) -> Statuses:
    """Return the statuses of the chosen series in the order of the table."""
    return in_order(of_choice(results, choice))


def _found(results: Results, choice: Choice, search: str | None) -> Statuses:
    """Return the statuses of the chosen series that match the search, in the order of the table."""
    ordered = _ordered(results, choice)
    return matching(ordered, ordered.verdict, search or "")


def saved(rows: list[dict[str, Any]], kind: str) -> bytes:
    """Return the rows of the overview's table as a file. Numbers are not formatted, and a missing number is empty.

    ``kind`` is "csv" or "parquet".
    """
    texts = {"machine", "family", "variant", "case", "l2", "commit", "state", "unit", "verdict", "why"}
    named = {name: np.array([row.get(name) for row in rows], dtype=object) for name in FILE_COLUMNS}
    if kind == "csv":
        named |= {name: np.array([_harmless(cell) for cell in named[name]], dtype=object) for name in texts}
    columns = (f'"{name}"::{"VARCHAR" if name in texts else "DOUBLE"} AS "{name}"' for name in named)
    with closing(duckdb.connect(":memory:")) as connection, tempfile.NamedTemporaryFile() as file:
        connection.register("rows", named)
        connection.execute(f"COPY (SELECT {', '.join(columns)} FROM rows) TO ? (FORMAT {kind})", [file.name])
        return Path(file.name).read_bytes()


def _harmless(cell: Any) -> Any:
    """Quote a text that a spreadsheet would execute as a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
