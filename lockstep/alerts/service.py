"""What the pages of alerts need: the alerts, the runner that updates them, and the thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lockstep.alerts.analysis_runner import AnalysisRunner
from lockstep.alerts.store import AlertStore
from lockstep.history.snapshot import Results
from lockstep.suite.thresholds import FILE, Thresholds, ThresholdsError, read_thresholds


@dataclass(frozen=True)
class AlertService:
    """The alerts, and the runner that keeps them up to date.

    Attributes:
        alerts: the store of alerts.
        runner: analyses new results; ``None`` if another process does.
        site: public address of the dashboard, for links in messages; "" if unknown.
        thresholds: file that says what counts as a change.
    """

    alerts: AlertStore
    runner: AnalysisRunner | None = None
    site: str = ""
    thresholds: Path = Path(FILE)

    def request_analysis(self, results: Results) -> str:
        """Have new results analysed; return a notice for readers until that is done, "" if there is none."""
        if self.runner is None:
            return ""
        self.runner.request_analysis(results)
        return self.trouble or ("New results are being analysed." if self.runner.busy else "")

    @property
    def trouble(self) -> str:
        """Say that the analysis fails or is stale, and why; "" if neither, or if another process analyses."""
        return self.runner.status.text if self.runner else ""


def current_thresholds(service: AlertService | None) -> Thresholds:
    """Read the thresholds; the defaults if the file cannot be read.

    The analysis reports what is wrong with the file. The results can be read without it.
    """
    try:
        return read_thresholds(service.thresholds) if service else Thresholds()
    except ThresholdsError:
        return Thresholds()
