"""Read and write the analyses of machines, and the detector's state of their series, in the file of analyses."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.alerts.analysis.analysis_file import AnalysisFile, MissingAnalyses, packed, unpacked
from lockstep.alerts.analysis.detection import DetectedSeries
from lockstep.alerts.analysis.stored_analysis import MachineAnalysis, analysis_from_json, analysis_json


def read_analysis(file: AnalysisFile, machine: str, state: str, ranges: str) -> MachineAnalysis | None:
    """Return the analysis of a machine; ``None`` if the file has none of these results.

    Args:
        state: see ``Results.state``.
        ranges: a text that changes whenever the ranges of commits may.
    """
    try:
        with file.reading() as connection:
            query = "SELECT content FROM analysis WHERE (machine, state, ranges) = (?, ?, ?)"
            row = connection.execute(query, (machine, state, ranges)).fetchone()
            return analysis_from_json(unpacked(row[0]).decode()) if row else None
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
            return {
                key: DetectedSeries(key, length, checksum, noise, unpacked(state), unpacked(found).decode())
                for key, length, checksum, noise, state, found in rows
            }
    except MissingAnalyses:
        return {}


def write_analysis(
    file: AnalysisFile, analysis: MachineAnalysis, state: str, ranges: str, detected: Sequence[DetectedSeries]
) -> None:
    """Write an analysis of a machine, for ``read_analysis`` and ``read_detected``."""
    content = packed(analysis_json(analysis).encode())
    with file.writing() as connection:
        row = (analysis.machine, state, ranges, content)
        cursor = connection.execute(
            "INSERT OR IGNORE INTO analysis (machine, state, ranges, content) VALUES (?, ?, ?, ?)", row
        )
        if cursor.rowcount:
            connection.executemany(
                "INSERT INTO detector_state (analysis, series, length, checksum, noise, state, found)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        *(cursor.lastrowid, series.series, series.length, series.checksum, series.noise),
                        *(packed(series.state, level=0), packed(series.found.encode())),
                    )
                    for series in detected
                ),
            )
