"""Answer the overview's requests for rows: blocks of a long table, and files to download."""

from __future__ import annotations

import base64
import csv
import io
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from dash import Dash, Input, Output, State, ctx, no_update

from dashboard.pages.infinite_rows import block, chosen_rows
from dashboard.pages.overview_quantities import Choice, chosen, of_choice
from dashboard.pages.overview_table import COLUMNS, cells_of, file_rows, in_order
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.compare.series_status import Statuses
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.history.store import Store


def register_rows(app: Dash, store: Store, findings: Findings) -> None:
    """Add the callbacks that send the rows of a long table, and that save the table as CSV or parquet."""
    choices = [State(f"overview-{name}", "value") for name in ("machine", "l2", "since", "quantity", "search")]

    @app.callback(
        Output("overview-grid", "getRowsResponse"),
        Input("overview-grid", "getRowsRequest"),
        *choices,
        State("visit", "data"),
        prevent_initial_call=True,
    )
    def serve(
        request: dict[str, Any] | None,
        machine: str,
        l2: str,
        since: str,
        quantity: str,
        search: str | None,
        visit: int | None,
    ) -> Any:
        if request is None:
            return no_update
        results = store.current()
        all_statuses = _ordered(results, chosen(results, findings, machine, l2, quantity, since, visit))
        return block(all_statuses, COLUMNS, request, search or "", partial(cells_of, results, machine))

    @app.callback(
        Output("overview-file", "data"),
        Input("overview-csv", "n_clicks"),
        Input("overview-parquet", "n_clicks"),
        State("overview-grid", "virtualRowData"),
        State("overview-grid", "rowModelType"),
        State("overview-grid", "getRowsRequest"),
        *choices,
        State("visit", "data"),
        prevent_initial_call=True,
    )
    def download(
        _csv: int | None,
        _parquet: int | None,
        rows: list[dict[str, Any]] | None,
        model: str | None,
        request: dict[str, Any] | None,
        machine: str,
        l2: str,
        since: str,
        quantity: str,
        search: str | None,
        visit: int | None,
    ) -> Any:
        if model == "infinite":
            results = store.current()
            all_statuses = _ordered(results, chosen(results, findings, machine, l2, quantity, since, visit))
            places = chosen_rows(all_statuses, COLUMNS, request or {}, search or "")
            rows = cells_of(results, machine, all_statuses.select(np.array(places, dtype=np.intp)))
        if ctx.triggered_id == "overview-csv":
            return {"content": csv_text(rows or []), "filename": "lockstep.csv", "type": "text/csv"}
        content = base64.b64encode(parquet_bytes(rows or [])).decode()
        return {"content": content, "filename": "lockstep.parquet", "base64": True}


@remembered
def _ordered(results: Results, choice: Choice) -> Statuses:
    """Return the statuses of the chosen series in the order of the table, see ``table``."""
    return in_order(of_choice(results, choice))


def csv_text(rows: list[dict[str, Any]]) -> str:
    """Return the rows of the overview's table as CSV. Numbers are not formatted, and a missing number is empty."""
    named = file_rows(rows)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(named)
    writer.writerows([_harmless(cell) for cell in row] for row in zip(*named.values(), strict=True))
    return file.getvalue()


def parquet_bytes(rows: list[dict[str, Any]]) -> bytes:
    """Return the rows of the overview's table as a parquet file."""
    texts = {"machine", "family", "variant", "case", "l2", "commit", "state", "unit", "verdict", "why"}
    named = file_rows(rows)
    columns = (f'"{name}"::{"VARCHAR" if name in texts else "DOUBLE"} AS "{name}"' for name in named)
    with closing(duckdb.connect(":memory:")) as connection, tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        connection.register("rows", {name: np.array(values, dtype=object) for name, values in named.items()})
        connection.execute(f"COPY (SELECT {', '.join(columns)} FROM rows) TO ?", [file.name])
        return Path(file.name).read_bytes()


def _harmless(cell: Any) -> Any:
    """Quote a text that a spreadsheet would execute as a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
