"""Read a report that comes back from a workflow. The author of the change under test may have forged the report.

Only the JSON report is read, from a zip file that is never unpacked. The text for people is written again from the JSON
report. Only the standard library is imported: the job that runs this module holds a token and installs nothing.
"""

from __future__ import annotations

import functools
import io
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from lockstep.gate.model import COSTS, DETERMINISTIC, LATENCY
from lockstep.gate.report.report import SCHEMA, Report
from lockstep.record.model import Estimate

#: The report's name in the artifact.
NAME = "gate.json"

#: Maximum bytes of the zip file, and of the report in it. A report of 2,000 cases has 2 MB.
MOST_ZIPPED, MOST_BYTES = 4 << 20, 16 << 20

#: Maximum numbers of cases, of entries of any other list, and of characters of any text.
MOST_CASES, MOST_ENTRIES, MOST_TEXT = 20_000, 100, 2000

#: Facts of the machine that a report uses or shows. No text shows the controls.
_MACHINE_FACTS, _UNREAD = ("device", "gpu", "cpu", "clock_state", "driver", "torch", "triton"), "controls"


class Unreadable(ValueError):
    """The artifact holds no readable report. The message is our own text and contains nothing from the artifact."""


def from_zip(content: bytes) -> Report:
    """Return the report in an artifact; ``Unreadable`` if it is too large, no zip file, or has no readable report."""
    if len(content) > MOST_ZIPPED:
        raise Unreadable(f"the artifact has more than {MOST_ZIPPED >> 20} MiB, the limit: judge fewer cases at once")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive, archive.open(NAME) as file:
            # The sizes that a zip file states cannot be trusted.
            text = file.read(MOST_BYTES + 1)
    except KeyError:
        raise Unreadable(f"the artifact has no {NAME}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError):
        raise Unreadable("the artifact is not a valid zip file") from None
    if len(text) > MOST_BYTES:
        raise Unreadable(f"{NAME} has more than {MOST_BYTES >> 20} MiB, the limit: judge fewer cases at once")
    return from_json(text)


def from_json(text: bytes) -> Report:
    """Return the report in a JSON text. Only facts are read; verdict, headline and counts are computed again.

    Raise ``Unreadable`` if the text is not JSON, or a field is missing or has another type or size than docs/gate.md
    states.
    """
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable(f"{NAME} is not valid JSON") from None
    if isinstance(row, dict) and row.get("schema") != SCHEMA:
        raise Unreadable(f"{NAME} is not of schema {SCHEMA}, the only one that this version of Lockstep reads")
    report: Report = _object(Report, row, "")
    for verdict in (*report.cases, *report.meter):
        if verdict.key.quantity not in (LATENCY, *COSTS):
            raise _wrong("cases.key.quantity")
        sized = verdict.change is not None or verdict.key.quantity == DETERMINISTIC
        if verdict.outcome in ("slower", "faster") and not sized:
            raise _wrong("cases.change")
    return replace(report, meter=tuple(verdict for verdict in report.meter if verdict.change))


_hints = functools.cache(get_type_hints)


def _object(kind: Any, values: Any, where: str) -> Any:
    """Return a JSON object as a dataclass. A field with a default may be missing: earlier versions had fewer fields."""
    if not isinstance(values, dict):
        raise Unreadable(f"{NAME}: {where or 'the content'} is not a JSON object")
    hints, read = _hints(kind), {}
    for field in fields(kind):
        name, value = field.name, values.get(field.name)
        if kind is Estimate and name in ("low", "high") and value is None:
            read[name] = math.inf if name == "high" else -math.inf
        elif name != _UNREAD and (name in values or field.default is field.default_factory is MISSING):
            read[name] = _value(hints[name], value, f"{where}{name}")
    return kind(**read)


def _value(hint: Any, value: Any, where: str) -> Any:
    """Return a value of JSON as the type of a field asks for. No value is trusted to have that type."""
    parts, number = get_args(hint), isinstance(value, int | float) and not isinstance(value, bool)
    if NoneType in parts:
        return None if value is None else _value(parts[0], value, where)
    if is_dataclass(hint):
        return _object(hint, value, f"{where}.")
    if hint in (int, float) and number and abs(value) < 1e15:  # a finite number
        return hint(value)
    if hint is bool and isinstance(value, bool):
        return value
    if hint is str and isinstance(value, str) and len(value) <= MOST_TEXT:
        # Invisible characters can reverse the direction of the text around them.
        return "".join(letter if letter.isprintable() else " " for letter in value)
    if get_origin(hint) is Literal and value in parts:
        return value
    if get_origin(hint) is tuple and isinstance(value, list):
        if len(value) <= (MOST_CASES if is_dataclass(parts[0]) else MOST_ENTRIES):
            return tuple(_value(parts[0], item, where) for item in value)
    elif get_origin(hint) is Mapping and isinstance(value, dict):
        return {name: _value(str, value[name], f"{where}.{name}") for name in _MACHINE_FACTS if name in value}
    raise _wrong(where)


def _wrong(where: str) -> Unreadable:
    # ``where`` consists of our own names, not the artifact's.
    return Unreadable(f"{NAME}: {where} is missing or not what docs/gate.md says")
