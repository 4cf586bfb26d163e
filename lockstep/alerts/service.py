"""The alerts, and the runner that updates them, for the pages."""

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
        """Start an analysis of new results. Return a notice for readers until the analysis is done; "" if none is
        needed.
        """
        if self.runner is None:
            return ""
        self.runner.request_analysis(results)
        return self.trouble or ("New results are being analysed." if self.runner.busy else "")

    @property
    def trouble(self) -> str:
        """Return why the analysis fails or is stale; "" if it works, or if another process analyses."""
        return self.runner.status.text if self.runner else ""
