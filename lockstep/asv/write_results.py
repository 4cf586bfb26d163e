"""Write numbers that asv did not measure as asv's result files.

asv's ``Results`` computes intervals from samples alone, takes none from its caller, and rounds them to five digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from asv.machine import Machine
from asv.results import Results, get_filename
from asv.util import load_json
from asv_runner.statistics import compute_stats

from lockstep.asv.undiscovered_benchmarks import add_entries
from lockstep.asv.whole_files import write_json

#: What a result file states of each number besides its value, in asv's words.
_STATS = ("ci_99_a", "ci_99_b", "q_25", "q_75", "number", "repeat")

_COLUMNS = ("result", "params", "version", "started_at", "duration", *(f"stats_{name}" for name in _STATS), "samples")


class Result(NamedTuple):
    """asv's result of a benchmark for one combination of its parameters.

    ``value`` is NaN if the benchmark does not apply, and ``None`` if it failed. ``stats`` are in asv's words:
    "ci_99_a", "q_25", "repeat" …
    """

    value: float | None
    stats: Mapping[str, float] = MappingProxyType({})
    samples: Sequence[float] | None = None

    @classmethod
    def of_samples(cls, samples: Sequence[float]) -> Self:
        """Return the median of at least one sample, with asv's statistics."""
        value, stats = compute_stats(list(samples), 1)
        return cls(float(value), stats, samples)


def write_results(
    folder: Path,
    machine: Mapping[str, str],
    commit: str,
    date: int,
    environment: str,
    found: Sequence[tuple[Mapping[str, Any], Sequence[Result]]],
    started_at: int,
    python: str = "",
) -> None:
    """Write results into asv's file of a machine, commit and environment, and the tables that asv needs beside it.

    Results of other benchmarks in the file stay.

    Args:
        machine: asv's strings of the machine; "machine" is its name.
        date: the commit's date, ms since 1970.
        found: benchmarks as in ``benchmarks.json``, each with a result for every combination of its parameters, or
            with none: earlier results of the benchmark are then removed.
        started_at: time of the measurement, ms since 1970.
        python: version of Python; "" if unknown.

    Raises:
        UserError: a file to be extended is not asv's.
    """
    strings = {**dict.fromkeys(("arch", "cpu", "num_cpu", "os", "ram"), ""), **machine}
    path = folder / get_filename(strings["machine"], commit, environment)
    before = load_json(str(path), Results.api_version) if path.exists() else {"result_columns": [], "results": {}}
    rows = {name: dict(zip(before["result_columns"], row, strict=False)) for name, row in before["results"].items()}
    for entry, results in found:
        rows.pop(entry["name"], None)
        if results:
            row = {"params": entry["params"], "version": entry["version"], "started_at": started_at}
            rows[entry["name"]] = row | _columns(results)
    columns = list(dict.fromkeys([*_COLUMNS, *before["result_columns"]]))
    content = {
        "requirements": {},
        "env_vars": {},
        "durations": {},
        **before,
        "commit_hash": commit,
        "env_name": environment,
        "date": date,
        "params": strings | ({"python": python} if python else {}),
        "python": python,
        "result_columns": columns,
        "results": {name: [row.get(column) for column in columns] for name, row in rows.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(str(path), content, Results.api_version, compact=True)
    write_json(str(path.with_name("machine.json")), strings, Machine.api_version)
    add_entries(folder, {entry["name"]: entry for entry, _ in found})


def _columns(results: Sequence[Result]) -> dict[str, list[Any]]:
    """Return the columns with a value for each combination. A column without any is left out, as in asv's files."""
    columns: dict[str, list[Any]] = {
        "result": [each.value for each in results],
        **{f"stats_{name}": [each.stats.get(name) for each in results] for name in _STATS},
        "samples": [each.samples for each in results],
    }
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}
