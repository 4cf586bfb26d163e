"""Read and write the analyses of machines, with the detector's state of their series, in the file of analyses."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence

from lockstep.alerts.analysis.analysis_file import AnalysisFile, MissingAnalyses, packed, unpacked
from lockstep.alerts.analysis.detection import DetectedSeries
from lockstep.alerts.analysis.stored_analysis import MachineAnalysis, change_from_json, changes_json, shared_parts
from lockstep.alerts.database.alert_as_json import from_json, to_json

#: Seconds before analyses of earlier results are deleted, because pages may still read them.
_KEEP_S = 600.0


def read_analysis(file: AnalysisFile, machine: str, state: str, ranges: str) -> MachineAnalysis | None:
    """Return the analysis of a machine; ``None`` if the file has none of these results.

    Args:
        state: see ``Results.state``.
        ranges: a text that changes whenever the ranges of commits may.
    """
    try:
        with file.reading() as connection:
            query = "SELECT id, content FROM analysis WHERE (machine, state, ranges) = (?, ?, ?)"
            row = connection.execute(query, (machine, state, ranges)).fetchone()
            if row is None:
                return None
            parts, alerts, series = json.loads(unpacked(row[1]))
            shared = shared_parts(parts)
            rows = connection.execute("SELECT content FROM finding WHERE analysis = ? ORDER BY place", (row[0],))
            return MachineAnalysis(
                machine,
                tuple([change_from_json(json.loads(unpacked(content)), shared) for (content,) in rows]),
                tuple(map(from_json, alerts)),
                {(family, suite): number for family, suite, number in series},
            )
    except MissingAnalyses:
        return None


def is_analysed(file: AnalysisFile, machine: str, state: str) -> bool:
    """Return whether the file has an analysis of a machine's results."""
    try:
        with file.reading() as connection:
            query = "SELECT 1 FROM analysis WHERE (machine, state) = (?, ?)"
            return connection.execute(query, (machine, state)).fetchone() is not None
    except MissingAnalyses:
        return False


def read_detected(file: AnalysisFile, machine: str) -> dict[str, DetectedSeries]:
    """Return what the detector found in the last analysis of a machine, by the key of the series."""
    try:
        with file.reading() as connection:
            rows = connection.execute(
                "SELECT series, length, checksum, noise, state, found FROM detector_state WHERE analysis ="
                " (SELECT max(id) FROM analysis WHERE machine = ?)",
                (machine,),
            )
            # SQLite stores NaN as NULL.
            return {
                key: DetectedSeries(
                    *(key, length, checksum, math.nan if noise is None else noise),
                    *(unpacked(state), unpacked(found).decode()),
                )
                for key, length, checksum, noise, state, found in rows
            }
    except MissingAnalyses:
        return {}


def write_analysis(
    file: AnalysisFile, analysis: MachineAnalysis, state: str, ranges: str, detected: Sequence[DetectedSeries]
) -> None:
    """Write an analysis of a machine, for ``read_analysis`` and ``read_detected``."""
    parts, changes = changes_json(analysis.changes)
    alerts = [to_json(alert) for alert in analysis.freshness]
    series = [[*name, number] for name, number in analysis.series.items()]
    content = packed(json.dumps([parts, alerts, series]).encode())
    with file.writing() as connection:
        cursor = connection.execute(
            "INSERT OR IGNORE INTO analysis (machine, state, ranges, at, content) VALUES (?, ?, ?, ?, ?)",
            (analysis.machine, state, ranges, time.time(), content),
        )
        if not cursor.rowcount:
            return
        number = cursor.lastrowid
        connection.executemany(
            "INSERT INTO detector_state (analysis, series, length, checksum, noise, state, found)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    *(number, series.series, series.length, series.checksum, series.noise),
                    *(packed(series.state, level=0), packed(series.found.encode())),
                )
                for series in detected
            ),
        )
        connection.executemany(
            "INSERT INTO finding VALUES (?, ?, ?, ?, ?, ?)",
            (
                (number, place, row["series"], change.last, change.commit, packed(json.dumps(row).encode()))
                for place, (change, row) in enumerate(zip(analysis.changes, changes, strict=True))
            ),
        )


def publish(file: AnalysisFile, key: str) -> None:
    """Write that all machines are analysed, and delete older analyses that nobody needs.

    Args:
        key: a text that changes whenever the findings may.
    """
    with file.writing() as connection:
        connection.execute("INSERT OR IGNORE INTO publication VALUES (?, ?)", (key, time.time()))
        old = time.time() - _KEEP_S
        connection.execute("DELETE FROM publication WHERE key != ? AND at < ?", (key, old))
        connection.execute(
            "DELETE FROM analysis WHERE id NOT IN (SELECT max(id) FROM analysis GROUP BY machine) AND at < ?", (old,)
        )
    file.shorten_log()


def published_at(file: AnalysisFile, key: str) -> float:
    """Return when this key was published, in seconds since 1970; 0.0 if it was not."""
    try:
        with file.reading() as connection:
            [at] = connection.execute("SELECT max(at) FROM publication WHERE key = ?", (key,)).fetchone()
            return at or 0.0
    except MissingAnalyses:
        return 0.0
