"""The last analysis of a machine as JSON, for the next one: steps of its changes, and reports of its series.

Texts and facts that several steps share are stored once, and referred to by their index.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.alerts.analysis_cache import write_whole
from lockstep.alerts.followed_series import name_in
from lockstep.alerts.reported_points import SeriesReports
from lockstep.alerts.steps import Facts, Move, SeriesName, Step
from lockstep.detect import Change

#: Identity of a change within its series. Later points may change its size, not its place.
Place = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class SeriesSteps:
    """The steps of a followed series.

    Attributes:
        length: number of points of the series.
        steps: by the place of each change, oldest first.
    """

    length: int
    steps: Mapping[Place, Step]


@dataclass(frozen=True)
class CachedAnalysis:
    """The last analysis of a machine.

    Attributes:
        state: of its results, see ``Results.state``. commits: their number.
        ranges: the repository. lacking: which commits the repository did not know, see ``Ranges``.
        measured: positions of the commits that measured something, by family.
        reported: what its series reported.
        changed: steps by row.
    """

    state: str
    commits: int
    ranges: str
    lacking: str
    measured: Mapping[str, Sequence[int]]
    reported: SeriesReports
    changed: Mapping[str, SeriesSteps]


def place_of(change: Change) -> Place:
    """Return the place of a change."""
    return change.index, change.last_before, change.earliest, change.latest, change.reported_at


def write_analysis(path: Path, cached: CachedAnalysis) -> None:
    """Write an analysis."""
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
    """Read an analysis; ``None`` if there is none that can be read."""
    try:
        content = json.loads(path.read_bytes())
        texts, facts = content.pop("texts"), [Facts(**entry) for entry in content.pop("facts")]
        content["reported"] = SeriesReports.from_json(content["reported"])
        changed = {}
        for row, length, *steps in content["changed"]:
            name = name_in(row)
            own = {(a, b, c, d, e): _step(name, texts, facts, step) for a, b, c, d, e, *step in steps}
            changed[row] = SeriesSteps(length, own)
        content["changed"] = changed
        content["measured"] = {family: _expanded(spans) for family, spans in content["measured"].items()}
        return CachedAnalysis(**content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None


class _Shared:
    """Texts and facts, each once, with their indices."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.facts: dict[int, Facts] = {}
        self._places: dict[int, int] = {}

    def step(self, step: Step) -> list[Any]:
        """Return the arguments of ``_step``."""
        touched = step.touched
        return [
            self._fact(step.before),
            self._fact(step.after),
            *(step.size, step.low, step.high, step.confidence, step.left, step.first, step.last),
            self._text(step.good),
            [self._text(commit) for commit in step.between],
            None if touched is None else [self._text(commit) for commit in touched],
            step.unknown,
            self._text(step.reported_at),
            _move_json(step.own),
            _move_json(step.baseline),
            {name: _move_json(move) for name, move in step.controls.items()},
            step.unsettled,
        ]

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _fact(self, facts: Facts) -> int:
        # Equal facts are one object: see ``lockstep.alerts.extract``.
        place = self._places.setdefault(id(facts), len(self._places))
        self.facts[place] = facts
        return place


def _step(series: SeriesName, texts: Sequence[str], facts: Sequence[Facts], content: Sequence[Any]) -> Step:
    before, after, size, low, high, confidence, left, first, last, *others = content
    good, between, touched, unknown, reported_at, own, baseline, controls, unsettled = others
    return Step(
        series=series,
        before=facts[before],
        after=facts[after],
        size=size,
        low=low,
        high=high,
        confidence=confidence,
        first=first,
        last=last,
        good=texts[good],
        between=tuple([texts[commit] for commit in between]),
        touched=None if touched is None else tuple([texts[commit] for commit in touched]),
        unknown=unknown,
        reported_at=texts[reported_at],
        own=_move(own),
        baseline=_move(baseline),
        controls={name: Move(*move) for name, move in controls.items()},
        left=left,
        unsettled=unsettled,
    )


def _spans(rising: Sequence[int]) -> list[list[int]]:
    """Return the first and last number of each run of consecutive numbers."""
    all_of = np.asarray(rising)
    turns = np.flatnonzero(np.diff(all_of) != 1)
    ends = zip(all_of[np.append(0, turns + 1)].tolist(), all_of[np.append(turns, -1)].tolist(), strict=True)
    return [list(span) for span in ends]


def _expanded(spans: Sequence[Sequence[int]]) -> list[int]:
    return [number for first, last in spans for number in range(first, last + 1)]


def _move_json(move: Move | None) -> list[float] | None:
    return None if move is None else [move.log, move.noise]


def _move(content: list[float] | None) -> Move | None:
    return None if content is None else Move(*content)
