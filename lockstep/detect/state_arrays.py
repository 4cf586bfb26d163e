"""Convert the state of a monitor to named arrays for a file, and back.

The file is not trusted. So the state holds only numbers, one row per series, and no names, objects or code. A forged
file can cause wrong numbers, but nothing worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.detector import Detector, Ints
from lockstep.detect.find_changes import Monitor
from lockstep.detect.shift import Shift
from lockstep.detect.trend import Better

Arrays = Mapping[str, NDArray[Any]]

#: Columns of the tables, and their types. The lists of all series become one table; "row" is the index of the series.
_TABLES: dict[str, dict[str, type]] = {
    "shift": {"row": np.int64, "index": np.int64, "earliest": np.int64, "latest": np.int64}
    | {"reported_at": np.int64, "reported_as": np.int64, "plain": np.bool_},
}

#: The better directions, in the order of their codes in the file.
_BETTER: tuple[Better, ...] = get_args(Better)


def to_arrays(monitor: Monitor) -> dict[str, NDArray[Any]]:
    """Return the state of a monitor as named arrays, which share memory with the monitor."""
    detector = monitor.detector
    arrays = {f"detector.{name}": array for name, array in _arrays(detector).items()}
    arrays["better"] = np.array([_BETTER.index(better) for better in monitor.better], dtype=np.uint8)
    tables: dict[str, list[tuple[Any, ...]]] = {
        "shift": [(row, *astuple(shift)) for row, shifts in enumerate(detector.shifts) for shift in shifts],
    }
    for table, entries in tables.items():
        for place, (name, kind) in enumerate(_TABLES[table].items()):
            arrays[f"{table}.{name}"] = np.array([entry[place] for entry in entries], dtype=kind)
    return arrays


def from_arrays(arrays: Arrays) -> Monitor:
    """Return a monitor that continues from a state. It may change the arrays in place.

    Raises:
        ValueError, KeyError: the arrays do not have the form that ``to_arrays`` returns.
    """
    better = [_BETTER[code] for code in arrays["better"].tolist()]
    detector = Detector(np.zeros(len(better), dtype=np.bool_))
    for name, fresh in _arrays(detector).items():
        array = arrays[f"detector.{name}"]
        if array.dtype != fresh.dtype or array.ndim != fresh.ndim or len(array) != len(better):
            raise ValueError(f"the array detector.{name} has a wrong shape or type")
        setattr(detector, name, array)
    for row, *shift in _rows(arrays, "shift"):
        detector.shifts[row].append(Shift(*shift))
    return Monitor.of(detector, better)


def select(arrays: Arrays, rows: Ints) -> dict[str, NDArray[Any]]:
    """Return the state of only the series ``rows`` (each once), in this order. Arrays without rows are left out."""
    place = np.full(len(arrays["better"]), -1)
    place[rows] = np.arange(len(rows))
    selected = {}
    for name, array in arrays.items():
        table = name.partition(".")[0]
        if table not in _TABLES:
            if array.ndim:
                selected[name] = array[rows]
            continue
        new_row = place[arrays[f"{table}.row"]]
        remaining = np.flatnonzero(new_row >= 0)
        selected[name] = new_row[remaining] if name == f"{table}.row" else array[remaining]
    return selected


def together(states: Sequence[Arrays]) -> dict[str, NDArray[Any]]:
    """Join several states into one state with all of their series, in order."""
    starts = np.cumsum([0, *(len(state["better"]) for state in states)])
    joined = {}
    for name in set.intersection(*map(set, states)):
        parts = [state[name] for state in states]
        if name in (f"{table}.row" for table in _TABLES):
            parts = [part + start for part, start in zip(parts, starts[:-1], strict=True)]
        elif parts[0].ndim == 2:
            wide = max(part.shape[1] for part in parts)
            parts = [np.pad(part, ((0, 0), (0, wide - part.shape[1]))) for part in parts]
        joined[name] = np.concatenate(parts)
    return joined


def _arrays(detector: Detector) -> dict[str, NDArray[Any]]:
    """Return every array of a detector by its name, found by type so that none is forgotten."""
    return {name: value for name, value in vars(detector).items() if isinstance(value, np.ndarray)}


def _rows(arrays: Arrays, table: str) -> list[tuple[Any, ...]]:
    return list(zip(*(arrays[f"{table}.{name}"].tolist() for name in _TABLES[table]), strict=True))
