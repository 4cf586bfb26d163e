"""Read pytest-benchmark's JSON (``--benchmark-json`` and ``--benchmark-autosave``).

The value is the median. Source of the layout: ``pytest_benchmark.stats.Metadata.as_dict`` of pytest-benchmark 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.importing.model import ForeignRun, Number, milliseconds

#: Keys by which a file is recognised.
SHAPE = {"benchmarks", "machine_info", "commit_info"}


def read(content: Any, folder: Path) -> list[ForeignRun]:
    """Return the run that a file holds."""
    machine, commit = content["machine_info"], content["commit_info"]
    cpu = machine.get("cpu") or {}
    facts = {
        "arch": machine.get("machine", ""),
        "cpu": cpu.get("brand_raw") or machine.get("processor", ""),
        "num_cpu": cpu.get("count", ""),
        "os": " ".join(filter(None, (machine.get("system"), machine.get("release")))),
    }
    return [
        ForeignRun(
            tuple(map(_number, content["benchmarks"])),
            commit=commit.get("id") or "",
            date=milliseconds(commit.get("time") or commit.get("author_time")),
            measured_at=milliseconds(content.get("datetime")),
            machine=machine.get("node", ""),
            facts={name: str(text) for name, text in facts.items() if text},
        )
    ]


def _number(entry: Mapping[str, Any]) -> Number:
    stats = entry["stats"]
    path, _, function = entry["fullname"].partition("::")
    name = f"{path.removesuffix('.py')}::{function.partition('[')[0]}".replace("::", ".").replace("/", ".")
    parameters = entry.get("params") or {}
    case = ",".join(f"{key}={value}" for key, value in parameters.items()) or str(entry.get("param") or "")
    return Number(
        name,
        case,
        "seconds",
        stats["median"],
        "lower",
        samples=tuple(stats.get("data") or ()),
        stats={"q_25": stats["q1"], "q_75": stats["q3"], "number": 1, "repeat": stats["rounds"]},
    )
