"""What the pages of alerts need: the alerts, and the runner that updates them."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.alerts.analysis_runner import AnalysisRunner
from lockstep.alerts.store import AlertStore
from lockstep.history.snapshot import Results


@dataclass(frozen=True)
class AlertService:
    """The alerts, and the runner that keeps them up to date.

    Attributes:
        alerts: the store of alerts.
        runner: the runner that analyses new results; ``None`` if another process analyses them.
        site: public address of the dashboard, for links in messages; "" if unknown.
    """

    alerts: AlertStore
    runner: AnalysisRunner | None = None
    site: str = ""

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
