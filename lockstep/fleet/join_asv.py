"""Join asv's result files of one commit and environment: the cases of a benchmark are parameters of one array."""

from __future__ import annotations

import ast
import itertools
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.fleet.join_records import Key, order
from lockstep.record.model import Record
from lockstep.record.quantity import MEASURED_TYPES

#: asv's columns that hold one value for a benchmark. All other columns hold one for each combination of parameters.
_WHOLE = ("params", "version", "started_at", "duration", "profile")

#: A combination of parameters, each as asv writes it.
_Combination = tuple[str, ...]

#: The values of one combination, by column.
_Entry = Mapping[str, Any]


@dataclass(frozen=True)
class AsvResults:
    """asv's result file of one folder, and the records that decide which of its numbers count.

    Attributes:
        content: the JSON of the file.
        records: the records of the provenance file beside it.
    """

    content: Mapping[str, Any]
    records: Mapping[Key, Record]


def joined_asv(files: Sequence[AsvResults], table: Mapping[str, Mapping[str, Any]], machine: Mapping[str, str]) -> Any:
    """Return the content of one file with the numbers of all.

    Args:
        files: at least one file; all are of one commit and environment.
        table: asv's table of benchmarks, by name.
        machine: asv's strings of the machine, which all numbers get.
    """
    newest = max((file.content for file in files), key=lambda content: (_newest(content), _text(content)))
    columns = list(dict.fromkeys(name for file in files for name in file.content["result_columns"]))
    names = sorted({name for file in files for name in file.content["results"]})
    results = {name: _benchmark(name, files, columns, table.get(name, {})) for name in names}
    return {
        **{key: value for key, value in newest.items() if key != "version"},
        "params": {**newest["params"], **machine},
        "result_columns": columns,
        "results": results,
    }


def _benchmark(name: str, files: Sequence[AsvResults], columns: list[str], entry: Mapping[str, Any]) -> list[Any]:
    rows = [
        (file, dict(zip(file.content["result_columns"], row, strict=False)))
        for file in files
        if (row := file.content["results"].get(name)) is not None
    ]
    last = max((row for _, row in rows), key=lambda row: (row.get("started_at") or 0, _text(row)))
    same_version = [(file, row) for file, row in rows if row.get("version") == last.get("version")]
    params = _united([row.get("params") or [] for _, row in sorted(same_version, key=lambda pair: _text(pair[1]))])
    best: dict[_Combination, tuple[tuple[Any, ...], _Entry]] = {}
    for file, row in same_version:
        for combination, values in _entries(row, columns).items():
            record = file.records.get(_key(combination, entry))
            rank = (
                record is not None,
                order(record) if record is not None else (),
                not _missing(values),
                row.get("started_at") or 0,
                _text(values),
            )
            if combination not in best or rank > best[combination][0]:
                best[combination] = rank, values
    blank = {"result": math.nan}
    found = [best[one][1] if one in best else blank for one in itertools.product(*params)]
    merged: list[Any] = []
    for column in columns:
        if column in _WHOLE:
            merged.append(params if column == "params" else last.get(column))
        else:
            listed = [one.get(column) for one in found]
            merged.append(None if all(value is None for value in listed) else listed)
    while merged and merged[-1] is None:
        merged.pop()
    return merged


def _entries(row: Mapping[str, Any], columns: Collection[str]) -> dict[_Combination, _Entry]:
    combinations = list(itertools.product(*(row.get("params") or [])))
    lists = {name: row[name] for name in columns if name not in _WHOLE and row.get(name) is not None}
    return {
        combination: {name: values[place] for name, values in lists.items()}
        for place, combination in enumerate(combinations)
    }


def _missing(entry: _Entry) -> bool:
    """Return whether the entry has no number. asv writes NaN for "n/a" and for combinations that were not selected."""
    result = entry.get("result")
    return isinstance(result, float) and math.isnan(result)


def _key(combination: _Combination, entry: Mapping[str, Any]) -> Key:
    """Return the series of a combination; blank for a benchmark without a suite."""
    if entry.get("type") not in MEASURED_TYPES or len(combination) != 3:
        return "", "", "", ""
    variant, case, l2 = (str(ast.literal_eval(value)) for value in combination)
    return entry["suite"], variant, case, l2


def _united(lists: Sequence[Sequence[Sequence[str]]]) -> list[list[str]]:
    """Return the values of each parameter that any list has."""
    longest = max(lists, key=lambda params: (math.prod(map(len, params)), _text(params)))
    ordered = [longest, *(params for params in lists if len(params) == len(longest))]
    return [list(dict.fromkeys(itertools.chain(*axis))) for axis in zip(*ordered, strict=True)]


def _newest(content: Mapping[str, Any]) -> int:
    place = content["result_columns"].index("started_at")
    return max((row[place] or 0 for row in content["results"].values() if len(row) > place), default=0)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
