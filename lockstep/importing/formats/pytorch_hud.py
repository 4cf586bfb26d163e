"""Read the benchmark results that PyTorch's HUD takes.

A file is a list of metrics. It names neither the commit nor units. Source of the layout: the page "PyTorch OSS
benchmark infra" of pytorch's wiki.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.importing.model import ForeignRun, Number

#: Keys of each entry, by which a file is recognised.
SHAPE = [{"benchmark", "metric"}]


def read(content: Any, folder: Path) -> list[ForeignRun]:
    """Return a run for each runner that a file names."""
    numbers: dict[str, list[Number]] = defaultdict(list)
    for entry in content:
        runners = entry.get("runners") or [{}]
        numbers[runners[0].get("name", "")].append(_number(entry))
    return [ForeignRun(tuple(found), machine=machine) for machine, found in numbers.items()]


def _number(entry: Mapping[str, Any]) -> Number:
    benchmark, metric, model = entry["benchmark"], entry["metric"], entry.get("model") or {}
    values = tuple(float(value) for value in metric["benchmark_values"])
    parts = {
        "model": model.get("name"),
        "type": model.get("type"),
        "backend": model.get("backend"),
        "mode": benchmark.get("mode"),
        "dtype": benchmark.get("dtype"),
    }
    case = ",".join(f"{name}={value}" for name, value in parts.items() if value)
    several = values if len(values) > 1 else ()
    name = f"{benchmark['name'].replace('.', '_')}.{metric['name'].replace('.', '_')}"
    return Number(name, case, "", values[0] if values else math.nan, samples=several)
