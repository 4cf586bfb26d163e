"""Read the findings of one machine for the dashboard's pages, and judge them by the thresholds.

A page reads only the changes and the behaviour of the series that it shows.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from lockstep.alerts.analysis.analysis_file import AnalysisFile, MissingAnalyses, unpacked
from lockstep.alerts.analysis.followed_series import series_by_name
from lockstep.alerts.analysis.judging import judged
from lockstep.alerts.analysis.stored_analysis import change_from_json, found_from_json, shared_parts
from lockstep.alerts.model import FoundChange
from lockstep.detect import Analysis
from lockstep.history.snapshot import Results
from lockstep.record.series_name import SeriesName
from lockstep.suite.thresholds import Thresholds

#: The noise of a series, the smallest change that the detector can find in it, and its levels.
Behaviour = Analysis


class MachineFindings:
    """The findings of one machine. Each change, and the behaviour of each series, is read from the file on first use.

    Attributes:
        changed: the series that have a change.
        noise: run-to-run noise of each followed series (standard deviation of the logarithm); NaN if unknown. A series
            with several benchmark versions has that of the newest.

    Raises:
        MissingAnalyses: these results are not analysed.
        StoreError: see ``AnalysisFile.reading``. The methods raise it too.
    """

    def __init__(self, file: AnalysisFile, results: Results, machine: str, thresholds: Thresholds) -> None:
        self._file = file
        self._thresholds = thresholds
        self._found: dict[tuple[int, int], Analysis] = {}
        self._judged: dict[SeriesName, Sequence[FoundChange]] = {}
        #: The place and the field ``last`` of each change.
        self._places: dict[SeriesName, list[tuple[int, int]]] = defaultdict(list)
        # What happened before a branch forked is said of the line that it forked from.
        self._own = {commit.hash for commit in results.commits(machine)[results.begins(machine) :]}
        with file.reading() as connection:
            query = "SELECT id, content FROM analysis WHERE (machine, state) = (?, ?) ORDER BY id DESC LIMIT 1"
            row = connection.execute(query, (machine, results.state(machine))).fetchone()
            if row is None and results.on_line(machine):
                raise MissingAnalyses(f"there are no findings of {machine} for these results")
            self._analysis: int = row[0] if row else 0
            self._parts = shared_parts(json.loads(unpacked(row[1]))[0]) if row else {}
            scales = connection.execute(
                "SELECT series, version, noise FROM detector_state WHERE analysis = ? ORDER BY version",
                (self._analysis,),
            ).fetchall()
            places = connection.execute(
                'SELECT place, series, last, "commit" FROM finding WHERE analysis = ? ORDER BY series, place',
                (self._analysis,),
            ).fetchall()
        numbers = results.numbers(machine)
        names = {numbers[series]: name for name, series in series_by_name(results, machine).items()}
        #: The number and the newest benchmark version of each series.
        self._newest = {names[number]: (number, version) for number, version, _ in scales}
        self.noise: Mapping[SeriesName, float] = {
            names[number]: math.nan if scale is None else scale for number, _, scale in scales
        }
        self.changed: Collection[SeriesName] = dict.fromkeys(
            self._parts["series"][series] for _, series, _, commit in places if commit in self._own
        )
        for place, series, last, _ in places:
            self._places[self._parts["series"][series]].append((place, last))

    @property
    def changes(self) -> tuple[FoundChange, ...]:
        """All changes, reported and suppressed, ordered by series and then from old to new."""
        return tuple(change for name in self.changed for change in self._of(name))

    def reported(self, name: SeriesName, after: int = -1) -> list[FoundChange]:
        """Return the reported changes of a series, oldest first.

        Args:
            after: position of a commit; changes whose ``last`` is at or before it are left out.
        """
        if all(last <= after for _, last in self._places.get(name, ())):
            return []
        return [change for change in self._of(name) if change.last > after and not change.suppressed]

    def _of(self, name: SeriesName) -> Sequence[FoundChange]:
        """Return the changes of a series, oldest first."""
        if name not in self._judged:
            with self._file.reading() as connection:
                query = "SELECT content FROM finding WHERE (analysis, place) = (?, ?)"
                places = self._places[name]
                rows = [connection.execute(query, (self._analysis, place)).fetchone() for place, _ in places]
                if None in rows:
                    raise MissingAnalyses("these findings were replaced by newer ones: load the page again")
                found = [change_from_json(json.loads(unpacked(content)), self._parts) for (content,) in rows]
            own = (change for change in judged(found, self._thresholds) if change.commit in self._own)
            self._judged[name] = sorted(own, key=lambda change: change.last)
        return self._judged[name]

    def behaviour(self, name: SeriesName, version: int | None = None) -> Behaviour | None:
        """Return the noise and levels of a series; ``None`` if the detector does not follow the series.

        Args:
            version: index of the benchmark version; ``None`` for the newest.
        """
        number, newest = self._newest.get(name, (0, 0))
        return self._behaviours([(number, newest if version is None else version)])[0]

    def behaviours(self, names: Sequence[SeriesName]) -> dict[SeriesName, Behaviour]:
        """Return the noise and levels of several series by name, without the series that have none."""
        known = [name for name in names if name in self._newest]
        found = zip(known, self._behaviours([self._newest[name] for name in known]), strict=True)
        return {name: behaviour for name, behaviour in found if behaviour is not None}

    def _behaviours(self, keys: Sequence[tuple[int, int]]) -> list[Behaviour | None]:
        missing = [key for key in keys if key not in self._found]
        if missing:
            with self._file.reading() as connection:
                query = "SELECT found FROM detector_state WHERE (analysis, series, version) = (?, ?, ?)"
                for key in missing:
                    row = connection.execute(query, (self._analysis, *key)).fetchone()
                    if row is not None:
                        self._found[key] = found_from_json(unpacked(row[0]).decode())
        return [self._found.get(key) for key in keys]
