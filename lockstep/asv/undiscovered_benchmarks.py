"""Keep those benchmarks in asv's table, ``benchmarks.json``, that asv itself does not discover.

These are the exact quantities, and costs that a command asked for and no suite states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from asv.benchmarks import Benchmarks
from asv.util import load_json

from lockstep.asv.whole_files import write_json
from lockstep.record.quantity import COST_TYPE, EXACT_TYPE, QUANTITIES, benchmark_name, type_of


def undiscovered(folder: Path) -> dict[str, Any]:
    """Return asv's benchmarks of exact quantities and costs, which asv drops when it rewrites ``benchmarks.json``."""
    return {name: entry for name, entry in read_table(folder).items() if entry.get("type") in (EXACT_TYPE, COST_TYPE)}


def keep(folder: Path, entries: Mapping[str, Any]) -> None:
    """Add to ``benchmarks.json`` the benchmarks that asv dropped when it wrote the file anew.

    The benchmark of a cost gets the parameters and the version that the latency of its suite has now. ``entries``:
    result of ``undiscovered`` before asv wrote the table in ``folder``.
    """
    table = read_table(folder)
    exact = {name: entry for name, entry in entries.items() if entry["type"] == EXACT_TYPE}
    costs = {entry["quantity"] for entry in entries.values() if entry["type"] == COST_TYPE}
    cost_benchmarks = {
        entry["name"]: entry for entry in cost_entries(table.values(), costs) if entry["name"] in entries
    }
    add_entries(folder, exact | {name: entry for name, entry in cost_benchmarks.items() if name not in table})


def cost_entries(benchmarks: Iterable[Mapping[str, Any]], quantities: Iterable[str]) -> list[dict[str, Any]]:
    """Return a benchmark of each quantity of a cost for each suite, made from the benchmark of the suite's latency.

    ``quantities``: names in ``lockstep.record.quantity.COST_QUANTITIES``.
    """
    return [
        {
            **benchmark,
            "name": benchmark_name(benchmark["suite"], quantity),
            "quantity": quantity,
            "type": type_of(quantity),
            "unit": QUANTITIES[quantity].unit,
        }
        for benchmark in benchmarks
        if benchmark.get("quantity") == "latency"
        for quantity in sorted(quantities)
    ]


def add_entries(folder: Path, entries: Mapping[str, Any]) -> None:
    """Add benchmarks to asv's table, ``benchmarks.json``, until asv overwrites it with the benchmarks it discovers."""
    known = read_table(folder)
    if any(known.get(name) != entry for name, entry in entries.items()):
        write_json(str(folder / "benchmarks.json"), known | dict(entries), Benchmarks.api_version)


def read_table(folder: Path) -> dict[str, Any]:
    """Return asv's table of benchmarks by name; {} if nothing is recorded."""
    path = folder / "benchmarks.json"
    return dict(load_json(str(path), Benchmarks.api_version)) if path.exists() else {}
