"""Write, verify, merge and delete the parts of a cache: parquet files of points, sorted by series."""

from __future__ import annotations

import os
import time
import uuid
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Any

import duckdb
from numpy.typing import NDArray

from lockstep.history.cache_folder import DamagedCache, Stamp, stamp_of
from lockstep.history.cache_manifest import Part
from lockstep.history.point_columns import COLUMNS, KINDS

#: Number of parts of a folder above which they are merged. Each part adds about a millisecond to a query.
MOST_PARTS = 12

#: Seconds after which an unused part is deleted. Until then another process may still read the part.
_GRACE = 600.0

#: Number of parts that are remembered as verified. Merges replace parts, so the number would grow for ever.
_MOST_VERIFIED = 10_000

_BLOCK = 1 << 20

#: Every row counts for the type of a column of lists. Rows that do not fit in memory are sorted on disk.
_SETTINGS = {"threads": "1", "memory_limit": "160MB", "pandas_analyze_sample": str(2**31)}

#: A query for a series of 2000 points reads only one or two groups of so many rows.
_FORMAT = "(FORMAT parquet, COMPRESSION lz4_raw, ROW_GROUP_SIZE 32768)"


class PartChecks:
    """Verifies parts before this process reads them. The name of a part ends with a checksum of its content.

    Several threads may use it.

    ``failed``: whether a part was found damaged or missing. The store resets it when it has a new snapshot.
    """

    def __init__(self) -> None:
        self.failed = False
        self._verified: dict[Path, Stamp] = {}

    def verify(self, part: Path) -> None:
        """Verify the checksum of a part on first use, and again if its stamp has changed since then.

        Raise ``DamagedCache`` if the part is damaged, missing or cannot be read.
        """
        stamp = stamp_of(part)
        if stamp is not None and self._verified.get(part) == stamp:
            return
        try:
            fault = "" if _checksum(part) == part.stem.rpartition("-")[2] else f"{part.name} has another checksum"
        except OSError as error:
            fault = str(error)
        if fault or stamp is None:
            self.failed = True
            raise DamagedCache(
                f"the cache {part.parents[1]} is damaged ({fault}), and is made again from the result files: try again"
            )
        if len(self._verified) >= _MOST_VERIFIED:
            self._verified.clear()
        self._verified[part] = stamp

    def changed(self, parts: Iterable[Path]) -> bool:
        """Return whether a part is missing, or was written after it was verified. No content is read."""
        stamps = ((part, stamp_of(part)) for part in parts)
        return any(stamp is None or self._verified.get(part, stamp) != stamp for part, stamp in stamps)


def _checksum(path: Path) -> str:
    """Return the CRC-32 of a file as eight hexadecimal digits.

    CRC-32 detects damage as well as a cryptographic digest does. With zlib it takes a third of the time of BLAKE2b.
    """
    crc = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            crc = zlib.crc32(block, crc)
    return f"{crc:08x}"


def write_part(parts: Path, folder: str, points: Mapping[str, NDArray[Any]], *query: Any) -> Part:
    """Write points as a new part: all of them, or no part at all.

    Args:
        points: the columns of the points, sorted by series, because queries select series.
        query: the query that gives the points instead, and its parameters.

    Raises:
        OSError: the part cannot be written.
    """
    columns = (
        f"{name if name in points else unknown}::{kind} AS {name}"
        for name, (_, kind, _, unknown) in ((name, KINDS[kind]) for name, kind in COLUMNS.items())
    )
    select, *parameters = query or [f"SELECT {', '.join(columns)} FROM points"]
    # The part's name contains a digest of the folder's name, which may contain any character.
    mark = blake2b(folder.encode(), digest_size=6).hexdigest()
    temporary = parts / f"{mark}-{uuid.uuid4().hex}.tmp"
    settings: dict[str, Any] = {**_SETTINGS, "temp_directory": str(parts.parent / "spill")}
    try:
        with closing(duckdb.connect(":memory:", config=settings)) as connection:
            # In a process without a main file DuckDB would print its progress between the output of a verb.
            connection.execute("SET enable_progress_bar = false")
            if points:
                connection.register("points", points)
            written = connection.execute(f"COPY ({select}) TO ? {_FORMAT}", [*parameters, str(temporary)])
            [[rows]] = written.fetchall()
        path = temporary.with_name(f"{temporary.stem}-{_checksum(temporary)}.parquet")
        temporary.replace(path)
    except duckdb.Error as error:
        raise OSError(f"{error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return Part(path.name, folder, rows)


def merge_parts(parts: Path, old: Sequence[Part], live: Iterable[int]) -> Part | None:
    """Merge parts of one folder into one part, without the points of runs that are not ``live``.

    Return ``None`` if no point is left.
    """
    select = "SELECT * FROM read_parquet(?) WHERE run IN (SELECT unnest(?::INTEGER[])) ORDER BY series, run"
    merged = write_part(parts, old[0].folder, {}, select, [str(parts / part.name) for part in old], list(live))
    for part in old:
        # The part is unused from now on, and ``sweep`` counts its age from this time.
        os.utime(parts / part.name)
    if not merged.rows:
        (parts / merged.name).unlink()
    return merged if merged.rows else None


def mergeable(parts: Sequence[Part], live: Mapping[str, int]) -> list[list[Part]]:
    """Return groups of parts that a merge should replace: too many parts of a folder, or mostly unused points."""
    groups = []
    parts_by_folder: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.rows):
        parts_by_folder.setdefault(part.folder, []).append(part)
    for folder_parts in parts_by_folder.values():
        stale = [part for part in folder_parts if part.rows > 2 * live.get(part.name, 0)]
        # Add parts from small to large while too many would be left, or the next part is at most twice as large as all
        # parts so far. So large parts are rarely rewritten.
        small, weight = 1, folder_parts[0].rows
        while small < len(folder_parts) and (
            len(folder_parts) - small >= MOST_PARTS or folder_parts[small].rows <= 2 * weight
        ):
            weight += folder_parts[small].rows
            small += 1
        chosen = folder_parts[:small] if len(folder_parts) > MOST_PARTS else []
        chosen += [part for part in stale if part not in chosen]
        if chosen:
            groups.append(chosen)
    return groups


def sweep(parts: Path, used: Collection[str]) -> None:
    """Delete parts that the manifest does not list: merged parts, and parts that a killed process left behind."""
    for path in parts.iterdir():
        try:
            if path.name not in used and time.time() - path.stat().st_mtime > _GRACE:
                path.unlink()
        except FileNotFoundError:  # another process has just deleted the part
            continue
