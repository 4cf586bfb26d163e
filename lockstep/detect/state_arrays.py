"""Convert the state of a monitor to named arrays for a file, and back.

The file is not trusted. So the state holds only numbers, one row per series, and no names, objects or code. A forged
file can cause wrong numbers, but nothing worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from lockstep.detect.detector import Detector
from lockstep.detect.find_changes import Monitor
from lockstep.detect.findings import Revision
from lockstep.detect.level_shift import Shift
from lockstep.detect.run_lengths import Ints
from lockstep.detect.trend import Better

Arrays = Mapping[str, NDArray[Any]]

#: Columns of the table of shifts. The lists of all series become one table, whose first column is the series' row.
_SHIFT = ("row", "index", "earliest", "latest", "reported_at", "silent", "unsettled")
_REVISION = ("row", "reported_at", "revised_at", "index", "moved_to", "size", "why")
_TABLES = {"shift": _SHIFT, "revision": _REVISION}

#: The better directions, in the order of their codes in the file.
_BETTER = get_args(Better)

#: Value of ``Revision.moved_to`` for a withdrawn change.
_NOWHERE = -1


def to_arrays(monitor: Monitor) -> dict[str, NDArray[Any]]:
    """Return the state of a monitor as named arrays, which share memory with the monitor."""
    detector = monitor.detector
    arrays = {f"{part}.{name}": array for part, name, array in _arrays(detector)}
    arrays["better"] = np.array([_BETTER.index(better) for better in monitor.better], dtype=np.uint8)
    arrays["ratio"] = monitor.ratio
    shifts = [(row, s) for row, row_shifts in enumerate(detector.shifts) for s in row_shifts]
    revisions = [(row, r) for row, row_revisions in enumerate(detector.revisions) for r in row_revisions]
    rows: dict[str, list[list[Any]]] = {
        "shift": [[row, s.index, s.earliest, s.latest, s.reported_at, s.silent, s.unsettled] for row, s in shifts],
        "revision": [
            [row, r.reported_at, r.revised_at, r.index, _NOWHERE if r.moved_to is None else r.moved_to, r.size, r.why]
            for row, r in revisions
        ],
    }
    for table, names in _TABLES.items():
        for place, name in enumerate(names):
            arrays[f"{table}.{name}"] = np.array([entry[place] for entry in rows[table]], dtype=_dtype(name))
    return arrays


def from_arrays(arrays: Arrays) -> Monitor:
    """Return a monitor that continues from a state. It may change the arrays in place.

    Raises:
        ValueError, KeyError: the arrays do not have the form that ``to_arrays`` returns.
    """
    better = [_BETTER[code] for code in arrays["better"].tolist()]
    detector = Detector(len(better))
    for part, name, fresh in list(_arrays(detector)):
        array = arrays[f"{part}.{name}"]
        if array.dtype != fresh.dtype or array.ndim != fresh.ndim or len(array) != len(better):
            raise ValueError(f"the array {part}.{name} has a wrong shape or type")
        setattr(_part(detector, part), name, array)
    for row, *shift in _rows(arrays, "shift"):
        detector.shifts[row].append(Shift(*shift))
    for row, reported_at, revised_at, index, moved_to, size, reason in _rows(arrays, "revision"):
        moved = None if moved_to == _NOWHERE else moved_to
        detector.revisions[row].append(Revision(reported_at, revised_at, index, moved, size, reason))
    return Monitor.of(detector, better, arrays["ratio"].astype(np.bool_))


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
            parts = [_widened(part, wide, 1.0 if name == "detector.weights" else np.nan) for part in parts]
        joined[name] = np.concatenate(parts)
    return joined


def _widened(array: NDArray[Any], width: int, blank: float) -> NDArray[Any]:
    if array.shape[1] == width:
        return array
    return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=blank)


def _part(detector: Detector, part: str) -> object:
    return {"detector": detector, "noise": detector.noise, "run_lengths": detector.run_lengths}[part]


def _arrays(detector: Detector) -> list[tuple[str, str, NDArray[Any]]]:
    """Return every array of a detector with its part and name.

    The arrays are found by their type, so an array that is later added to a class is included automatically.
    """
    arrays = []
    for part in ("detector", "noise"):
        arrays += [(part, name, value) for name, value in vars(_part(detector, part)).items() if _is_array(value)]
    names = type(detector.run_lengths).__slots__
    return [*arrays, *(("run_lengths", name, getattr(detector.run_lengths, name)) for name in names)]


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def _dtype(name: str) -> type:
    return {"silent": np.str_, "unsettled": np.bool_, "why": np.str_, "size": np.float64}.get(name, np.int64)


def _rows(arrays: Arrays, table: str) -> list[tuple[Any, ...]]:
    return list(zip(*(arrays[f"{table}.{name}"].tolist() for name in _TABLES[table]), strict=True))
