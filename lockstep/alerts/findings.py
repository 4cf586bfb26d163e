"""Give the pages the findings of the latest analysis.

The detector takes seconds and hundreds of megabytes, so it never runs in the process that serves pages. Without
findings, an analysis is requested and pages say that findings are pending. ``version`` changes when findings arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from lockstep.alerts.analysis_cache import AnalysisCache, key_of
from lockstep.alerts.analysis_files import MachineFindings
from lockstep.alerts.analysis_runner import AnalysisRunner
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.suite.thresholds import Thresholds, ThresholdsError, read_thresholds


class Findings:
    """Findings of each machine.

    Args:
        cache: the store's cache folder, see ``Store.cache``.
        repo: a folder in the git repository that knows which commits lie between two.
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
        self._file = thresholds
        self._files = AnalysisCache(cache)
        self._repo = repo
        self._packages = tuple(packages)
        self._analyst = runner

    @property
    def thresholds(self) -> Thresholds:
        """The current thresholds; the defaults if the file cannot be read, which the analysis reports."""
        try:
            return _thresholds(self._file, self._file.stat().st_mtime_ns) if self._file else Thresholds()
        except (OSError, ThresholdsError):
            return Thresholds()

    def of_machine(self, results: Results, machine: str) -> MachineFindings | None:
        """Return the findings of a machine; ``None`` if they do not exist yet, and for an unknown machine."""
        if machine not in results.machines:
            return None
        stamp = self._stamp(results)
        if stamp:
            try:
                return _read_findings(results, self._files, self._key(results), machine, stamp)
            except (OSError, ValueError):
                # Damaged, or deleted by an analysis of newer results. Deleting "done" requests a new analysis.
                self._files.done(self._key(results)).unlink(missing_ok=True)
        self.request_analysis(results)
        return None

    def request_analysis(self, results: Results) -> None:
        """Start an analysis of the results if necessary; return at once."""
        if self._analyst:
            # The alerts are written after the findings, so alerts may be missing even if findings exist.
            self._analyst.request_analysis(results, missing=not self._stamp(results))

    def version(self, results: Results) -> str:
        """Return a text that changes whenever the results or their findings change."""
        return f"{self._key(results)}.{self._stamp(results)}.{self.trouble}"

    @property
    def trouble(self) -> str:
        """Return why the analysis fails or is stale; "" if there is no trouble, or if another process runs the
        analysis.
        """
        return self._analyst.status.text if self._analyst else ""

    def busy(self, results: Results) -> bool:
        """Return whether findings are missing and an analysis is running."""
        return not self._stamp(results) and self._analyst is not None and self._analyst.busy

    def _key(self, results: Results) -> str:
        return _key(results, self.thresholds, self._repo, self._packages)

    def _stamp(self, results: Results) -> int:
        """Return when the findings were written, in ns since 1970; 0 if there are none."""
        try:
            return self._files.done(self._key(results)).stat().st_mtime_ns
        except OSError:
            return 0


_key = remembered(key_of)


@lru_cache(maxsize=8)
def _thresholds(file: Path, _stamp: int) -> Thresholds:
    return read_thresholds(file)


@remembered
def _read_findings(results: Results, files: AnalysisCache, key: str, machine: str, _stamp: int) -> MachineFindings:
    return MachineFindings(files.changes(machine, key), files.detector(machine), results.state(machine))
