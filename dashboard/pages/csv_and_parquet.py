"""The overview's rows as files to download: CSV and Parquet."""

from __future__ import annotations

import csv
import io
from typing import Any

from dashboard.pages.overview_table import file_rows


def csv_text(rows: list[dict[str, Any]]) -> str:
    """The rows of the grid as CSV; numbers as they are, an absent one is empty."""
    named = file_rows(rows)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(named)
    writer.writerows([_harmless(cell) for cell in row] for row in zip(*named.values(), strict=True))
    return file.getvalue()


def parquet_bytes(rows: list[dict[str, Any]]) -> bytes:
    """The rows of the grid as a parquet file."""
    # Start-up: pyarrow is slow to import.
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = {"machine", "family", "variant", "case", "l2", "commit", "state", "unit", "verdict", "why"}
    schema = pa.schema([(name, pa.string() if name in texts else pa.float64()) for name in file_rows([])])
    file = io.BytesIO()
    pq.write_table(pa.table(file_rows(rows), schema=schema), file)
    return file.getvalue()


def _harmless(cell: Any) -> Any:
    """A spreadsheet takes a text that begins like this for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
