"""Read the units, kinds, better directions and parameter names of benchmarks from asv's table ``benchmarks.json``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from lockstep.history.model import Benchmark
from lockstep.history.validation import Problem, Unreadable, read_json
from lockstep.processes.trouble import reason_of
from lockstep.record.quantity import COST_TYPE, EXACT_TYPE, QUANTITIES, SUITE_BENCHMARK, Better, type_of
from lockstep.record.unit_direction import better_of

#: asv's name of a table.
TABLE = "benchmarks.json"

_OUR_PARAMETERS = {
    **dict.fromkeys(("lockstep", COST_TYPE), ("variant", "case", "l2")),
    EXACT_TYPE: ("variant", "case"),
}

#: Unit by asv's name prefix, for benchmarks without a unit in the table.
_UNITS = {"time": "seconds", "timeraw": "seconds", "mem": "bytes", "peakmem": "bytes"}
_KINDS = {"mem": "memory", "peakmem": "peakmemory"}

#: asv's types of benchmarks whose numbers are times or sizes, so that lower is better.
_LOWER = ("time", "timeraw", "memory", "peakmemory")

#: The attribute of a benchmark that states its better direction: ``track_rate.better = "higher"``.
_BETTER = "better"


def read_tables(
    root: Path, tables: Mapping[str, tuple[int, int]]
) -> tuple[dict[str, dict[str, Any]], dict[str, list[Problem]]]:
    """Return the entries of all benchmarks, and the problem of each table that cannot be read, by path.

    If several tables have an entry for a benchmark, that of the results folder itself counts, else that of the table
    that changed last.

    ``tables``: modification time and size of each table, by its path relative to ``root``.
    """
    entries: dict[str, dict[str, Any]] = {}
    faults = {}
    for path in sorted(tables, key=lambda path: (path == TABLE, tables[path][0], path)):
        try:
            entries |= read_benchmarks(root / path)
        except (Unreadable, OSError) as error:
            faults[path] = [Problem(path, reason_of(error), weight="part")]
    return entries, faults


def read_benchmarks(path: Path) -> dict[str, dict[str, Any]]:
    """Return the fields that Lockstep needs of each benchmark in the table. Entries that are not objects are left out.

    Raises:
        Unreadable: the file is not a JSON object.
        OSError: the file cannot be opened.
    """
    table = read_json(path)
    if not isinstance(table, dict):
        raise Unreadable("the file is not a JSON object with an entry for each benchmark")
    return {key: _entry(entry) for key, entry in table.items() if isinstance(entry, dict)}


def _entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    names, better = entry.get("param_names"), entry.get(_BETTER)
    texts = {key: entry.get(key) for key in ("unit", "type", "suite", "quantity")}
    valid: dict[str, Any] = {key: text for key, text in texts.items() if isinstance(text, str) and _is_name(text)}
    if isinstance(names, list) and all(isinstance(name, str) and _is_name(name) for name in names):
        valid["param_names"] = names
    if better in get_args(Better):
        valid[_BETTER] = better
    return valid


def _is_name(text: str) -> bool:
    return text.isprintable() and len(text) <= 100


def benchmark(name: str, entry: Mapping[str, Any] | None) -> Benchmark:
    """Return the benchmark that an entry of the table describes; without an entry, the name alone decides."""
    entry = entry or {}
    suite_match = SUITE_BENCHMARK.fullmatch(name)
    suite_type = "" if suite_match is None else type_of(suite_match["quantity"])
    kind = entry.get("type", suite_type)
    last = name.rpartition(".")[2]
    if suite_match and kind == suite_type:
        suite = f"{suite_match['family']}.{suite_match['op']}" if suite_match["op"] else suite_match["family"]
        return Benchmark(
            name,
            entry.get("unit", QUANTITIES[suite_match["quantity"]].unit),
            kind,
            tuple(entry.get("param_names", _OUR_PARAMETERS[kind])),
            entry.get("suite", suite),
            entry.get("quantity", suite_match["quantity"]),
            QUANTITIES[suite_match["quantity"]].better,
        )
    prefix = last.partition("_")[0].lower()
    # Intern the texts, because a table may repeat them for tens of thousands of benchmarks.
    unit = sys.intern(entry.get("unit", _UNITS.get(prefix, "")))
    kind = sys.intern(kind or _KINDS.get(prefix, prefix if prefix in ("time", "timeraw", "track") else ""))
    return Benchmark(
        name,
        unit,
        kind,
        tuple(map(sys.intern, entry.get("param_names", ()))),
        sys.intern(name.rpartition(".")[0] or name),
        last,
        entry.get(_BETTER) or ("lower" if kind in _LOWER else better_of(unit)),
    )
