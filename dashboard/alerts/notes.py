"""What an analysis notes of a machine for the next one, as JSON: changes with their surroundings, and reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboard.alerts.freshness import Said
from dashboard.alerts.steps import Facts, Move, SeriesName, Step
from dashboard.changes import Change, Noise
from dashboard.kept import write_whole

#: What says where a change lies; its size may still move with every point.
Place = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class Noted:
    """A followed series with changes.

    Attributes:
        length: points that it had.
        noise: of them.
        steps: by the place of each change, oldest first.
    """

    length: int
    noise: Noise
    steps: Mapping[Place, Step]


@dataclass(frozen=True)
class Entry:
    """A series of the store.

    Attributes:
        row: name of the followed series that its newest points belong to, "" if it is not followed.
        version: of the ruler of those points.
        paired: whether the paired ratio is followed, in place of the number.
        commits, states, versions: what it reported, see ``dashboard.alerts.freshness.Reports``.
    """

    row: str
    version: str
    paired: bool
    commits: tuple[int, ...]
    states: tuple[Said, ...]
    versions: tuple[str, ...]


@dataclass(frozen=True)
class Notes:
    """All of a machine.

    Attributes:
        state: of its results, see ``Results.state``. commits: how many it had.
        ranges: the repository that was asked.
        baselines: by suite.
        measured: positions of the commits that measured something, by family.
        series: of the store, by name. followed: how many rows the detector has.
        changed: by row.
    """

    state: str
    commits: int
    ranges: str
    baselines: Mapping[str, str]
    measured: Mapping[str, list[int]]
    series: Mapping[str, Entry]
    followed: int
    changed: Mapping[str, Noted]


def place_of(change: Change) -> Place:
    """Where it lies."""
    return change.index, change.last_before, change.earliest, change.latest, change.reported_at


def write_notes(path: Path, notes: Notes) -> None:
    """Keep them."""
    content = vars(notes) | {
        "series": {name: list(vars(entry).values()) for name, entry in notes.series.items()},
        "changed": {row: _noted_json(noted) for row, noted in notes.changed.items()},
    }
    write_whole(path, lambda file: file.write(json.dumps(content).encode("utf-8", "surrogatepass")))


def read_notes(path: Path) -> Notes | None:
    """What was kept; ``None`` if there is nothing, or nothing that can be read."""
    try:
        content = json.loads(path.read_bytes())
        series = {
            name: Entry(row, version, bool(paired), *(tuple(one) for one in reports))
            for name, (row, version, paired, *reports) in content["series"].items()
        }
        changed = {row: _noted(noted) for row, noted in content["changed"].items()}
        return Notes(**{**content, "series": series, "changed": changed})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _noted_json(noted: Noted) -> dict[str, Any]:
    noise = [noted.noise.scale, noted.noise.kind, list(noted.noise.modes), noted.noise.slope]
    return {
        "length": noted.length,
        "noise": noise,
        "steps": [[*at, _step_json(one)] for at, one in noted.steps.items()],
    }


def _noted(content: Mapping[str, Any]) -> Noted:
    scale, kind, modes, slope = content["noise"]
    steps = {(a, b, c, d, e): _step(step) for a, b, c, d, e, step in content["steps"]}
    return Noted(content["length"], Noise(scale, kind, tuple(modes), slope), steps)


def _step_json(step: Step) -> dict[str, Any]:
    content = dict(vars(step))
    content |= {name: vars(content[name]) for name in ("series", "before", "after")}
    content |= {name: _move_json(content[name]) for name in ("own", "baseline")}
    return content | {"controls": {name: _move_json(move) for name, move in step.controls.items()}}


def _step(content: Mapping[str, Any]) -> Step:
    touched = content["touched"]
    return Step(
        **{
            **content,
            "series": SeriesName(**content["series"]),
            "before": Facts(**content["before"]),
            "after": Facts(**content["after"]),
            "between": tuple(content["between"]),
            "touched": None if touched is None else tuple(touched),
            "own": _move(content["own"]),
            "baseline": _move(content["baseline"]),
            "controls": {name: _move(move) for name, move in content["controls"].items()},
        }
    )


def _move_json(move: Move | None) -> list[float] | None:
    return None if move is None else [move.log, move.noise]


def _move(content: list[float] | None) -> Move | None:
    return None if content is None else Move(*content)
