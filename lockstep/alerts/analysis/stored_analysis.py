"""Read and write the analyses of machines in the file of analyses: changes, alerts, and the detector's states.

Changes, and what the detector found in a series, are stored as JSON.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from lockstep.alerts.analysis.analysis_file import AnalysisFile, MissingAnalyses, packed, unpacked
from lockstep.alerts.database.alert_as_json import cause_from_json, cause_json, from_json, to_json
from lockstep.alerts.model import Alert, FoundChange
from lockstep.detect import Analysis, Change, Level, Noise
from lockstep.detect.series_state import SeriesState
from lockstep.record.series_name import SeriesName

#: Seconds before analyses of earlier results are deleted, because pages may still read them.
_KEEP_S = 600.0

#: Fields that many changes share, so that each value is stored once, and how it is converted to JSON and back.
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
        id: the number of the analysis in the file; 0 if it is not stored.
    """

    machine: str
    changes: tuple[FoundChange, ...]
    freshness: tuple[Alert, ...]
    series: Mapping[tuple[str, str], int]
    id: int = 0


@dataclass(frozen=True)
class DetectedSeries:
    """What the detector found in a series, and the state from which it continues: a row of ``detector_state``.

    Attributes:
        series, version: the number of the series and the index of its benchmark version, see ``Followed``.
        length: number of points that were analysed.
        checksum: checksum of these points.
    """

    series: int
    version: int
    length: int
    checksum: int
    found: Analysis
    state: SeriesState

    @property
    def noise(self) -> float:
        """Run-to-run noise (standard deviation of the logarithm); NaN if unknown or without logarithms."""
        return self.found.noise.scale if self.found.noise.measure == "ratio" else math.nan


#: What an earlier analysis left of a series: length, checksum and state, see ``DetectedSeries``.
Known = tuple[int, int, bytes]


def _changes_json(changes: Iterable[FoundChange]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the shared values, each once, and the fields of each change, which refer to shared values by index."""
    places: dict[str, dict[Hashable, int]] = {name: {} for name in _SHARED}
    rows = [
        vars(change)
        | {name: of_name.setdefault(getattr(change, name), len(of_name)) for name, of_name in places.items()}
        for change in changes
    ]
    return {name: [to(part) for part in places[name]] for name, (to, _) in _SHARED.items()}, rows


def _changes_from_json(parts: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> tuple[FoundChange, ...]:
    """Return the changes that ``_changes_json`` converted."""
    shared = {name: [back(part) for part in parts[name]] for name, (_, back) in _SHARED.items()}
    return tuple(FoundChange(**{**row, **{name: shared[name][row[name]] for name in shared}}) for row in rows)


def found_json(found: Analysis) -> str:
    """Return what the detector found in a series as JSON, for ``found_from_json``: each object as a list."""
    return json.dumps(found, default=lambda part: [getattr(part, name) for name in part.__slots__])


def found_from_json(text: str) -> Analysis:
    """Return what ``found_json`` converted."""
    changes, reports, levels, noise, mde, unconfirmed = json.loads(text)
    return Analysis(
        changes=tuple(Change(*change) for change in changes),
        reports=tuple((index, newest) for index, newest in reports),
        levels=tuple(Level(*level) for level in levels),
        noise=Noise(*noise),
        mde=mde,
        unconfirmed=unconfirmed and Change(*unconfirmed),
    )


def read_analysis(file: AnalysisFile, machine: str, state: str, ranges: str | None = None) -> MachineAnalysis | None:
    """Return the newest analysis of a machine; ``None`` if the file has none of these results.

    Args:
        state: see ``Results.state``.
        ranges: a text that changes whenever the ranges of commits may; ``None`` for any ranges.
    """
    try:
        with file.reading() as connection:
            query = "SELECT id, content FROM analysis WHERE (machine, state) = (?, ?) AND ranges = coalesce(?, ranges)"
            row = connection.execute(f"{query} ORDER BY id DESC", (machine, state, ranges)).fetchone()
            if row is None:
                return None
            parts, changes, alerts, series = json.loads(unpacked(row[1]))
            return MachineAnalysis(
                machine,
                _changes_from_json(parts, changes),
                tuple(map(from_json, alerts)),
                {(family, suite): number for family, suite, number in series},
                row[0],
            )
    except MissingAnalyses:
        return None


def read_known(file: AnalysisFile, machine: str) -> dict[tuple[int, int], Known]:
    """Return what the last analysis of a machine left, by the number of the series and its version."""
    try:
        with file.reading() as connection:
            rows = connection.execute(
                "SELECT series, version, length, checksum, state FROM detector_state WHERE analysis ="
                " (SELECT max(id) FROM analysis WHERE machine = ?)",
                (machine,),
            )
            return {
                (series, version): (length, checksum, unpacked(state))
                for series, version, length, checksum, state in rows
            }
    except MissingAnalyses:
        return {}


def write_analysis(
    file: AnalysisFile, analysis: MachineAnalysis, state: str, ranges: str, detected: Sequence[DetectedSeries]
) -> None:
    """Write an analysis of a machine, for ``read_analysis`` and ``read_known``; delete those that it replaces."""
    parts, changes = _changes_json(analysis.changes)
    alerts = [to_json(alert) for alert in analysis.freshness]
    series = [[*name, number] for name, number in analysis.series.items()]
    content = packed(json.dumps([parts, changes, alerts, series]).encode())
    with file.writing() as connection:
        cursor = connection.execute(
            "INSERT OR IGNORE INTO analysis (machine, state, ranges, at, content) VALUES (?, ?, ?, ?, ?)",
            (analysis.machine, state, ranges, time.time(), content),
        )
        if not cursor.rowcount:
            return
        number = cursor.lastrowid
        connection.executemany(
            "INSERT INTO detector_state VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    *(number, series.series, series.version, series.length, series.checksum, series.noise),
                    *(packed(series.state.to_bytes(), level=0), packed(found_json(series.found).encode())),
                )
                for series in detected
            ),
        )
        old = "DELETE FROM analysis WHERE machine = ? AND id != ? AND at < ?"
        connection.execute(old, (analysis.machine, number, time.time() - _KEEP_S))


def analysed_at(file: AnalysisFile) -> dict[tuple[str, str], float]:
    """Return when each machine was analysed, in seconds since 1970, by the machine and ``Results.state``."""
    try:
        with file.reading() as connection:
            rows = connection.execute("SELECT machine, state, max(at) FROM analysis GROUP BY machine, state")
            return {(machine, state): at for machine, state, at in rows}
    except MissingAnalyses:
        return {}
