"""Write the numbers of another tool as asv's result files."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.asv.write_results import Result, write_results
from lockstep.importing.model import ForeignRun, Number


def write_run(folder: Path, run: ForeignRun, tool: str) -> None:
    """Write a run as asv's result file of its machine and commit, with the tables that asv needs beside it.

    asv's environment is named after the tool. A benchmark with cases has one parameter, ``case``. ``folder`` has no
    file of this machine and commit yet; ``run`` has a commit, both times and a machine.
    """
    of_benchmark: dict[str, dict[str, Number]] = defaultdict(dict)
    for number in run.numbers:
        of_benchmark[number.benchmark][number.case] = number
    found = [(_entry(name, tool, cases), [*map(_result, cases.values())]) for name, cases in of_benchmark.items()]
    write_results(folder, {**run.facts, "machine": run.machine}, run.commit, run.date, tool, found, run.measured_at)


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


def _result(number: Number) -> Result:
    """Return asv's result of a number, without its samples."""
    if number.failed or math.isnan(number.value):
        return Result(None if number.failed else math.nan)
    if number.samples:
        return Result.of_samples(number.samples)._replace(samples=None)
    return Result(number.value, number.stats)
