"""Define the columns of a stored point, and join the points of several files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["key", "code", "count", "time", "number", "text", "samples"]

#: Maximum number of samples that a point stores.
MOST_SAMPLES = 100

#: NumPy type of each kind of number column.
DTYPES: Mapping[Kind, Any] = {
    "key": np.int64,
    "code": np.uint8,
    "count": np.int32,
    "time": np.int64,
    "number": np.float64,
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

#: The value that stands for "unknown" in a column of each kind.
BLANKS: Mapping[Kind, Any] = {"key": 0, "code": 0, "count": 0, "time": 0, "number": np.nan, "text": "", "samples": ()}


#: The points of a file by column, of equal length. A column without values may be absent. Columns of numbers are arrays
#: of the type in ``DTYPES``; columns of the kinds "text" and "samples" are lists.
FilePoints = Mapping[str, Any]


def blank(kind: Kind, length: int) -> Any:
    """Return a column of this kind in which every value is unknown."""
    if kind in ("text", "samples"):
        return [BLANKS[kind]] * length
    return np.full(length, BLANKS[kind], dtype=DTYPES[kind])


def joined(files: Sequence[FilePoints]) -> dict[str, NDArray[Any]]:
    """Return the points of several files as one, sorted by series, with the columns that any of the files has."""
    order = np.argsort(np.concatenate([file["series"] for file in files]), kind="stable")
    points: dict[str, NDArray[Any]] = {}
    for name, kind in COLUMNS.items():
        if not any(name in file for file in files):
            continue
        columns = [file[name] if name in file else blank(kind, len(file["series"])) for file in files]
        if kind in ("text", "samples"):
            points[name] = np.empty(len(order), dtype=object)
            # Assign one element at a time, because NumPy would spread a point's list of samples over several rows.
            for place, value in enumerate(value for column in columns for value in column):
                points[name][place] = value
        else:
            points[name] = np.concatenate(columns)
        points[name] = points[name][order]
    return points
