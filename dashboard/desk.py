"""What the pages about alerts work with: the alerts, who keeps them up to date, and who may act."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.alerts.store import AlertStore
from dashboard.analyst import Analyst
from dashboard.results.picture import Results


@dataclass(frozen=True)
class Desk:
    """The alerts and their keeper.

    Attributes:
        alerts: what is kept.
        analyst: keeps them in step with the results; ``None`` if others do.
        site: the dashboard's own address, for links that leave it; "" unknown.
    """

    alerts: AlertStore
    analyst: Analyst | None = None
    site: str = ""

    def look(self, results: Results) -> str:
        """Have new results analysed; what a reader must know of that meanwhile, "" nothing."""
        if self.analyst is None:
            return ""
        self.analyst.look(results)
        if self.analyst.busy:
            return "New results are being analysed."
        return f"The last analysis failed: {self.analyst.trouble}" if self.analyst.trouble else ""
