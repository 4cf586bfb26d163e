"""What the detector knew of a machine's series after the last analysis, so that only new points are filtered.

A file of arrays for each machine (``dashboard.changes.keeping``). Nothing in it is believed of itself: each series
stands there with a checksum of the points that it has seen, and is taken up again only if those are its first points
now. So the folder may be deleted, be of another state of the results, or be written by several at once.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashboard.alerts.followed import name_in
from dashboard.alerts.steps import SeriesName
from dashboard.changes import Analysis, Monitor, Seen, Trend
from dashboard.changes.hypotheses import Ints
from dashboard.changes.keeping import Arrays, from_arrays, select, to_arrays, together
from dashboard.changes.trend import Better
from dashboard.kept import write_whole
from dashboard.mapped import mapped

#: Series replayed together: as many as keep the hypotheses in the processor's cache.
_TOGETHER = 500


@dataclass(frozen=True, eq=False)
class Remembered:
    """Series after an analysis: their names, which way of each is good, and what each says (but for hindsight)."""

    names: Sequence[str]
    better: Sequence[Better]
    analyses: Sequence[Analysis]


def analyse(
    path: Path | None, of: str, names: Sequence[str], trends: Sequence[Trend], processes: int = 1
) -> Remembered:
    """``dashboard.changes.analyse_many``, going on from what the file knows, which is then written anew.

    Args:
        path: of the file, which need not exist; ``None`` remembers nothing.
        of: what the trends were taken from; ``extend`` asks for it.
        names: of the series, each different.
        trends: of the same series.
        processes: that share the work of series that are not known.
    """
    kept = _read(path) if path else None
    known = _known(kept, names, trends) if kept is not None else {}
    parts: list[Arrays] = []
    if kept is not None and known:
        try:
            monitor = from_arrays(select(kept, np.array(list(known.values()))))
        except (ValueError, KeyError, IndexError):
            known = {}
        else:
            _extend(monitor, [trends[place] for place in known])
            parts.append(to_arrays(monitor))
    fresh = [place for place in range(len(trends)) if place not in known]
    # Series of one length together: a replay is at its fastest when all of its series go on.
    fresh.sort(key=lambda place: len(trends[place]))
    batches = [fresh[start : start + _TOGETHER] for start in range(0, len(fresh), _TOGETHER)]
    jobs = [[trends[place] for place in batch] for batch in batches]
    if processes > 1 and len(jobs) > 1:
        with ProcessPoolExecutor(processes) as pool:
            parts += pool.map(_replayed, jobs)
    else:
        parts += map(_replayed, jobs)
    if not parts:
        return Remembered((), (), ())
    monitor = from_arrays(select(together(parts), np.argsort([*known, *fresh])))
    if path:
        checks = np.array([_check(one, len(one)) for one in trends], dtype=np.int64)
        _write(path, of, monitor, names, checks)
    return Remembered(names, monitor.better, monitor.analyses(hindsight=False))


def extend(path: Path, before: str, after: str, new: Mapping[str, Trend]) -> Remembered | None:
    """Add to what the file knows, and write it anew.

    Args:
        path: of the file.
        before: what it must have been made of, see ``analyse``; after: what it will be made of.
        new: further points, by the name of their series.

    Returns:
        all series of the file; ``None`` if it was made of something else, or does not know one of ``new``.
    """
    kept = _read(path)
    if kept is None or str(kept.get("of")) != before:
        return None
    try:
        names, checks = kept["series.name"].tolist(), kept["series.check"]
        rows = {name: row for row, name in enumerate(names)}
        if not new.keys() <= rows.keys():
            return None
        monitor = from_arrays(kept)
        lengths = monitor.replay.length.tolist()
        for name, trend in new.items():
            checks[rows[name]] = _check(trend, len(trend), checks[rows[name]].tolist(), lengths[rows[name]])
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    _extend(monitor, list(new.values()), np.array([rows[name] for name in new], dtype=np.int64))
    _write(path, after, monitor, names, checks)
    return Remembered(names, monitor.better, monitor.analyses(hindsight=False))


def hindsight(path: Path, of: str, name: SeriesName) -> tuple[Seen, ...]:
    """The steps that a series shows under its newest ruler now that it is seen whole: see ``dashboard.changes``.

    It goes over every point of the series, which is nothing for the one that somebody looks at, and would be most of
    the work of an analysis that asked it of all.

    Args:
        path, of: of the file, and what it must have been made of; otherwise nothing is seen.
        name: which series.
    """
    try:
        kept = mapped(path)
        if str(kept["of"]) != of:
            return ()
        rows = [row for row, text in enumerate(kept["series.name"].tolist()) if name_in(text) == name]
        monitor = from_arrays(select(kept, np.array(rows[-1:], dtype=np.int64)))
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, IndexError, TypeError):
        return ()
    return monitor.analyses()[0].in_hindsight if len(monitor) else ()


def _read(path: Path) -> dict[str, NDArray[Any]] | None:
    """The arrays of a file; ``None`` if it is not there or damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        return None


def _write(path: Path, of: str, monitor: Monitor, names: Sequence[str], checks: NDArray[np.int64]) -> None:
    arrays = to_arrays(monitor) | {"series.name": np.array(names), "series.check": checks, "of": np.array(of)}
    write_whole(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def _known(kept: Arrays, names: Sequence[str], trends: Sequence[Trend]) -> dict[int, int]:
    """Which series are known as they begin now: their places, and their rows in the file."""
    try:
        lengths = kept["replay.length"].tolist()
        told = zip(kept["series.name"].tolist(), lengths, kept["series.check"].tolist(), strict=True)
        rows = {name: (row, length, tuple(check)) for row, (name, length, check) in enumerate(told)}
    except (KeyError, ValueError, TypeError):
        return {}
    found = {}
    for place, (name, trend) in enumerate(zip(names, trends, strict=True)):
        row, length, check = rows.get(name, (0, len(trend) + 1, ()))
        if length <= len(trend) and _check(trend, length) == check:
            found[place] = row
    return found


def _check(trend: Trend, length: int, before: Sequence[int] = (0, 0), known: int = 0) -> tuple[int, int]:
    """Checksums of the first points, of values and of errors; ``before`` those of ``known`` points that came before."""
    seed = before[0] if known else zlib.crc32(trend.better.encode())
    values = zlib.crc32(trend.values[:length].tobytes(), seed)
    return values, 0 if trend.errors is None else zlib.crc32(trend.errors[:length].tobytes(), before[1])


def _extend(monitor: Monitor, trends: Sequence[Trend], rows: Ints | None = None) -> None:
    """Filter what is new: the points of ``trends`` that the monitor has not seen, or with ``rows`` all of them."""
    start = monitor.replay.length.copy() if rows is None else np.zeros(len(trends), dtype=np.int64)
    rows = np.arange(len(trends)) if rows is None else rows
    lengths = np.array([len(one) for one in trends], dtype=np.int64)
    known = any(one.errors is not None for one in trends)
    for more in range(int((lengths - start).max(initial=0))):
        now = np.flatnonzero(lengths - start > more)
        at = [(trends[place], int(start[place]) + more) for place in now.tolist()]
        values = np.array([trend.values[index] for trend, index in at])
        errors = np.array([np.nan if trend.errors is None else trend.errors[index] for trend, index in at])
        monitor.extend(values, errors if known else None, rows[now])


def _replayed(trends: Sequence[Trend]) -> dict[str, NDArray[Any]]:
    return to_arrays(Monitor(trends))
