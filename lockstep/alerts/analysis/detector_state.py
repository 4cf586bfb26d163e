"""Store the detector's state of a machine in files, so that the next analysis processes only new points.

Each machine has two files. The first holds the detector's state some commits ago (``lockstep.detect.state_arrays``). It
grows with the history, so it is written rarely. The second holds the points since then, which are processed again. Both
files name the results that they belong to, and hold a checksum of each series' points. The detector continues a series
only if the checksum matches. So it does no harm if the files are deleted, belong to other results, or are written by
several processes.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.alerts.analysis.cache_files import write_whole
from lockstep.alerts.analysis.mapped_arrays import MappedArrays, mapped
from lockstep.detect import Analysis, Monitor, Trend
from lockstep.detect.detector import Floats, Ints
from lockstep.detect.state_arrays import Arrays, from_arrays, select, to_arrays, together
from lockstep.processes.end_with_parent import pool

#: Number of series that are processed together, chosen so that their hypotheses fit into the processor's cache.
_BATCH = 500

#: The detector's state takes longer to write than a new commit takes to process, especially with a long history. The
#: state of a short history is written after every new commit. Each ``_WRITE_EVERY`` commits of history allow one more
#: new commit before the next write, up to ``_MOST_BEHIND`` new commits.
_WRITE_EVERY, _MOST_BEHIND = 256, 8

_NEEDED = {"of", "series.names", "series.check", "detector.variance", "detector.ratio"}


@dataclass(frozen=True, eq=False)
class MonitoredSeries:
    """The detector's monitor after it has processed all points, with the names of its series in the same order."""

    names: Sequence[str]
    monitor: Monitor


@dataclass(frozen=True, eq=False)
class Points:
    """The points that a commit adds to some series.

    Attributes:
        row: indices of the series' names, each once.
        values: the value of each series.
        errors: standard error of each value's logarithm; NaN where unknown.
    """

    row: Ints
    values: Floats
    errors: Floats


def analyse(
    path: Path, digest: str, names: Sequence[str], trends: Sequence[Trend], processes: int = 1
) -> MonitoredSeries:
    """Process whole series with the detector and write its state. Series that the file knows are continued.

    Args:
        path: the path of the file, which need not exist.
        digest: the identity of the results, which ``extend`` compares.
        names: the names of the series, all different.
        trends: the trends of the same series, in the same order.
        processes: the number of processes that share the series that the file does not know.
    """
    stored = _read(path)
    known = _known(stored, names, trends) if stored is not None else {}
    parts: list[Arrays] = []
    if stored is not None and known:
        try:
            monitor = from_arrays(select(_state(stored), np.array(list(known.values()))))
        except (ValueError, KeyError, IndexError):
            known = {}
        else:
            _catch_up(monitor, [trends[place] for place in known])
            parts.append(to_arrays(monitor))
    fresh = [place for place in range(len(trends)) if place not in known]
    # Put series of similar length into a batch, because a batch takes as long as its longest series.
    fresh.sort(key=lambda place: len(trends[place]))
    batches = [fresh[start : start + _BATCH] for start in range(0, len(fresh), _BATCH)]
    jobs = [[trends[place] for place in batch] for batch in batches]
    if processes > 1 and len(jobs) > 1:
        with pool(processes) as workers:
            parts += workers.map(_replayed, jobs)
    else:
        parts += map(_replayed, jobs)
    parts = parts or [to_arrays(Monitor(()))]
    monitor = from_arrays(select(together(parts), np.argsort([*known, *fresh])))
    _write(path, digest, monitor, names, np.array([_check(trend, len(trend)) for trend in trends], dtype=np.int64))
    return MonitoredSeries(names, monitor)


def extend(path: Path, before: str, after: str, new: Sequence[Points]) -> MonitoredSeries | None:
    """Process the points of new commits, starting from the state in the files, and write the new state.

    Args:
        before: identity of the results that the files must belong to.
        after: identity of the results with the new commits.
        new: the points of each commit, oldest first.

    Returns:
        All series of the file; ``None`` if the file belongs to other results or lacks a series of ``new``.
    """
    stored = _load(path, before)
    if stored is None:
        return None
    arrays, past = stored
    try:
        names, monitor = _names(arrays), from_arrays(_state(arrays))
        # The errors of new points are those of logarithms.
        new = [
            replace(points, errors=np.where(monitor.detector.ratio[points.row], points.errors, np.nan))
            for points in new
        ]
        since = [*past, *new]
        for points in since:
            monitor.extend(points.values, points.errors, points.row)
        if len(since) < min(1 + int(monitor.detector.length.max(initial=0)) // _WRITE_EVERY, _MOST_BEHIND):
            _write_recent(path, str(arrays["of"]), after, since, np.sqrt(monitor.detector.variance))
        else:
            _write(path, after, monitor, names, _checks(arrays["series.check"], since))
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return MonitoredSeries(names, monitor)


def is_current(path: Path, digest: str) -> bool:
    """Return whether the files exist and belong to these results."""
    return _load(path, digest) is not None


class StoredDetector:
    """The detector's state of a machine, opened once. An analysis that replaces the files does not change it.

    Args:
        digest: the identity of the results that the files must belong to.

    Raises:
        ValueError: the files are damaged, or belong to other results.
    """

    def __init__(self, path: Path, digest: str) -> None:
        stored = _load(path, digest)
        if stored is None:
            raise ValueError(f"{path} belongs to other results, or is damaged: the next analysis writes it again")
        self._path = path
        self._arrays, self._past = stored
        recent = (_arrays(_recent(path)) or {}) if self._past else {}
        #: Run-to-run noise (standard deviation of the logarithm) of each series; NaN if unknown, or if the series has
        #: no logarithms.
        self.noise: Floats = recent.get("scale", np.sqrt(self._arrays["detector.variance"]))
        self.noise = np.where(self._arrays["detector.ratio"], self.noise, np.nan)

    @property
    def names(self) -> list[str]:
        """The names of the series, in the order of their rows."""
        return _names(self._arrays)

    def analyses(self, rows: Sequence[int]) -> list[Analysis]:
        """Return the detector's analysis of each of these series: noise, levels and changes.

        Raises:
            ValueError: the file is damaged.
        """
        chosen = np.array(rows, dtype=np.int64)
        try:
            monitor = from_arrays(select(_state(self._arrays), chosen))
        except (KeyError, IndexError) as error:
            raise ValueError(f"{self._path} is damaged: {error}") from error
        self._arrays.release()
        index_of_row = np.full(len(self.noise), -1)
        index_of_row[chosen] = np.arange(len(chosen))
        for points in self._past:
            indices = np.flatnonzero(index_of_row[points.row] >= 0)
            monitor.extend(points.values[indices], points.errors[indices], index_of_row[points.row[indices]])
        return monitor.analyses()


def _recent(path: Path) -> Path:
    return path.with_name("recent.npz")


def _load(path: Path, digest: str) -> tuple[MappedArrays, list[Points]] | None:
    """Return the detector's arrays and the later points; ``None`` if the files belong to other results."""
    arrays = _read(path)
    if arrays is None or not arrays.keys() >= _NEEDED:
        return None
    if str(arrays["of"]) == digest:
        return arrays, []
    recent = _arrays(_recent(path))
    try:
        if recent is None or (str(recent["after"]), str(recent["of"])) != (str(arrays["of"]), digest):
            return None
        ends = recent["ends"].tolist()
        parts = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        return arrays, [Points(recent["row"][at], recent["values"][at], recent["errors"][at]) for at in parts]
    except KeyError:
        return None


def _read(path: Path) -> MappedArrays | None:
    """Map the detector's arrays into memory, so that only the parts in use are read from the file.

    ``None`` if the file is missing or damaged.
    """
    try:
        return mapped(path)
    except (OSError, ValueError, zipfile.BadZipFile):
        return None


def _arrays(path: Path) -> dict[str, NDArray[Any]] | None:
    """Read all arrays of a small file; ``None`` if the file is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        return None


def _state(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return the arrays of the detector's state, without those that describe the file."""
    return {name: array for name, array in arrays.items() if name != "of" and not name.startswith("series.")}


def _names(arrays: Arrays) -> list[str]:
    names: list[str] = json.loads(arrays["series.names"].tobytes())
    return names


def _write(path: Path, digest: str, monitor: Monitor, names: Sequence[str], checks: Ints) -> None:
    text = np.frombuffer(json.dumps(list(names)).encode(), np.uint8)
    arrays = to_arrays(monitor) | {"series.names": text, "series.check": checks, "of": np.array(digest)}
    write_whole(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def _write_recent(path: Path, after: str, digest: str, since: Sequence[Points], scale: Floats) -> None:
    columns = {
        name: np.concatenate([getattr(points, name) for points in since]) for name in ("row", "values", "errors")
    }
    ends = np.cumsum([len(points.row) for points in since])
    arrays = {**columns, "ends": ends, "scale": scale, "after": np.array(after), "of": np.array(digest)}
    write_whole(_recent(path), lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def _known(stored: Arrays, names: Sequence[str], trends: Sequence[Trend]) -> dict[int, int]:
    """Find the series that the file can continue. Return, by the index of such a series, its row in the file."""
    try:
        lengths = stored["detector.length"].tolist()
        entries = zip(_names(stored), lengths, stored["series.check"].tolist(), strict=True)
        rows = {name: (row, length, tuple(check)) for row, (name, length, check) in enumerate(entries)}
    except (KeyError, ValueError, TypeError):
        return {}
    rows_in_file = {}
    for place, (name, trend) in enumerate(zip(names, trends, strict=True)):
        row, length, check = rows.get(name, (0, len(trend) + 1, ()))
        if length <= len(trend) and _check(trend, length) == check:
            rows_in_file[place] = row
    return rows_in_file


def _check(trend: Trend, length: int) -> tuple[int, int]:
    """Return two checksums of the first ``length`` points: one of the values, one of the errors."""
    values = zlib.crc32(trend.values[:length].tobytes(), zlib.crc32(f"{trend.better} {trend.ratio}".encode()))
    return values, 0 if trend.errors is None else zlib.crc32(trend.errors[:length].tobytes())


def _checks(before: Ints, since: Sequence[Points]) -> Ints:
    """Return the checksums of all points, given those without the points ``since``."""
    checks = [tuple(pair) for pair in before.tolist()]
    for points in since:
        values, errors = points.values.tobytes(), points.errors.tobytes()
        for place, row in enumerate(points.row.tolist()):
            at = slice(8 * place, 8 * place + 8)
            checks[row] = zlib.crc32(values[at], checks[row][0]), zlib.crc32(errors[at], checks[row][1])
    return np.array(checks, dtype=np.int64)


def _catch_up(monitor: Monitor, trends: Sequence[Trend]) -> None:
    """Give the monitor the points of ``trends`` that it has not processed yet."""
    start = monitor.detector.length.copy()
    lengths = np.array([len(trend) for trend in trends], dtype=np.int64)
    known = any(trend.errors is not None for trend in trends)
    for offset in range(int((lengths - start).max(initial=0))):
        now = np.flatnonzero(lengths - start > offset)
        at = [(trends[place], int(start[place]) + offset) for place in now.tolist()]
        values = np.array([trend.values[index] for trend, index in at])
        errors = np.array([np.nan if trend.errors is None else trend.errors[index] for trend, index in at])
        monitor.extend(values, errors if known else None, now)


def _replayed(trends: Sequence[Trend]) -> dict[str, NDArray[Any]]:
    return to_arrays(Monitor(trends))
