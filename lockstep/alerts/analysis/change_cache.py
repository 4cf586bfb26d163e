"""Store the last analysis of a machine as JSON, so that the next analysis reads only new points.

A file holds the steps of the machine's changes and the reports of its series. A text or a set of facts that several
steps share is stored once, and the steps refer to it by index.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.alerts.analysis.cache_files import write_whole
from lockstep.alerts.analysis.followed_series import name_in
from lockstep.alerts.analysis.reported_points import SeriesReports
from lockstep.alerts.cause.change_facts import Facts, Move, Step
from lockstep.detect import Change
from lockstep.record.series_name import SeriesName

#: Stored fields of a step, in this order. The series is not stored with the step, because the row names it.
_FIELDS = tuple(field.name for field in fields(Step) if field.name != "series")

#: Identity of a change within its series. Later points may change the size of the change, but not its place.
Place = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class SeriesSteps:
    """The steps of a followed series.

    Attributes:
        length: number of points of the series.
        steps: the steps by the key of each change (see ``place_of``), oldest first.
    """

    length: int
    steps: Mapping[Place, Step]


@dataclass(frozen=True)
class CachedAnalysis:
    """The last analysis of a machine.

    Attributes:
        state: the state of the machine's results, see ``Results.state``.
        commits: the number of commits.
        ranges: the text of the ranges, see ``Ranges.text``.
        lacking: digest of the commits that the repository did not know, see ``Ranges.lacking``.
        measured: positions of the commits at which a series of the family was measured, by family.
        reported: the reports of the machine's series.
        changed: the steps of each series, by row.
        checks: state of the checks, see ``lockstep.alerts.analysis.followed_checks``.
    """

    state: str
    commits: int
    ranges: str
    lacking: str
    measured: Mapping[str, Sequence[int]]
    reported: SeriesReports
    changed: Mapping[str, SeriesSteps]
    checks: Mapping[str, Sequence[float]]


def place_of(change: Change) -> Place:
    """Return the key by which a change is found again in the next analysis of its series."""
    return change.index, change.last_before, change.earliest, change.latest, change.reported_at


def write_analysis(path: Path, cached: CachedAnalysis) -> None:
    """Write an analysis to a file, for ``read_analysis``."""
    shared = _Shared()
    changed = [
        [row, steps.length, *([*at, *shared.step(step)] for at, step in steps.steps.items())]
        for row, steps in cached.changed.items()
    ]
    content = {
        **vars(cached),
        "reported": cached.reported.to_json(),
        "measured": {family: _spans(commits) for family, commits in cached.measured.items()},
        "changed": changed,
        "texts": list(shared.texts),
        "facts": [vars(facts) for facts in shared.facts.values()],
    }
    write_whole(path, lambda file: file.write(json.dumps(content).encode("utf-8", "surrogatepass")))


def read_analysis(path: Path) -> CachedAnalysis | None:
    """Read an analysis; ``None`` if the file is missing or damaged."""
    try:
        content = json.loads(path.read_bytes())
        texts, facts = content.pop("texts"), [Facts(**entry) for entry in content.pop("facts")]
        content["reported"] = SeriesReports.from_json(content["reported"])
        changed = {}
        for row, length, *steps in content["changed"]:
            name = name_in(row)
            series_steps = {(a, b, c, d, e): _step(name, texts, facts, step) for a, b, c, d, e, *step in steps}
            changed[row] = SeriesSteps(length, series_steps)
        content["changed"] = changed
        content["measured"] = {family: _expanded(spans) for family, spans in content["measured"].items()}
        return CachedAnalysis(**content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None


class _Shared:
    """Collects the texts and the facts of all steps, each once, and numbers them."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.facts: dict[int, Facts] = {}
        self._places: dict[int, int] = {}

    def step(self, step: Step) -> list[Any]:
        """Return a step as a list of its fields, with indices in place of texts and facts. ``_step`` reads the list."""
        values = vars(step) | {
            **{side: self._fact(getattr(step, side)) for side in ("before", "after")},
            **{name: self._text(getattr(step, name)) for name in ("good", "reported_at")},
            **{
                name: move and [move.log, move.noise] for name, move in (("own", step.own), ("baseline", step.baseline))
            },
            "between": list(map(self._text, step.between)),
            "touched": None if step.touched is None else list(map(self._text, step.touched)),
            "controls": {name: [move.log, move.noise] for name, move in step.controls.items()},
        }
        return [values[name] for name in _FIELDS]

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _fact(self, facts: Facts) -> int:
        # Equal facts are one object, see ``lockstep.alerts.analysis.step_facts``.
        place = self._places.setdefault(id(facts), len(self._places))
        self.facts[place] = facts
        return place


def _step(series: SeriesName, texts: Sequence[str], facts: Sequence[Facts], content: Sequence[Any]) -> Step:
    values = dict(zip(_FIELDS, content, strict=True))
    touched = values["touched"]
    values |= {
        **{side: facts[values[side]] for side in ("before", "after")},
        **{name: texts[values[name]] for name in ("good", "reported_at")},
        **{name: values[name] and Move(*values[name]) for name in ("own", "baseline")},
        "between": tuple([texts[commit] for commit in values["between"]]),
        "touched": None if touched is None else tuple([texts[commit] for commit in touched]),
        "controls": {name: Move(*move) for name, move in values["controls"].items()},
    }
    return Step(series, **values)


def _spans(rising: Sequence[int]) -> list[list[int]]:
    """Shorten ascending numbers to the first and last number of each run of consecutive numbers."""
    all_of = np.asarray(rising)
    turns = np.flatnonzero(np.diff(all_of) != 1)
    ends = zip(all_of[np.append(0, turns + 1)].tolist(), all_of[np.append(turns, -1)].tolist(), strict=True)
    return [list(span) for span in ends]


def _expanded(spans: Sequence[Sequence[int]]) -> list[int]:
    return [number for first, last in spans for number in range(first, last + 1)]
