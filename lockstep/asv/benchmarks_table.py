"""asv's table of benchmarks, ``benchmarks.json``, with the exact quantities that asv itself does not discover."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asv.benchmarks import Benchmarks
from asv.util import load_json, write_json

from lockstep.record.quantity import EXACT_TYPE


def exact_entries(folder: Path) -> dict[str, Any]:
    """Return the benchmarks of exact quantities in the table of a folder of results."""
    return {name: entry for name, entry in _table(folder).items() if entry.get("type") == EXACT_TYPE}


def add_entries(folder: Path, entries: Mapping[str, Any]) -> None:
    """Add benchmarks to the table. asv overwrites the table with the benchmarks that it discovers."""
    known = _table(folder)
    if any(known.get(name) != entry for name, entry in entries.items()):
        write_json(str(folder / "benchmarks.json"), known | dict(entries), Benchmarks.api_version)


def _table(folder: Path) -> dict[str, Any]:
    path = folder / "benchmarks.json"
    return dict(load_json(str(path), Benchmarks.api_version)) if path.exists() else {}
