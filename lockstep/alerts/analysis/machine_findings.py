"""Publish the findings of an analysis, and read those of one machine for the dashboard's pages.

A page reads only the changes and the behaviour of the series that it shows.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields

from lockstep.alerts.analysis.analysis_file import AnalysisFile, MissingAnalyses, packed, unpacked
from lockstep.alerts.analysis.followed_series import key_of, name_in
from lockstep.alerts.analysis.stored_analysis import change_from_json, changes_json, found_from_json, shared_parts
from lockstep.alerts.model import FoundChange
from lockstep.detect import Analysis
from lockstep.record.series_name import SeriesName

#: Seconds before findings of earlier results are deleted, because pages may still read them.
_KEEP_S = 600.0

#: The noise of a series, the smallest change that the detector can find in it, and its levels.
Behaviour = Analysis


class MachineFindings:
    """The findings of one machine. Each change, and the behaviour of each series, is read from the file on first use.

    Args:
        key: see ``publish``.

    Attributes:
        changed: the series that have a change.
        noise: run-to-run noise of each followed series (standard deviation of the logarithm); NaN if unknown. A series
            with several benchmark versions has that of the newest.

    Raises:
        MissingAnalyses: there are no such findings.
        StoreError: see ``AnalysisFile.reading``. The methods raise it too.
    """

    def __init__(self, file: AnalysisFile, machine: str, key: str) -> None:
        self._file = file
        self._found: dict[str, Analysis] = {}
        self._changes: dict[SeriesName, list[tuple[int, int, bool]]] = defaultdict(list)
        with file.reading() as connection:
            row = connection.execute(
                "SELECT id, analysis, content FROM publication WHERE (key, machine) = (?, ?)", (key, machine)
            ).fetchone()
            if row is None:
                raise MissingAnalyses(f"there are no findings of {machine} for these results")
            self._id, self._analysis, content = row
            self._parts = shared_parts(json.loads(unpacked(content)))
            scales = connection.execute(
                "SELECT series, noise FROM detector_state WHERE analysis = ?", (self._analysis,)
            ).fetchall()
            places = connection.execute(
                "SELECT place, series, last, suppressed FROM finding WHERE publication = ?"
                " ORDER BY series, last, place",
                (self._id,),
            ).fetchall()
        by_version = sorted((name_in(key), key, scale) for key, scale in scales)
        self._keys = {name: key for (name, _), key, _ in by_version}
        self.noise: Mapping[SeriesName, float] = {
            name: math.nan if scale is None else scale for (name, _), _, scale in by_version
        }
        for place, series, last, suppressed in places:
            self._changes[self._parts["series"][series]].append((place, last, bool(suppressed)))
        self.changed: Collection[SeriesName] = self._changes.keys()

    @property
    def changes(self) -> tuple[FoundChange, ...]:
        """All changes, reported and suppressed, ordered by series and then from old to new."""
        return tuple(self._read([place for places in self._changes.values() for place, _, _ in places]))

    def reported(self, name: SeriesName, after: int = -1) -> list[FoundChange]:
        """Return the reported changes of a series, oldest first.

        Args:
            after: position of a commit; changes whose ``last`` is at or before it are left out.
        """
        places = self._changes.get(name, ())
        chosen = [place for place, last, suppressed in places if last > after and not suppressed]
        return self._read(chosen) if chosen else []

    def _read(self, places: Sequence[int]) -> list[FoundChange]:
        with self._file.reading() as connection:
            query = "SELECT content FROM finding WHERE (publication, place) = (?, ?)"
            rows = [connection.execute(query, (self._id, place)).fetchone() for place in places]
            if None in rows:
                raise MissingAnalyses("these findings were replaced by newer ones: load the page again")
            return [change_from_json(json.loads(unpacked(content)), self._parts) for (content,) in rows]

    def behaviour(self, name: SeriesName, version: int | None = None) -> Behaviour | None:
        """Return the noise and levels of a series; ``None`` if the detector does not follow the series.

        Args:
            version: index of the benchmark version; ``None`` for the newest.
        """
        if version is None:
            return self.behaviours([name]).get(name)
        return self._behaviours([key_of(name, version)])[0]

    def behaviours(self, names: Sequence[SeriesName]) -> dict[SeriesName, Behaviour]:
        """Return the noise and levels of several series by name, without the series that have none."""
        known = [name for name in names if name in self._keys]
        found = zip(known, self._behaviours([self._keys[name] for name in known]), strict=True)
        return {name: behaviour for name, behaviour in found if behaviour is not None}

    def _behaviours(self, keys: Sequence[str]) -> list[Behaviour | None]:
        missing = [key for key in keys if key not in self._found]
        if missing:
            with self._file.reading() as connection:
                query = "SELECT found FROM detector_state WHERE (analysis, series) = (?, ?)"
                for key in missing:
                    row = connection.execute(query, (self._analysis, key)).fetchone()
                    if row is not None:
                        self._found[key] = found_from_json(unpacked(row[0]).decode())
        return [self._found.get(key) for key in keys]


def publish(
    file: AnalysisFile, key: str, changes: Mapping[str, Sequence[FoundChange]], states: Mapping[str, str]
) -> None:
    """Write the findings of all machines for ``MachineFindings``, unless the file has them.

    Findings of earlier results and analyses that nobody needs are deleted.

    Args:
        key: a text that changes whenever the findings may.
        changes: the changes by machine.
        states: the state of each machine's results, see ``Results.state``.
    """
    with file.writing() as connection:
        for machine, state in states.items():
            cursor = connection.execute(
                "INSERT OR IGNORE INTO publication (key, machine, at, analysis)"
                " VALUES (?, ?, ?, (SELECT max(id) FROM analysis WHERE (machine, state) = (?, ?)))",
                (key, machine, time.time(), machine, state),
            )
            if not cursor.rowcount:
                continue
            parts, rows = changes_json([*changes.get(machine, ())])
            connection.execute(
                "UPDATE publication SET content = ? WHERE id = ?",
                (packed(json.dumps(parts).encode()), cursor.lastrowid),
            )
            connection.executemany(
                "INSERT INTO finding VALUES (?, ?, ?, ?, ?, ?)",
                (
                    (
                        cursor.lastrowid,
                        place,
                        row[_SERIES],
                        row[_LAST],
                        bool(row[_SUPPRESSED]),
                        packed(json.dumps(row).encode()),
                    )
                    for place, row in enumerate(rows)
                ),
            )
        old = time.time() - _KEEP_S
        connection.execute("DELETE FROM publication WHERE key != ? AND at < ?", (key, old))
        connection.execute(
            "DELETE FROM analysis WHERE id NOT IN (SELECT max(id) FROM analysis GROUP BY machine)"
            " AND id NOT IN (SELECT analysis FROM publication WHERE analysis IS NOT NULL)"
        )
    file.shorten_log()


_FIELDS = [field.name for field in fields(FoundChange)]
#: Places of fields in a stored change, see ``changes_json``.
_SERIES, _LAST, _SUPPRESSED = (_FIELDS.index(name) for name in ("series", "last", "suppressed"))


def published_at(file: AnalysisFile, key: str) -> float:
    """Return when findings with this key were published, in seconds since 1970; 0.0 if there are none."""
    try:
        with file.reading() as connection:
            [at] = connection.execute("SELECT max(at) FROM publication WHERE key = ?", (key,)).fetchone()
            return at or 0.0
    except MissingAnalyses:
        return 0.0
