"""Read Google benchmark's JSON (``--benchmark_format=json``).

Repetitions of a benchmark are the samples of one number, and the aggregates that the tool adds are left out. With
``--benchmark_report_aggregates_only`` there are no repetitions, and the aggregate "median" is the number. Source of the
layout: ``src/json_reporter.cc`` of google/benchmark 1.9.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.importing.model import SECONDS, ForeignRun, Number, milliseconds
from lockstep.record.quantity import Better

#: Rates that Google benchmark itself computes, with their units.
_RATES = {"bytes_per_second": "B/s", "items_per_second": "items/s"}

#: Keys by which a file is recognised.
SHAPE = {"benchmarks", "context"}


def read(content: Any, folder: Path) -> list[ForeignRun]:
    """Return the run that a file holds."""
    context = content["context"]
    repetitions: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    medians: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for entry in content["benchmarks"]:
        if entry.get("run_type", "iteration") == "iteration":
            repetitions[entry.get("run_name", entry["name"])].append(entry)
        elif entry.get("aggregate_name") == "median":
            medians[entry["run_name"]].append(entry)
    numbers = [number for name, entries in {**medians, **repetitions}.items() for number in _numbers(name, entries)]
    facts = {"num_cpu": str(context["num_cpus"])} if "num_cpus" in context else {}
    measured_at = milliseconds(context.get("date"))
    return [ForeignRun(tuple(numbers), measured_at=measured_at, machine=context.get("host_name", ""), facts=facts)]


def _numbers(name: str, entries: Sequence[Mapping[str, Any]]) -> list[Number]:
    """Return the times and rates of a benchmark from its repetitions."""
    benchmark, _, case = name.partition("/")
    if any(entry.get("error_occurred") or entry.get("skipped") for entry in entries):
        failed = any(entry.get("error_occurred") for entry in entries)
        return [Number(f"{benchmark}.real_time", case, "seconds", math.nan, "lower", failed=failed)]
    columns = dict.fromkeys(("real_time", "cpu_time"), ("seconds", SECONDS[entries[0]["time_unit"]]))
    columns |= {rate: (unit, 1.0) for rate, unit in _RATES.items() if rate in entries[0]}
    found = []
    for quantity, (unit, factor) in columns.items():
        samples = tuple(entry[quantity] * factor for entry in entries)
        better: Better = "lower" if unit == "seconds" else "higher"
        several = samples if len(samples) > 1 else ()
        found.append(Number(f"{benchmark}.{quantity}", case, unit, samples[0], better, samples=several))
    return found
