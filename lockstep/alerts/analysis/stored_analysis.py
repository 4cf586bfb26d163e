"""Define the analysis of a machine, and convert changes, and what the detector found in a series, to JSON and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

from lockstep.alerts.database.alert_as_json import cause_from_json, cause_json
from lockstep.alerts.model import Alert, FoundChange
from lockstep.detect import Analysis, Change, Level, Noise
from lockstep.record.series_name import SeriesName

_FOUND = tuple(field.name for field in fields(Change))

#: Fields of changes that many changes share, and how each is converted to JSON and back.
_SHARED: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "series": (astuple, lambda content: SeriesName(*content)),
    "cause": (cause_json, cause_from_json),
    "between": (list, tuple),
}


@dataclass(frozen=True)
class MachineAnalysis:
    """What an analysis found on a machine, before the thresholds decide which changes are reported.

    Attributes:
        machine: the machine's name.
        changes: the changes of all series; those of one series and benchmark version follow each other, oldest first.
        freshness: the freshness alerts, without that of a silent machine.
        series: number of series that have a number, by family and suite.
    """

    machine: str
    changes: tuple[FoundChange, ...]
    freshness: tuple[Alert, ...]
    series: Mapping[tuple[str, str], int]


def changes_json(changes: Iterable[FoundChange]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the parts that changes share, each once, and the fields of each change, which refer to parts by index."""
    places: dict[str, dict[Hashable, int]] = {name: {} for name in _SHARED}
    rows = [
        vars(change)
        | {name: of_name.setdefault(getattr(change, name), len(of_name)) for name, of_name in places.items()}
        for change in changes
    ]
    return {name: [to(part) for part in places[name]] for name, (to, _) in _SHARED.items()}, rows


def shared_parts(content: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """Return the shared parts that ``changes_json`` converted, by field."""
    return {name: [back(part) for part in content[name]] for name, (_, back) in _SHARED.items()}


def change_from_json(content: Mapping[str, Any], parts: Mapping[str, Sequence[Any]]) -> FoundChange:
    """Return a change that ``changes_json`` converted, given the shared parts."""
    return FoundChange(**{**content, **{name: shared[content[name]] for name, shared in parts.items()}})


def found_json(found: Analysis) -> str:
    """Return what the detector found in a series as JSON, for ``found_from_json``."""
    return json.dumps(
        [
            [[getattr(change, name) for name in _FOUND] for change in found.changes],
            found.reports,
            [[level.start, level.stop, level.value, level.low, level.high] for level in found.levels],
            [found.noise.scale, found.noise.kind, found.noise.measure],
            found.mde,
            found.repeats_for_1_percent,
        ]
    )


def found_from_json(text: str) -> Analysis:
    """Return what ``found_json`` converted."""
    changes, reports, levels, noise, mde, repeats = json.loads(text)
    return Analysis(
        changes=tuple(Change(*change) for change in changes),
        reports=tuple((index, newest) for index, newest in reports),
        levels=tuple(Level(*level) for level in levels),
        noise=Noise(*noise),
        mde=mde,
        repeats_for_1_percent=repeats,
    )
