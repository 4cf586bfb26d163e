"""Read a report that comes back from a workflow. The author of the change under test may have forged the report.

Only the JSON report is read, from a zip file that is never unpacked. The text for people is written again from the JSON
report. Only the standard library is imported: the job that runs this module holds a token and installs nothing.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from lockstep.gate.model import COSTS, DETERMINISTIC, LATENCY, Outcome, SeriesKey, Verdict
from lockstep.gate.report.report import SCHEMA, Report
from lockstep.record.model import Estimate

#: The report's name in the artifact.
NAME = "gate.json"

#: Maximum bytes of the zip file, and of the report in it. A report of 2,000 cases has 2 MB.
MOST_ZIPPED, MOST_BYTES = 4 << 20, 16 << 20

#: Maximum numbers of cases, of entries of any other list, and of characters of any text.
MOST_CASES, MOST_ENTRIES, MOST_TEXT = 20_000, 100, 2000


class Unreadable(ValueError):
    """The artifact holds no readable report. The message is our own text and contains nothing from the artifact."""


def from_zip(content: bytes) -> Report:
    """Return the report in an artifact.

    Raises:
        Unreadable: the artifact is too large or not a zip file, or its report is missing or unreadable.
    """
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

    Raises:
        Unreadable: the text is not JSON, or a field is missing or has another type or size than docs/gate.md states.
    """
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable(f"{NAME} is not valid JSON") from None
    entry = _Entry(row, "")
    if entry.values.get("schema") != SCHEMA:
        raise Unreadable(f"{NAME} is not of schema {SCHEMA}, the only one that this version of Lockstep reads")
    return Report(
        base=entry.text("base"),
        head=entry.text("head"),
        min_effect=entry.number("min_effect"),
        confidence=entry.number("confidence"),
        budget_s=entry.number("budget_s"),
        seed=int(entry.number("seed")),
        machine={
            name: entry.part("machine").text(name) for name in _MACHINE_FACTS if name in entry.part("machine").values
        },
        cases=tuple(_verdict(item) for item in entry.parts("cases")),
        meter=tuple(item for item in map(_verdict, entry.parts("meter")) if item.change),
        wall_s=entry.number("wall_s"),
        notes=entry.texts("notes"),
        trouble=entry.text("trouble"),
        interrupted=entry.flag("interrupted"),
        # Reports of earlier versions lack these fields.
        absent=entry.texts("absent") if "absent" in entry.values else (),
        compared_s=entry.number("compared_s") if "compared_s" in entry.values else 0.0,
        script=entry.text("script") if "script" in entry.values else "",
    )


#: Facts of the machine that a report uses or shows.
_MACHINE_FACTS = ("device", "gpu", "cpu", "clock_state", "driver", "torch", "triton")


def _verdict(entry: _Entry) -> Verdict:
    outcome = entry.text("outcome")
    if outcome not in get_args(Outcome):
        raise entry.wrong("outcome")
    change = _change(entry.part("change")) if entry.values.get("change") is not None else None
    key = _key(entry.part("key"))
    if outcome in ("slower", "faster") and change is None and key.quantity != DETERMINISTIC:
        raise entry.wrong("change")
    return Verdict(
        key=key,
        outcome=cast(Outcome, outcome),
        reason=entry.text("reason"),
        change=change,
        min_effect=entry.number("min_effect"),
        base_s=entry.number("base_s", math.nan) if entry.values.get("base_s") is not None else None,
        head_s=entry.number("head_s", math.nan) if entry.values.get("head_s") is not None else None,
        epochs=int(entry.number("epochs")) if "epochs" in entry.values else 0,
        voided=int(entry.number("voided")) if "voided" in entry.values else 0,
        excluded=entry.number("excluded") if entry.values.get("excluded") is not None else None,
        shared=entry.flag("shared"),
        unchanged=entry.flag("unchanged"),
        in_base=entry.flag("in_base"),
        code=entry.texts("code"),
        accepted=entry.text("accepted"),
    )


def _key(entry: _Entry) -> SeriesKey:
    """Return the key of a case; reports of earlier versions have latencies alone."""
    quantity = entry.text("quantity") if "quantity" in entry.values else LATENCY
    if quantity not in (LATENCY, *COSTS):
        raise entry.wrong("quantity")
    return SeriesKey(entry.text("suite"), entry.text("variant"), entry.text("case"), entry.text("l2"), quantity)


def _change(entry: _Entry) -> Estimate:
    return Estimate(entry.number("value"), entry.number("low", -math.inf), entry.number("high", math.inf))


class _Entry:
    """One object of the JSON text. No value is trusted to have the right type."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, Mapping):
            raise Unreadable(f"{NAME}: {where or 'the content'} is not a JSON object")
        self.values, self.where = values, where

    def wrong(self, key: str) -> Unreadable:
        # ``where`` and ``key`` are our own names, not the artifact's.
        return Unreadable(f"{NAME}: {self.where}{key} is missing or not what docs/gate.md says")

    def text(self, key: str) -> str:
        return self._clean(key, self.values.get(key))

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(self._clean(key, item) for item in self._list(key, MOST_ENTRIES))

    def number(self, key: str, endless: float | None = None) -> float:
        """Return the value of ``key`` as a finite number; if it is ``null``, return ``endless`` if given.

        Raises:
            Unreadable: the value is not a number, or too large.
        """
        value = self.values.get(key)
        if value is None and endless is not None:
            return endless
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
            raise self.wrong(key)
        return float(value)

    def flag(self, key: str) -> bool:
        value = self.values.get(key)
        if not isinstance(value, bool):
            raise self.wrong(key)
        return value

    def part(self, key: str) -> _Entry:
        return _Entry(self.values.get(key), f"{self.where}{key}.")

    def parts(self, key: str) -> list[_Entry]:
        return [_Entry(item, f"{self.where}{key}.") for item in self._list(key, MOST_CASES)]

    def _list(self, key: str, most: int) -> Sequence[Any]:
        value = self.values.get(key)
        if not isinstance(value, list) or len(value) > most:
            raise self.wrong(key)
        return value

    def _clean(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or len(value) > MOST_TEXT:
            raise self.wrong(key)
        # Invisible characters can reverse the direction of the text around them.
        return "".join(letter if letter.isprintable() else " " for letter in value)
