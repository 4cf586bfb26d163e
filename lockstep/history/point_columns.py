"""Define the columns of a stored point, and join the points of several files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["key", "code", "count", "time", "number", "text", "samples"]

#: Maximum number of samples that a point stores.
MOST_SAMPLES = 100

#: NumPy type, type in a part, and blank (the value that stands for "unknown", here and in SQL) of each kind of column.
KINDS: Mapping[Kind, tuple[Any, str, Any, str]] = {
    "key": (np.int64, "BIGINT", 0, "0"),
    "code": (np.uint8, "UTINYINT", 0, "0"),
    "count": (np.int32, "INTEGER", 0, "0"),
    "time": (np.int64, "BIGINT", 0, "0"),
    "number": (np.float64, "DOUBLE", np.nan, "'NaN'"),
    "text": (object, "VARCHAR", "", "''"),
    "samples": (object, "DOUBLE[]", (), "[]"),
}
#: Every column of a part, with its kind. Unknown numbers are NaN, unknown counts and times 0, and unknown texts "".
COLUMNS: Mapping[str, Kind] = {
    "series": "key",
    "run": "count",
    "version": "key",
    "state": "code",
    "value": "number",
    "low": "number",
    "high": "number",
    "q25": "number",
    "q75": "number",
    "number": "count",
    "repeat": "count",
    "measured_at": "time",
    "samples": "samples",
    "ratio": "number",
    "ratio_low": "number",
    "ratio_high": "number",
    "epochs": "count",
    "mde": "number",
    "flops": "number",
    "bytes": "number",
    "floor_s": "number",
    "sm_mhz": "number",
    "sm_mhz_low": "number",
    "temperature_c": "number",
    "power_w": "number",
    "check_error": "number",
    "worst_row": "number",
    "deterministic": "number",
    "reason": "text",
    "note": "text",
    "baseline": "text",
    "floor_source": "text",
    "bound": "text",
    "clock_reasons": "text",
    "code": "text",
    # The first 16 digits of a commit's hash, of a GPU's UUID and of a digest, see ``lockstep.history.hex_digits``.
    "same_work_as": "key",
    "gpu": "key",
    "work": "key",
    "bridge": "number",
}

#: The points of a file by column, of equal length. A column without values may be absent. Columns of numbers are arrays
#: of the type in ``KINDS``; columns of the kinds "text" and "samples" are lists.
FilePoints = Mapping[str, Any]


def blank(kind: Kind, length: int) -> Any:
    """Return a column of this kind in which every value is unknown."""
    dtype, _, unknown, _ = KINDS[kind]
    return [unknown] * length if dtype is object else np.full(length, unknown, dtype)


def joined(files: Sequence[FilePoints]) -> dict[str, NDArray[Any]]:
    """Return the points of several files as one, sorted by series, with the columns that any of the files has."""
    order = np.argsort(np.concatenate([file["series"] for file in files]), kind="stable")
    points: dict[str, NDArray[Any]] = {}
    for name, kind in COLUMNS.items():
        if not any(name in file for file in files):
            continue
        columns = [file[name] if name in file else blank(kind, len(file["series"])) for file in files]
        # One element at a time, because ``concatenate`` would spread a point's list of samples over several rows.
        every = np.fromiter(chain(*columns), object) if KINDS[kind][0] is object else np.concatenate(columns)
        points[name] = every[order]
    return points
