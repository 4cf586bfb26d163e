"""asv's file of one machine, commit and environment, as rows without provenance.

The layout is what ``asv.results.Results.save`` of asv 0.6.6 writes (``api_version`` 2). asv's own loader
is not used: it raises what it meets (TypeError, AttributeError …) and keeps columns that no page shows.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dashboard.results.guards import LATEST_TIME, Unreadable, finite, name, read_json, time_ms
from dashboard.rows import Measured, Row, State, positive

#: A parameterised benchmark with more combinations than this is a mistake or an attack.
MOST_SERIES = 100_000

#: The two benchmarks that ``lockstep.suite.Suite.series`` makes of a suite, and their parameters.
_OURS = re.compile(r"(?P<family>[\w.]+)\.(?:(?P<op>\w+)_)?(?P<quantity>latency|speedup)")
_OUR_PARAMETERS = ("variant", "case", "l2")
_NOT_A_TIME = re.compile(r"(mem|peakmem|track)_")


@dataclass(frozen=True)
class Benchmark:
    """What ``benchmarks.json`` adds to the results: the unit and the names of the parameters."""

    unit: str
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Head:
    """What all rows of a file share; the date is in ms since 1970."""

    machine: str
    environment: str
    commit: str
    date: int


def read_benchmarks(path: Path) -> dict[str, Benchmark]:
    """Benchmarks by name; an entry of another form is left out.

    Raises:
        Unreadable: the file is not an object in JSON.
        OSError: it cannot be opened.
    """
    table = read_json(path)
    if not isinstance(table, dict):
        raise Unreadable("is not an object of benchmarks")
    return {
        key: Benchmark(str(entry.get("unit", "")), tuple(map(str, entry["param_names"])))
        for key, entry in table.items()
        if isinstance(entry, dict) and isinstance(entry.get("param_names"), list)
    }


def read_asv(path: Path, benchmarks: Mapping[str, Benchmark]) -> tuple[Head, list[Row], list[str]]:
    """The file's head, its rows and what was wrong with single benchmarks (those are skipped).

    Raises:
        Unreadable: the file as a whole is not a result of the machine and commit that its path names.
        OSError: it cannot be opened.
    """
    data = read_json(path)
    head = _head(data, path)
    columns, results = data.get("result_columns"), data.get("results")
    if not isinstance(columns, list) or not isinstance(results, dict):
        raise Unreadable("has no results or no result_columns")
    rows: dict[tuple[str, ...], Row] = {}
    complaints = []
    for benchmark, values in results.items():
        try:
            for row in _rows(head, name(benchmark), values, columns, benchmarks.get(benchmark)):
                # Latency and speedup are two benchmarks and one row, whose state is the latency's.
                other = rows.get(row.series, row)
                latency, speedup = (other, row) if benchmark.endswith("speedup") else (row, other)
                rows[row.series] = replace(latency, speedup=speedup.speedup)
        except Unreadable as error:
            complaints.append(f"{benchmark!r:.100} {error}")
    return head, list(rows.values()), complaints


def _head(data: Any, path: Path) -> Head:
    if not isinstance(data, dict) or data.get("version") != 2:
        raise Unreadable("is not an asv result of version 2")
    commit, date, parameters = data.get("commit_hash"), data.get("date"), data.get("params")
    if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", commit):
        raise Unreadable("has no full hash as commit_hash")
    if not path.name.startswith(f"{commit[:8]}-"):
        raise Unreadable(f"is named after another commit than the {commit[:8]} in it")
    if not isinstance(date, int) or isinstance(date, bool) or not 0 <= date < LATEST_TIME:
        raise Unreadable("has a date that is not a time in milliseconds")
    machine = parameters.get("machine") if isinstance(parameters, dict) else None
    if machine != path.parent.name:
        raise Unreadable(f"says it is of machine {machine!r:.60}, not of the one whose folder it lies in")
    return Head(name(machine), name(data.get("env_name")), commit, date)


def _rows(head: Head, benchmark: str, values: Any, columns: list[Any], known: Benchmark | None) -> Iterator[Row]:
    if not isinstance(values, list) or len(values) > len(columns):
        raise Unreadable("has other columns than result_columns")
    column = dict(zip(map(str, columns), values, strict=False))
    axes = column.get("params") or []
    if not isinstance(axes, list) or not all(isinstance(axis, list) for axis in axes):
        raise Unreadable("has parameters that are not a list of lists")
    size = math.prod(map(len, axes))
    if size > MOST_SERIES:
        raise Unreadable(f"has {size} combinations of parameters, more than {MOST_SERIES}")
    ours = _OURS.fullmatch(benchmark)
    unit = known.unit if known else ""
    if not ours and (unit not in ("", "seconds") or _NOT_A_TIME.match(benchmark.rpartition(".")[2])):
        raise Unreadable(f"is in {unit or 'another unit'}, not in seconds, and is not shown")
    parameters = known.parameters if known else _OUR_PARAMETERS if ours else ()
    quantity = ours["quantity"] if ours else "latency"
    family, op = (ours["family"], ours["op"] or "") if ours else (benchmark, "")
    version = column.get("version")
    measured_at = time_ms(column.get("started_at"))
    numbers, lows, highs = (_column(column, part, size) for part in ("result", "stats_ci_99_a", "stats_ci_99_b"))
    for combination, number, low, high in zip(itertools.product(*axes), numbers, lows, highs, strict=True):
        value = positive(finite(number), finite(low), finite(high))
        state, reason = _state(number, value)
        variant, case, l2 = _names(combination, parameters)
        yield Row(
            machine=head.machine,
            environment=head.environment,
            commit=head.commit,
            date=head.date,
            family=family,
            op=op,
            variant=variant,
            case=case,
            l2=l2,
            version=version if isinstance(version, str) else "",
            state=state,
            reason=reason,
            latency=value if quantity == "latency" else None,
            speedup=value if quantity == "speedup" else None,
            measured_at=measured_at,
        )


def _column(column: Mapping[str, Any], part: str, size: int) -> list[Any]:
    """One value a combination; asv leaves out a column that holds nothing but null."""
    values = column.get(part)
    if values is None:
        return [None] * size
    if not isinstance(values, list) or len(values) != size:
        raise Unreadable(f"does not have one {part} for each of {size} combinations of parameters")
    return values


def _state(number: Any, value: Measured | None) -> tuple[State, str]:
    """asv writes NaN for what was skipped and null for what failed."""
    if value is not None:
        return "bare", ""
    if number is None:
        return "failed", "asv stored no number"
    if isinstance(number, float) and math.isnan(number):
        return "na", "skipped"
    return "failed", f"{number!r:.40} is not a positive number"


def _names(combination: tuple[Any, ...], parameters: tuple[str, ...]) -> tuple[str, str, str]:
    """Variant, case and cache state; parameters of any other name are joined into the case."""
    values = [name(_unquoted(text)) for text in combination]
    if len(parameters) != len(values):
        return "", ",".join(values), ""
    named = dict(zip(parameters, values, strict=True))
    variant, l2 = named.pop("variant", ""), named.pop("l2", "")
    case = named["case"] if list(named) == ["case"] else ",".join(f"{key}={value}" for key, value in named.items())
    return variant, name(case), l2


def _unquoted(text: Any) -> str:
    """asv stores the repr of a parameter: a string without its quotes, anything else as it stands."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        value = text
    return value if isinstance(value, str) else str(text)
