"""What the pages about alerts work with: the alerts, who keeps them up to date, and who may act."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lockstep.alerts.analysis_runner import AnalysisRunner
from lockstep.alerts.store import AlertStore
from lockstep.history.snapshot import Results
from lockstep.suite.thresholds import FILE, Thresholds, ThresholdsError, read_thresholds


@dataclass(frozen=True)
class AlertService:
    """The alerts and their keeper.

    Attributes:
        alerts: what is kept.
        analyst: keeps them in step with the results; ``None`` if others do.
        site: the dashboard's own address, for links that leave it; "" unknown.
        thresholds: file that says what counts as a change.
    """

    alerts: AlertStore
    runner: AnalysisRunner | None = None
    site: str = ""
    thresholds: Path = Path(FILE)

    def request_analysis(self, results: Results) -> str:
        """Have new results analysed; what a reader must know of that meanwhile, "" nothing."""
        if self.runner is None:
            return ""
        self.runner.request_analysis(results)
        return self.trouble or ("New results are being analysed." if self.runner.busy else "")

    @property
    def trouble(self) -> str:
        """That the analysis fails or is stale, and why; "" if neither, or if others analyse."""
        return self.runner.status.text if self.runner else ""


def rules(service: AlertService | None) -> Thresholds:
    """What counts as a change; the defaults where the file cannot be read.

    The analysis says what is wrong with the file, and what was measured can be read without it.
    """
    try:
        return read_thresholds(service.thresholds) if service else Thresholds()
    except ThresholdsError:
        return Thresholds()
