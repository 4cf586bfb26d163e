"""Write, merge and delete the parts of a cache: parquet files of points, sorted by series."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lockstep.history.cache_catalog import Part
from lockstep.history.columns import COLUMNS
from lockstep.history.part_checks import DAMAGED, checksum

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: Rows in a row group of parquet. So a query for a series of 2000 points reads only one or two groups.
_GROUP = 32_768

#: Number of parts of a folder above which they are merged. Each part adds about a millisecond to a query.
MOST_PARTS = 12

#: Maximum number of rows that a merge holds in memory.
_MERGED_AT_ONCE = 500_000

#: Seconds after which an unused part is deleted. Until then another process may still read the part.
_GRACE = 600.0

#: Seconds after which a damaged part is deleted. Until then people may look at it.
_KEPT = 7 * 86_400.0

# Columns that are stored with a dictionary of their values. Other columns have nearly as many different values as rows.
_DICTIONARY = [name for name, kind in COLUMNS.items() if kind in ("text", "key", "count", "time", "code")]


def write_part(table: pa.Table, parts: Path, folder: str) -> Part:
    """Write the points of a folder, already sorted by series, as a new part: all of them, or no part at all."""
    with _Writer(parts, folder) as writer:
        writer.write(table)
    return writer.part


def merge_parts(parts: Path, old: Sequence[Part], live: Iterable[int]) -> Part | None:
    """Merge parts of one folder into one part, without the points of runs that are not ``live``.

    Return ``None`` if no point is left. The points are read in ranges of series, so memory does not grow with the
    history.
    """
    # Imported here, because merges are rare and the imports take 40 ms.
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    runs = np.array(sorted(live), dtype=np.int32)
    files = [pq.ParquetFile(parts / part.name, memory_map=True) for part in old]
    edges = _edges(files, max(1, -(-sum(part.rows for part in old) // _MERGED_AT_ONCE)))
    with _Writer(parts, old[0].folder) as writer:
        for low, high in pairwise(edges):
            table = pa.concat_tables(_between(file, low, high) for file in files)
            table = table.filter(pc.is_in(table["run"], pa.array(runs)))
            writer.write(table.take(np.argsort(table["series"].to_numpy(), kind="stable")))
    for file, part in zip(files, old, strict=True):
        file.close()
        # The part is unused from now on, and ``sweep`` counts its age from this time.
        os.utime(parts / part.name)
    return writer.part if writer.part.rows else None


def mergeable(parts: Sequence[Part], live: Mapping[str, int]) -> list[list[Part]]:
    """Return groups of parts that a merge should replace: too many parts of a folder, or mostly unused points."""
    groups = []
    parts_by_folder: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.rows):
        parts_by_folder.setdefault(part.folder, []).append(part)
    for folder_parts in parts_by_folder.values():
        stale = [part for part in folder_parts if part.rows > 2 * live.get(part.name, 0)]
        # Add parts from small to large while the next part is at most twice as large as all parts so far. So large
        # parts are rarely rewritten.
        small, weight = 1, folder_parts[0].rows
        while small < len(folder_parts) and folder_parts[small].rows <= 2 * weight:
            weight += folder_parts[small].rows
            small += 1
        chosen = folder_parts[: max(small, 2)] if len(folder_parts) > MOST_PARTS else []
        chosen += [part for part in stale if part not in chosen]
        if chosen:
            groups.append(chosen)
    return groups


def sweep(parts: Path, counting: Iterable[Part]) -> None:
    """Delete parts that the manifest does not list: merged parts, and parts that a killed process left behind."""
    current_names = {part.name for part in counting}
    for path in parts.iterdir():
        try:
            kept = _KEPT if path.suffix == DAMAGED else _GRACE
            if path.name not in current_names and time.time() - path.stat().st_mtime > kept:
                path.unlink()
        except FileNotFoundError:  # another process has just deleted the part
            continue


def _edges(files: Sequence[pq.ParquetFile], pieces: int) -> list[int]:
    """Divide the series into ranges with about equal numbers of points, and return the ends of the ranges.

    The first series number of each row group gives a possible end.
    """
    least = sorted(
        file.metadata.row_group(group).column(0).statistics.min
        for file in files
        for group in range(file.metadata.num_row_groups)
    )
    inner = sorted({least[len(least) * piece // pieces] for piece in range(1, pieces)})
    return [-(2**63), *inner, 2**63 - 1]


def _between(file: pq.ParquetFile, low: int, high: int) -> pa.Table:
    """Return the points of the series with ``low <= number < high``. The last range includes the greatest number."""
    # Imported here: pyarrow is slow to import.
    import pyarrow as pa

    groups = []
    for group in range(file.metadata.num_row_groups):
        bounds = file.metadata.row_group(group).column(0).statistics
        if bounds.max >= low and bounds.min <= high:
            groups.append(group)
    table = file.read_row_groups(groups, use_threads=False)
    series = table["series"].to_numpy()
    below = series <= high if high == 2**63 - 1 else series < high
    return table.filter(pa.array((series >= low) & below))


class _Writer:
    """Writes a part under a temporary name, and renames it when it is complete."""

    def __init__(self, parts: Path, folder: str) -> None:
        # The part's name contains a digest of the folder's name, which may contain any character.
        mark = blake2b(folder.encode(), digest_size=6).hexdigest()
        self._temporary = parts / f"{mark}-{uuid.uuid4().hex}.tmp"
        self._folder = folder
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> _Writer:
        return self

    def write(self, table: pa.Table) -> None:
        if self._writer is None:
            # Imported here: pyarrow is slow to import.
            import pyarrow.parquet as pq

            self._writer = pq.ParquetWriter(
                self._temporary, table.schema, compression="lz4", use_dictionary=_DICTIONARY
            )
        self._rows += len(table)
        self._writer.write_table(table, row_group_size=_GROUP)

    def __exit__(self, kind: object, *_: object) -> None:
        self.part = Part("", self._folder, 0, 0)
        if self._writer is None:
            return
        self._writer.close()
        if kind is None and self._rows:
            size = self._temporary.stat().st_size
            path = self._temporary.with_name(f"{self._temporary.stem}-{checksum(self._temporary)}.parquet")
            self._temporary.replace(path)
            self.part = Part(path.name, self._folder, self._rows, size)
        else:
            self._temporary.unlink()
