"""A small results tree of another project: numbers of ``track_`` and other benchmarks, one commit a day."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.alerts.analysis.analyse import analyse_store
from lockstep.alerts.model import AnalysisResult
from lockstep.history.snapshot import Results
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds

FACTS = {"arch": "x86_64", "cpu": "c", "machine": "box", "num_cpu": "8", "os": "Linux 6.1", "ram": "1"}
DAY_MS = 86_400_000


def levels(*plan: tuple[float, int], spread: float = 0.0) -> list[float]:
    """Numbers at each level for so many commits, with normal noise of this standard deviation."""
    dice = random.Random(1)
    return [level + dice.gauss(0, spread) for level, count in plan for _ in range(count)]


def write_numbers(
    root: Path,
    numbers: Mapping[str, Sequence[float | None]],
    entries: Mapping[str, Mapping[str, Any]],
    folder: str = "box",
) -> list[str]:
    """Write the numbers of each benchmark by commit, and ``benchmarks.json`` with these entries; return the commits."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / "machine.json").write_text(json.dumps({**FACTS, "version": 1}))
    write_table(root / "benchmarks.json", entries)
    commits = [hashlib.sha1(f"{place}".encode()).hexdigest() for place in range(max(map(len, numbers.values())))]
    for place, commit in enumerate(commits):
        date = 1_700_000_000_000 + place * DAY_MS
        content = {
            "commit_hash": commit,
            "env_name": "py3.11",
            "date": date,
            "params": {**FACTS, "python": "3.11"},
            "python": "3.11",
            "requirements": {},
            "env_vars": {},
            "result_columns": ["result", "params", "version", "started_at", "duration"],
            "results": {name: [[row[place]], [], "1", date, 1] for name, row in numbers.items() if place < len(row)},
            "durations": {},
            "version": 2,
        }
        (root / folder / f"{commit[:8]}-py3.11.json").write_text(json.dumps(content))
    return commits


def write_table(path: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Write asv's table of benchmarks. An entry is of type "track" unless it says otherwise."""
    table = {
        name: {"name": name, "type": "track", "param_names": [], "version": "1", **entry}
        for name, entry in entries.items()
    }
    path.write_text(json.dumps({**table, "version": 2}))


def analysed(root: Path, thresholds: Thresholds | None = None) -> tuple[Results, AnalysisResult]:
    """The results of a tree and what an analysis finds; the cache lies beside the tree."""
    return analyse_store(Store.open(root, cache=root.parent / "cache", patience=0.0), thresholds or Thresholds(), root)
