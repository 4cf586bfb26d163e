"""Convert an alert to JSON and back."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from lockstep.alerts.cause.found_change import Cause, Evidence
from lockstep.alerts.cause.suspects import CommitNote
from lockstep.alerts.model import Alert, FoundChange, Waiver
from lockstep.record.series_name import SeriesName

_SERIES = tuple(field.name for field in fields(SeriesName))
#: The stored fields of a change.
_CHANGE = tuple(field.name for field in fields(FoundChange) if field.compare)


class DamagedContent(ValueError):
    """A stored content is not that of an alert. ``Database`` says which database, and what to do."""


def to_json(alert: Alert) -> dict[str, Any]:
    """Return the alert as dicts, lists, texts and numbers, equal to what ``json.loads`` reads back."""
    # ``asdict`` takes ten times as long.
    waiver, values = alert.waiver, {name: value for name, value in vars(alert).items() if name != "waiver"}
    return {
        **values,
        "commits": list(alert.commits),
        "cause": cause_json(alert.cause),
        "members": [
            {
                **{name: getattr(member, name) for name in _CHANGE},
                "series": _series_json(member.series),
                "cause": cause_json(member.cause),
            }
            for member in alert.members
        ],
        "also_on": list(alert.also_on),
        "notes": [{**vars(note), "files": list(note.files)} for note in alert.notes],
        "excuse": waiver and {"because": waiver.because, "until": waiver.until and waiver.until.isoformat()},
    }


def from_json(content: Mapping[str, Any]) -> Alert:
    """Return the alert that ``to_json`` converted."""
    waiver = content["excuse"]
    return Alert(
        **{
            **{name: value for name, value in content.items() if name != "excuse"},
            "commits": tuple(content["commits"]),
            "also_on": tuple(content["also_on"]),
            "notes": tuple(CommitNote(**{**note, "files": tuple(note["files"])}) for note in content.get("notes", ())),
            "cause": cause_from_json(content["cause"]),
            "members": tuple(
                member_of(
                    {**member, "series": SeriesName(**member["series"]), "cause": cause_from_json(member["cause"])}
                )
                for member in content["members"]
            ),
            "waiver": waiver and Waiver(waiver["because"], _day(waiver["until"])),
        }
    )


def member_of(content: Mapping[str, Any]) -> FoundChange:
    """Return the member with these fields. Fields that only an older version had are left out."""
    return FoundChange(**{name: content[name] for name in _CHANGE if name in content})


def _series_json(series: SeriesName) -> dict[str, Any]:
    return {name: getattr(series, name) for name in _SERIES}


def cause_json(cause: Cause) -> dict[str, Any]:
    """Return a cause as JSON, for ``cause_from_json``."""
    return {**vars(cause), "evidence": [vars(fact) for fact in cause.evidence]}


def cause_from_json(content: Mapping[str, Any]) -> Cause:
    """Return the cause that ``cause_json`` converted."""
    return Cause(content["kind"], content["sentence"], tuple(Evidence(**fact) for fact in content["evidence"]))


def _day(text: str | None) -> datetime.date | None:
    return datetime.date.fromisoformat(text) if text else None
