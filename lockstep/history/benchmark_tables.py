"""Gather what asv's tables say of benchmarks, and keep what they said of benchmarks that have left them.

asv writes a table anew at each run, so a benchmark that is removed from the suite loses its unit, its better direction
and the names of its parameters, although its results stay. What was known is kept in a file beside the caches. It is
not kept among the results, because they may be read-only and belong to another tool. Nor is it kept in a cache, because
a new version of Lockstep makes a new one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lockstep.history.benchmarks_file import as_text, read_benchmarks
from lockstep.history.validation import Unreadable

#: asv's name of a table; the kept entries lie in a file of the same name.
TABLE = "benchmarks.json"

#: Maximum number of entries that are kept; with more, benchmarks that have left the tables are forgotten.
_MOST = 100_000


def gather(root: Path, tables: Mapping[str, tuple[int, int]], kept: Path) -> tuple[str, list[tuple[str, str]]]:
    """Return the entries of all benchmarks as JSON text, and the path and the fault of each table that cannot be read.

    If several tables have an entry for a benchmark, that of the results folder itself counts, else that of the table
    that changed last. A kept entry counts if no table has one.

    Args:
        tables: modification time and size of each table, by its path relative to ``root``.
        kept: the file with the kept entries, which is written again if they differ.
    """
    present: dict[str, Any] = {}
    faults = []
    for path in sorted(tables, key=lambda path: (path == TABLE, tables[path][0], path)):
        try:
            present |= read_benchmarks(root / path)
        except (Unreadable, OSError) as error:
            faults.append((path, getattr(error, "strerror", None) or str(error)))
    before = _kept(kept)
    entries = {**before, **present}
    if len(entries) > _MOST:
        entries = present
    if entries != before:
        _write(kept, as_text(entries))
    return as_text(entries), faults


def _kept(path: Path) -> dict[str, Any]:
    with suppress(Unreadable, OSError):
        return read_benchmarks(path)
    return {}


def _write(path: Path, text: str) -> None:
    """Write the kept entries. A failure is not an error, because only benchmarks that leave the tables need them."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(OSError):
        new.write_text(text, encoding="utf-8")
        new.replace(path)
