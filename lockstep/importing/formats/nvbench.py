"""Read nvbench's JSON (``--json``), with the samples that ``--jsonbin`` writes beside it.

Each device is a machine. Source of the layout: ``nvbench/json_printer.cu`` and ``python/scripts/nvbench_json`` of
NVIDIA/nvbench at 66212f1d.
"""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.importing.model import ForeignRun, Number, stats_of_mean

#: The mean times that nvbench measures, by the name of the quantity, each with its relative deviation and its count.
_TIMES = {
    "gpu": ("nv/cold/time/gpu/mean", "nv/cold/time/gpu/stdev/relative", "nv/cold/sample_size"),
    "cpu": ("nv/cold/time/cpu/mean", "nv/cold/time/cpu/stdev/relative", "nv/cold/sample_size"),
    "batch": ("nv/batch/time/gpu/mean", "", "nv/batch/sample_size"),
}

#: Rates with their units.
_RATES = {
    "bandwidth": ("nv/cold/bw/global/bytes_per_second", "B/s"),
    "items": ("nv/cold/bw/item_rate", "items/s"),
}

_SAMPLES = "nv/json/bin:nv/cold/sample_times"

#: Keys by which a file is recognised.
SHAPE = {"benchmarks", "devices", "meta"}


def read(content: Any, folder: Path) -> list[ForeignRun]:
    """Return a run for each device that a file names. ``folder`` holds the files of samples."""
    numbers: dict[int, list[Number]] = defaultdict(list)
    for benchmark in content["benchmarks"]:
        for state in benchmark["states"]:
            numbers[state["device"]] += _numbers(benchmark["name"], state, folder)
    devices = {device["id"]: device["name"] for device in content["devices"]}
    return [
        ForeignRun(tuple(found), machine=devices[device], facts={"gpu": devices[device]})
        for device, found in numbers.items()
    ]


def _numbers(benchmark: str, state: Mapping[str, Any], folder: Path) -> list[Number]:
    case = ",".join(f"{axis['name']}={axis['value']}" for axis in state["axis_values"] or ())
    if state.get("is_skipped"):
        return [Number(f"{benchmark}.gpu", case, "seconds", math.nan, "lower")]
    summaries = {
        summary["tag"]: {field["name"]: field["value"] for field in summary["data"]} for summary in state["summaries"]
    }
    stated = {tag: float(fields["value"]) for tag, fields in summaries.items() if "value" in fields}
    found = []
    for quantity, (mean, deviation, count) in _TIMES.items():
        if mean in stated:
            value = stated[mean]
            stats = stats_of_mean(value, value * stated.get(deviation, math.nan), int(stated.get(count, 0)))
            samples = _samples(summaries[_SAMPLES], folder) if quantity == "gpu" and _SAMPLES in summaries else ()
            name = f"{benchmark}.{quantity}"
            found.append(Number(name, case, "seconds", value, "lower", samples=samples, stats=stats))
    for quantity, (tag, unit) in _RATES.items():
        if tag in stated:
            found.append(Number(f"{benchmark}.{quantity}", case, unit, stated[tag], "higher"))
    return found


def _samples(fields: Mapping[str, str], folder: Path) -> tuple[float, ...]:
    """Return the times in seconds of a file of samples; () if the file is gone. Its path is relative to the JSON."""
    path = folder / fields["filename"]
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        return ()
    content = path.read_bytes()
    if len(content) != 4 * int(fields["size"]):
        raise ValueError(f"{path.name} holds {len(content) // 4} samples instead of {fields['size']}")
    return struct.unpack(f"<{fields['size']}f", content)
