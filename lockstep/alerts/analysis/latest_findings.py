"""Give the dashboard's pages the findings of the latest analysis, judged by the thresholds of now.

The detector takes seconds and hundreds of megabytes, so it never runs in the process that serves pages. If findings are
missing, an analysis is requested and pages say that findings are pending. When findings arrive, ``Findings.version``
changes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from lockstep.alerts.analysis.analysis_file import AnalysisFile
from lockstep.alerts.analysis.judging import judged
from lockstep.alerts.analysis.machine_results import series_by_name
from lockstep.alerts.analysis.runner import AnalysisRunner, AnalysisStatus
from lockstep.alerts.model import FoundChange
from lockstep.detect import Analysis
from lockstep.history.cache_folder import DamagedCache, StoreError
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.record.series_name import SeriesName
from lockstep.suite.thresholds import Thresholds, ThresholdsError, read_thresholds


class Findings:
    """Gives the dashboard's pages the findings of each machine, and requests an analysis if findings are missing.

    Args:
        cache: the store's cache folder, see ``Store.cache``.
        repo: a folder in the git repository whose commits are measured.
        packages: folders of the packages under test, relative to the repository's root.
        thresholds: the file of thresholds; ``None`` for the default thresholds.
        runner: the runner that analyses results without findings; ``None`` if another process analyses them.
    """

    def __init__(
        self,
        cache: Path,
        repo: Path,
        packages: Sequence[str] = (),
        thresholds: Path | None = None,
        runner: AnalysisRunner | None = None,
    ) -> None:
        self._thresholds_file = thresholds
        self._file = AnalysisFile(cache)
        self.repo = repo
        self.packages = tuple(packages)
        self._analyst = runner
        self._last: Mapping[tuple[str, str], float] = {}

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds now in the thresholds file; the default thresholds if the file cannot be read."""
        try:
            file = self._thresholds_file
            return _thresholds(file, file.stat().st_mtime_ns) if file else Thresholds()
        except (OSError, ThresholdsError):
            return Thresholds()

    def of_machine(self, results: Results, machine: str) -> MachineFindings | None:
        """Return the findings of a machine; ``None`` if the machine is unknown or not yet analysed.

        If it is not yet analysed, the call requests an analysis.
        """
        if machine not in results.machines:
            return None
        try:
            if (at := self._analysed_at(results)[machine]) is not None:
                return _read_findings(results, self._file, machine, self.thresholds, at)
        except StoreError:
            # The file was deleted or damaged, or an analysis of newer results has deleted these findings.
            self._last = {}
        self.request_analysis(results)
        return None

    def request_analysis(self, results: Results) -> None:
        """Start an analysis of the results if necessary; return at once."""
        if self._analyst:
            # The alerts are written after the findings, so alerts may be missing even if findings exist.
            self._analyst.request_analysis(results, missing=self._incomplete(results))

    def version(self, results: Results) -> str:
        """Return a text that changes whenever the results, their findings or the alerts of an analysis change."""
        status = self.status or AnalysisStatus()
        # The alerts are stored after the findings, shortly before the analysis succeeds.
        parts = _key(results, self.thresholds), *self._analysed_at(results).values(), status.succeeded, status.text
        return ".".join(map(str, parts))

    @property
    def status(self) -> AnalysisStatus | None:
        """Status of the last analyses; ``None`` if another process analyses the results."""
        return self._analyst.status if self._analyst else None

    @property
    def trouble(self) -> str:
        """A notice for the pages if the last analysis failed or its findings are stale; otherwise ""."""
        return self._analyst.status.text if self._analyst else ""

    @property
    def analysing(self) -> bool:
        """Whether this process runs an analysis, or waits to run one."""
        return self._analyst is not None and self._analyst.busy

    def busy(self, results: Results) -> bool:
        """Return whether findings are missing and an analysis is running."""
        return self.analysing and self._incomplete(results)

    def _incomplete(self, results: Results) -> bool:
        return None in self._analysed_at(results).values()

    def _analysed_at(self, results: Results) -> dict[str, float | None]:
        """Return when each machine was analysed, in seconds since 1970; ``None`` if it must still be analysed.

        While the disk refuses to read, the last answer stays.
        """
        try:
            self._last = self._file.analysed_at()
        except DamagedCache:
            self._last = {}
        except StoreError:
            pass
        # A machine that measured no commit of the line is not analysed.
        return {
            machine: self._last.get((machine, results.state(machine)), None if results.on_line(machine) else 0.0)
            for machine in results.machines
        }


@remembered
def _key(results: Results, thresholds: Thresholds) -> str:
    """Return a digest that changes whenever the results or the thresholds change."""
    states = [f"{machine} {results.state(machine)}" for machine in results.machines]
    texts = [*states, *(commit.hash for commit in results.commits()), repr(thresholds)]
    return blake2b("\n".join(texts).encode("utf-8", "surrogateescape"), digest_size=10).hexdigest()


@lru_cache(maxsize=8)
def _thresholds(file: Path, _stamp: int) -> Thresholds:
    return read_thresholds(file)


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

        ``after``: position of a commit; changes whose ``last`` is at or before it are left out.
        """
        changes = self._changes.get(name, ())
        return [change for change in changes if change.last > after and not change.suppressed]

    def behaviour(self, name: SeriesName, version: int | None = None) -> Analysis | None:
        """Return the noise and levels of a series; ``None`` if the detector does not follow the series.

        ``version``: index of the benchmark version; ``None`` for the newest.
        """
        number, newest = self._newest.get(name, (0, 0))
        key = number, newest if version is None else version
        found = self._found.get(key) or self._file.found(self._analysis, *key)
        if found is not None:
            self._found[key] = found
        return found


@remembered
def _read_findings(
    results: Results, file: AnalysisFile, machine: str, thresholds: Thresholds, _analysed_at: float
) -> MachineFindings:
    return MachineFindings(file, results, machine, thresholds)
