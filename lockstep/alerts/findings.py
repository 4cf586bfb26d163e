"""What was found in the results that are shown, as the last analysis left it in files.

The detector never runs in the process that serves pages: it takes seconds and hundreds of megabytes that pages
should have. Where nothing is found yet, somebody is asked to look, pages say so, and ``version`` changes when it is
there.
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
    """What is found on each machine.

    Args:
        cache: of the store, see ``Store.cache``.
        repo: a folder in the git repository that tells which commits lie between two.
        packages: folders of what is measured, relative to the repository's root.
        thresholds: file that says what counts as a change; without it the defaults do.
        analyst: who looks where nothing is found yet; ``None``: others do.
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
        self._kept = AnalysisCache(cache)
        self._repo = repo
        self._packages = tuple(packages)
        self._analyst = runner

    @property
    def thresholds(self) -> Thresholds:
        """What counts as a change now; the defaults where the file cannot be read, of which the analysis tells."""
        try:
            return _thresholds(self._file, self._file.stat().st_mtime_ns) if self._file else Thresholds()
        except (OSError, ThresholdsError):
            return Thresholds()

    def picture(self, results: Results, machine: str) -> MachineFindings | None:
        """What is found on a machine; ``None`` while it is being looked for, and for an unknown machine."""
        if machine not in results.machines:
            return None
        stamp = self._stamp(results)
        if stamp:
            try:
                return _shown(results, self._kept, self._key(results), machine, stamp)
            except (OSError, ValueError):
                # Damaged, or swept away by an analysis of newer results: made anew.
                self._kept.done(self._key(results)).unlink(missing_ok=True)
        self.request_analysis(results)
        return None

    def request_analysis(self, results: Results) -> None:
        """Have them analysed if they are not; returns at once."""
        if self._analyst:
            # Also where the findings are there: the alerts, which are written after them, may not be.
            self._analyst.request_analysis(results, missing=not self._stamp(results))

    def version(self, results: Results) -> str:
        """Changes when the results or what is known of them changed; the same text means that nothing did."""
        return f"{self._key(results)}.{self._stamp(results)}.{self.trouble}"

    @property
    def trouble(self) -> str:
        """That the analysis fails or is stale, and why; "" if neither, or if others analyse."""
        return self._analyst.status.text if self._analyst else ""

    def busy(self, results: Results) -> bool:
        """Whether something is being looked for."""
        return not self._stamp(results) and self._analyst is not None and self._analyst.busy

    def _key(self, results: Results) -> str:
        return _key(results, self.thresholds, self._repo, self._packages)

    def _stamp(self, results: Results) -> int:
        """When what is found was written, in ns since 1970; 0 if it is not there."""
        try:
            return self._kept.done(self._key(results)).stat().st_mtime_ns
        except OSError:
            return 0


_key = remembered(key_of)


@lru_cache(maxsize=8)
def _thresholds(file: Path, _stamp: int) -> Thresholds:
    return read_thresholds(file)


@remembered
def _shown(results: Results, kept: AnalysisCache, key: str, machine: str, _stamp: int) -> MachineFindings:
    return MachineFindings(kept.changes(machine, key), kept.detector(machine), results.state(machine))
