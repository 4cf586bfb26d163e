"""Read the findings of one machine for the dashboard's pages, and judge them by the thresholds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping

from lockstep.alerts.analysis.analysis_file import AnalysisFile
from lockstep.alerts.analysis.judging import judged
from lockstep.alerts.analysis.machine_results import series_by_name
from lockstep.alerts.model import FoundChange
from lockstep.detect import Analysis
from lockstep.history.cache_folder import StoreError
from lockstep.history.snapshot import Results
from lockstep.record.series_name import SeriesName
from lockstep.suite.thresholds import Thresholds


class MachineFindings:
    """The findings of one machine. The behaviour of each series is read from the file on first use.

    Attributes:
        noise: run-to-run noise of each followed series (standard deviation of the logarithm); NaN if unknown. A series
            with several benchmark versions has that of the newest.

    Raises:
        StoreError: these results are not analysed, or see ``AnalysisFile.reading``. The methods raise it too.
    """

    def __init__(self, file: AnalysisFile, results: Results, machine: str, thresholds: Thresholds) -> None:
        self._file = file
        self._found: dict[tuple[int, int], Analysis] = {}
        analysis = file.newest(machine, results.state(machine))
        if analysis is None and results.on_line(machine):
            raise StoreError(f"there are no findings of {machine} for these results")
        self._analysis = analysis.id if analysis else 0
        self._changes: dict[SeriesName, list[FoundChange]] = defaultdict(list)
        for change in judged(analysis.changes if analysis else (), thresholds):
            self._changes[change.series].append(change)
        for changes in self._changes.values():
            changes.sort(key=lambda change: change.last)
        scales = file.noise(self._analysis)
        numbers = results.numbers(machine)
        names = {numbers[series]: name for name, series in series_by_name(results, machine).items()}
        #: The number and the newest benchmark version of each series.
        self._newest = {names[number]: (number, version) for number, version, _ in scales}
        self.noise: Mapping[SeriesName, float] = {
            names[number]: math.nan if scale is None else scale for number, _, scale in scales
        }

    @property
    def changed(self) -> Collection[SeriesName]:
        """The series that have a change."""
        return self._changes.keys()

    @property
    def changes(self) -> tuple[FoundChange, ...]:
        """All changes, reported and suppressed, ordered by series and then from old to new."""
        return tuple(change for changes in self._changes.values() for change in changes)

    def reported(self, name: SeriesName, after: int = -1) -> list[FoundChange]:
        """Return the reported changes of a series, oldest first.

        Args:
            after: position of a commit; changes whose ``last`` is at or before it are left out.
        """
        changes = self._changes.get(name, ())
        return [change for change in changes if change.last > after and not change.suppressed]

    def behaviour(self, name: SeriesName, version: int | None = None) -> Analysis | None:
        """Return the noise and levels of a series; ``None`` if the detector does not follow the series.

        Args:
            version: index of the benchmark version; ``None`` for the newest.
        """
        number, newest = self._newest.get(name, (0, 0))
        key = number, newest if version is None else version
        if key not in self._found:
            found = self._file.found(self._analysis, *key)
            if found is None:
                return None
            self._found[key] = found
        return self._found[key]
