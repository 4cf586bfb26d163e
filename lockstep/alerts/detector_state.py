"""The state of the detector after the last analysis of a machine, so that only new points are filtered.

Each machine has two files. One holds the detector of some commits ago (``lockstep.detect.state_arrays``); it grows with
the history and is seldom written. The other holds the points since then, which are filtered again. Both name the
results that they belong to, and each series has a checksum of the points that it has seen. A series is continued only
if those are its first points now. So the files may be deleted, belong to other results, or have several writers.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.alerts.analysis_cache import write_whole
from lockstep.alerts.mapped_arrays import mapped
from lockstep.detect import Analysis, Monitor, Trend
from lockstep.detect.run_lengths import Floats, Ints
from lockstep.detect.state_arrays import Arrays, from_arrays, select, to_arrays, together
from lockstep.processes.children import pool

#: Series replayed together: as many as keep the hypotheses in the processor's cache.
_TOGETHER = 500

#: The detector is written again for every so many commits of its history, as those take longer to write than one to
#: filter; but at the latest when it is this far behind.
_SELDOM, _BEHIND = 256, 8

_NEEDED = {"of", "series.names", "series.check", "scatter.variance"}


@dataclass(frozen=True, eq=False)
class Remembered:
    """Series after an analysis: their names, and the detector that has seen them."""

    names: Sequence[str]
    monitor: Monitor


@dataclass(frozen=True, eq=False)
class Points:
    """What a commit adds: for each of some series, each once, its value and the standard error of its logarithm.

    ``row``: places among the series' names. ``errors``: NaN where unknown.
    """

    row: Ints
    values: Floats
    errors: Floats


def analyse(path: Path, of: str, names: Sequence[str], trends: Sequence[Trend], processes: int = 1) -> Remembered:
    """Filter whole series, going on from what the file knows, which is then written anew.

    Args:
        path: of the file, which need not exist.
        of: what the trends were taken from; ``extend`` asks for it.
        names: of the series, each different.
        trends: of the same series.
        processes: that share the work of series that are not known.
    """
    kept = _read(path)
    known = _known(kept, names, trends) if kept is not None else {}
    parts: list[Arrays] = []
    if kept is not None and known:
        try:
            monitor = from_arrays(select(_state(kept), np.array(list(known.values()))))
        except (ValueError, KeyError, IndexError):
            known = {}
        else:
            _catch_up(monitor, [trends[place] for place in known])
            parts.append(to_arrays(monitor))
    fresh = [place for place in range(len(trends)) if place not in known]
    # Series of one length together: a replay is at its fastest when all of its series go on.
    fresh.sort(key=lambda place: len(trends[place]))
    batches = [fresh[start : start + _TOGETHER] for start in range(0, len(fresh), _TOGETHER)]
    jobs = [[trends[place] for place in batch] for batch in batches]
    if processes > 1 and len(jobs) > 1:
        with pool(processes) as workers:
            parts += workers.map(_replayed, jobs)
    else:
        parts += map(_replayed, jobs)
    if not parts:
        return Remembered((), Monitor(()))
    monitor = from_arrays(select(together(parts), np.argsort([*known, *fresh])))
    _write(path, of, monitor, names, np.array([_check(one, len(one)) for one in trends], dtype=np.int64))
    return Remembered(names, monitor)


def extend(path: Path, before: str, after: str, new: Sequence[Points]) -> Remembered | None:
    """Add commits to what the files know.

    Args:
        path: of the file.
        before: what they must have been made of, see ``analyse``; after: what they will be made of.
        new: each commit's points, oldest first.

    Returns:
        all series of the file; ``None`` if it was made of something else, or does not know one of ``new``.
    """
    kept = _load(path, before)
    if kept is None:
        return None
    arrays, past = kept
    try:
        names, monitor = _names(arrays), from_arrays(_state(arrays))
        since = [*past, *new]
        for one in since:
            monitor.replay.extend(np.log(one.values), one.errors, one.row)
        if len(since) < min(1 + int(monitor.replay.length.max(initial=0)) // _SELDOM, _BEHIND):
            _write_recent(path, str(arrays["of"]), after, since, np.sqrt(monitor.replay.scatter.variance))
        else:
            _write(path, after, monitor, names, _checks(arrays["series.check"], monitor, since))
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return Remembered(names, monitor)


def holds(path: Path, of: str) -> bool:
    """Whether the files are there, and were made of this."""
    return _load(path, of) is not None


def scales(path: Path, of: str) -> dict[str, float]:
    """Run-to-run noise (standard deviation of the logarithm) of each series, NaN unknown.

    Raises:
        ValueError: the files were made of something else, or are damaged.
    """
    arrays, past = _loaded(path, of)
    scale = np.sqrt(arrays["scatter.variance"])
    if past:
        recent = _arrays(_recent(path)) or {}
        scale = recent.get("scale", scale)
    return dict(zip(_names(arrays), scale.tolist(), strict=True))


def said(path: Path, of: str, names: Sequence[str]) -> list[Analysis]:
    """Return the analyses of these series.

    Raises:
        ValueError: the files were made of something else, or are damaged.
        KeyError: they do not know one of the series.
    """
    arrays, past = _loaded(path, of)
    places = {name: place for place, name in enumerate(_names(arrays))}
    rows = np.array([places[name] for name in names], dtype=np.int64)
    try:
        monitor = from_arrays(select(_state(arrays), rows))
    except (KeyError, IndexError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    mine = np.full(len(places), -1)
    mine[rows] = np.arange(len(rows))
    for one in past:
        some = np.flatnonzero(mine[one.row] >= 0)
        monitor.replay.extend(np.log(one.values[some]), one.errors[some], mine[one.row[some]])
    return monitor.analyses()


def _recent(path: Path) -> Path:
    return path.with_name("recent.npz")


def _loaded(path: Path, of: str) -> tuple[dict[str, NDArray[Any]], list[Points]]:
    kept = _load(path, of)
    if kept is None:
        raise ValueError(f"{path} is not of these results, or damaged")
    return kept


def _load(path: Path, of: str) -> tuple[dict[str, NDArray[Any]], list[Points]] | None:
    """The detector's arrays, and the points that came since; ``None`` if they were made of something else."""
    arrays = _read(path)
    if arrays is None or not arrays.keys() >= _NEEDED:
        return None
    if str(arrays["of"]) == of:
        return arrays, []
    recent = _arrays(_recent(path))
    try:
        if recent is None or (str(recent["after"]), str(recent["of"])) != (str(arrays["of"]), of):
            return None
        ends = recent["ends"].tolist()
        parts = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        return arrays, [Points(recent["row"][at], recent["values"][at], recent["errors"][at]) for at in parts]
    except KeyError:
        return None


def _read(path: Path) -> dict[str, NDArray[Any]] | None:
    """The detector's arrays, of which only what is looked at is read; ``None`` if it is not there or damaged."""
    try:
        return mapped(path, own=True)
    except (OSError, ValueError, zipfile.BadZipFile):
        return None


def _arrays(path: Path) -> dict[str, NDArray[Any]] | None:
    """All arrays of a small file; ``None`` if it is not there or damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        return None


def _state(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Those of the arrays that the detector is made of."""
    return {name: array for name, array in arrays.items() if name != "of" and not name.startswith("series.")}


def _names(arrays: Arrays) -> list[str]:
    names: list[str] = json.loads(arrays["series.names"].tobytes())
    return names


def _write(path: Path, of: str, monitor: Monitor, names: Sequence[str], checks: Ints) -> None:
    text = np.frombuffer(json.dumps(list(names)).encode(), np.uint8)
    arrays = to_arrays(monitor) | {"series.names": text, "series.check": checks, "of": np.array(of)}
    write_whole(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def _write_recent(path: Path, after: str, of: str, since: Sequence[Points], scale: Floats) -> None:
    columns = {name: np.concatenate([getattr(one, name) for one in since]) for name in ("row", "values", "errors")}
    ends = np.cumsum([len(one.row) for one in since])
    arrays = {**columns, "ends": ends, "scale": scale, "after": np.array(after), "of": np.array(of)}
    write_whole(_recent(path), lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def _known(kept: Arrays, names: Sequence[str], trends: Sequence[Trend]) -> dict[int, int]:
    """Which series are known as they begin now: their places, and their rows in the file."""
    try:
        lengths = kept["replay.length"].tolist()
        told = zip(_names(kept), lengths, kept["series.check"].tolist(), strict=True)
        rows = {name: (row, length, tuple(check)) for row, (name, length, check) in enumerate(told)}
    except (KeyError, ValueError, TypeError):
        return {}
    found = {}
    for place, (name, trend) in enumerate(zip(names, trends, strict=True)):
        row, length, check = rows.get(name, (0, len(trend) + 1, ()))
        if length <= len(trend) and _check(trend, length) == check:
            found[place] = row
    return found


def _check(trend: Trend, length: int) -> tuple[int, int]:
    """Checksums of the first points, of values and of errors."""
    values = zlib.crc32(trend.values[:length].tobytes(), zlib.crc32(trend.better.encode()))
    return values, 0 if trend.errors is None else zlib.crc32(trend.errors[:length].tobytes())


def _checks(before: Ints, monitor: Monitor, since: Sequence[Points]) -> Ints:
    """The checksums of the points that the series have seen, from those of the ones before."""
    checks = [tuple(pair) for pair in before.tolist()]
    for one in since:
        values, errors = one.values.tobytes(), one.errors.tobytes()
        for place, row in enumerate(one.row.tolist()):
            at = slice(8 * place, 8 * place + 8)
            checks[row] = zlib.crc32(values[at], checks[row][0]), zlib.crc32(errors[at], checks[row][1])
    return np.array(checks, dtype=np.int64)


def _catch_up(monitor: Monitor, trends: Sequence[Trend]) -> None:
    """Filter the points of ``trends`` that the monitor has not seen."""
    start = monitor.replay.length.copy()
    lengths = np.array([len(one) for one in trends], dtype=np.int64)
    known = any(one.errors is not None for one in trends)
    for more in range(int((lengths - start).max(initial=0))):
        now = np.flatnonzero(lengths - start > more)
        at = [(trends[place], int(start[place]) + more) for place in now.tolist()]
        values = np.array([trend.values[index] for trend, index in at])
        errors = np.array([np.nan if trend.errors is None else trend.errors[index] for trend, index in at])
        monitor.extend(values, errors if known else None, now)


def _replayed(trends: Sequence[Trend]) -> dict[str, NDArray[Any]]:
    return to_arrays(Monitor(trends))
