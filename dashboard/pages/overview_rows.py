"""Fill the overview's table with rows, and save them as files."""

from __future__ import annotations

import base64
import csv
import io
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from dash import Dash, Input, Output, State, ctx

from dashboard.pages.overview_quantities import Choice, chosen, of_choice
from dashboard.pages.overview_table import cells_of, file_rows, in_order
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
        if ctx.triggered_id == "overview-csv":
            return {"content": csv_text(rows or []), "filename": "lockstep.csv", "type": "text/csv"}
        content = base64.b64encode(parquet_bytes(rows or [])).decode()
        return {"content": content, "filename": "lockstep.parquet", "base64": True}


@remembered
def _ordered(results: Results, choice: Choice) -> Statuses:
    """Return the statuses of the chosen series in the order of the table."""
    return in_order(of_choice(results, choice))


def _found(results: Results, choice: Choice, search: str | None) -> Statuses:
    """Return the statuses of the chosen series that match the search, in the order of the table."""
    ordered = _ordered(results, choice)
    return matching(ordered, ordered.verdict, search or "")


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
