"""Write the numbers of another tool as asv's result files.

The files are not written by asv's ``Results``, which rounds intervals to five digits.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asv.machine import Machine
from asv.results import Results, get_filename
from asv_runner.statistics import compute_stats

from lockstep.asv.undiscovered_benchmarks import add_entries
from lockstep.asv.whole_files import write_json
from lockstep.importing.model import ForeignRun, Number

#: What a result file states of each number besides its value, in asv's words.
_STATS = ("ci_99_a", "ci_99_b", "q_25", "q_75", "number", "repeat")

_COLUMNS = ["result", "params", "version", "started_at", "duration", *(f"stats_{name}" for name in _STATS)]


def write_run(folder: Path, run: ForeignRun, tool: str) -> None:
    """Write a run as asv's result file of its machine and commit, with the tables that asv needs beside it.

    asv's environment is named after the tool. A benchmark with cases has one parameter, ``case``. ``folder`` has no
    file of this machine and commit yet; ``run`` has a commit, both times and a machine.
    """
    strings = {**dict.fromkeys(("arch", "cpu", "num_cpu", "os", "ram"), ""), **run.facts, "machine": run.machine}
    of_benchmark: dict[str, dict[str, Number]] = defaultdict(dict)
    for number in run.numbers:
        of_benchmark[number.benchmark][number.case] = number
    entries = {name: _entry(name, tool, cases) for name, cases in of_benchmark.items()}
    content = {
        "commit_hash": run.commit,
        "env_name": tool,
        "date": run.date,
        "params": strings,
        "python": "",
        "requirements": {},
        "env_vars": {},
        "result_columns": _COLUMNS,
        "results": {
            name: _row(list(cases.values()), entries[name], run.measured_at) for name, cases in of_benchmark.items()
        },
        "durations": {},
    }
    path = folder / get_filename(run.machine, run.commit, tool)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(str(path), content, Results.api_version, compact=True)
    write_json(str(path.with_name("machine.json")), strings, Machine.api_version)
    add_entries(folder, entries)


def _entry(name: str, tool: str, cases: Mapping[str, Number]) -> dict[str, Any]:
    """Return asv's description of a benchmark."""
    first = next(iter(cases.values()))
    described = {
        "name": name,
        "type": "time" if first.unit == "seconds" else "track",
        "unit": first.unit,
        "version": tool,
        "code": f"imported from {tool}",
        "params": [[_written(case) for case in cases]] if list(cases) != [""] else [],
        "param_names": ["case"] if list(cases) != [""] else [],
    }
    return described | ({"better": first.better} if first.better else {})


def _written(case: str) -> str:
    """Return a case as asv writes a parameter: a number as it is, any other text in quotes."""
    return case if re.fullmatch(r"\d+(\.\d+)?", case) else repr(case)


def _row(numbers: Sequence[Number], entry: Mapping[str, Any], started_at: int) -> list[Any]:
    """Return what a result file states of a benchmark, in the order of ``_COLUMNS``."""
    values, stats = zip(*map(_value, numbers), strict=True)
    columns = [[one.get(name) for one in stats] for name in _STATS]
    return [list(values), entry["params"], entry["version"], started_at, None, *columns]


def _value(number: Number) -> tuple[float | None, Mapping[str, float]]:
    """Return a value, and what is known of its spread in asv's words. A failure has the value ``None``."""
    if number.failed or math.isnan(number.value):
        return (None if number.failed else math.nan), {}
    if number.samples:
        value, stats = compute_stats(list(number.samples), 1)
        return float(value), stats
    return number.value, number.stats
