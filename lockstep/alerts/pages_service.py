"""Give the dashboard's pages the stored alerts, and the state of the analysis that updates these alerts."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.alerts.analysis.runner import AnalysisRunner
from lockstep.alerts.database.store import AlertStore
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
        """Start an analysis if there are new results, and return at once.

        Returns a notice for the readers of the dashboard while the analysis runs or if it fails; otherwise "".
        """
        if self.runner is None:
            return ""
        self.runner.request_analysis(results)
        return self.trouble or ("New results are being analysed." if self.runner.busy else "")

    @property
    def trouble(self) -> str:
        """A notice for the pages if the last analysis failed or its findings are stale; otherwise "".

        Without a runner the status is unknown, and the notice is "" too.
        """
        return self.runner.status.text if self.runner else ""
