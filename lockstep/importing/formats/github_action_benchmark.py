"""Read the history of github-action-benchmark, ``data.js`` (or its JSON), and the output of one run that it takes.

The history holds all commits. The tool that measured decides the better direction, as in ``src/write.ts`` of
benchmark-action/github-action-benchmark (``biggerIsBetter``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.importing.model import ForeignRun, Number, milliseconds
from lockstep.record.quantity import Better

#: What stands before the JSON in ``data.js``.
PREFIX = "window.BENCHMARK_DATA = "

_HIGHER = ("benchmarkjs", "pytest", "customBiggerIsBetter")

#: Keys by which a file is recognised.
SHAPE = {"entries", "lastUpdate"}


def read(content: Any, folder: Path) -> list[ForeignRun]:
    """Return a run for each entry and commit. The oldest comes first."""
    runs = []
    for name, entries in content["entries"].items():
        for entry in entries:
            better: Better = "higher" if entry["tool"] in _HIGHER else "lower"
            commit = entry["commit"]
            numbers = tuple(_number(name, bench, better) for bench in entry["benches"])
            runs.append(ForeignRun(numbers, commit["id"], milliseconds(commit["timestamp"]), int(entry["date"])))
    return sorted(runs, key=lambda run: run.measured_at)


class Output:
    """The output of one run, for the tools customSmallerIsBetter and customBiggerIsBetter: a list of numbers.

    The list does not say which tool it is for, so it states no better direction. It names no commit. Its numbers belong
    to the action's default entry, "Benchmark".
    """

    def __init__(self, better: Better) -> None:
        self._better = better
        self.SHAPE = [{"name", "unit", "value"}]

    def read(self, content: Any, folder: Path) -> list[ForeignRun]:
        """Return the run that a file holds."""
        return [ForeignRun(tuple(_number("Benchmark", bench, self._better) for bench in content))]


def _number(entry: str, bench: Mapping[str, Any], better: Better) -> Number:
    name = str(bench["name"]).replace("::", "/").replace(".py/", "/").replace(".", "_").replace("/", ".")
    return Number(f"{entry.replace('.', '_')}.{name}", "", bench["unit"], float(bench["value"]), better)
