"""Read hyperfine's JSON (``--export-json``).

The value is the median of the wall times. The file names neither the commit nor the machine. Source of the layout:
``BenchmarkResult`` in ``src/benchmark/benchmark_result.rs`` of sharkdp/hyperfine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.importing.model import ForeignRun, Number

#: Keys by which a file is recognised. ``results`` is also a key of asv's own files.
SHAPE = {"results": [{"command", "median"}]}


def read(content: Any, folder: Path) -> list[ForeignRun]:
    """Return the run that a file holds."""
    return [ForeignRun(tuple(map(_number, content["results"])))]


def _number(entry: Mapping[str, Any]) -> Number:
    case = ",".join(f"{name}={value}" for name, value in entry.get("parameters", {}).items())
    name = f"hyperfine.{re.sub('[./]', '_', entry['command'])}"
    return Number(name, case, "seconds", entry["median"], "lower", samples=tuple(entry.get("times") or ()))
