"""Prometheus metrics: the age of each machine's results, open alerts, unreadable files, state of the analysis."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dashboard.api.answers import troubles
from lockstep.alerts.analysis.status import AnalysisStatus
from lockstep.alerts.pages_service import AlertService
from lockstep.history.store import Store


class Health(Collector):
    """Prometheus gauges of machines, alerts and the analysis, computed anew at each scrape.

    Args:
        service: the alerts; ``None`` leaves them out.
    """

    def __init__(self, store: Store, service: AlertService | None) -> None:
        self._store = store
        self._service = service

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Return no gauges. Without this method, the registry calls ``collect`` at start-up only to learn the names."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield every gauge with its present value."""
        results = self._store.current()
        names = {
            "lockstep_machine_last_report_timestamp_seconds": "When a machine last measured, in seconds since 1970",
            "lockstep_machine_commits": "Commits that a machine has measured",
            "lockstep_machine_series": "Series of a machine",
        }
        gauges = [GaugeMetricFamily(name, text, labels=["machine"]) for name, text in names.items()]
        for machine in results.machines:
            runs = results.runs_of(machine)
            measured = max((run.measured_at for run in runs), default=0) / 1000
            for gauge, value in zip(gauges, (measured, len(runs), results.count(machine)), strict=True):
                gauge.add_metric([machine], value)
        yield from gauges
        yield GaugeMetricFamily("lockstep_problems", "Result files not read in full", value=len(results.problems))
        counts = self._service.counts() if self._service else {}
        degraded = GaugeMetricFamily("lockstep_degraded", "1 while a part shows old data", labels=["part"])
        troubled = troubles(self._store, self._service)
        for part in ("results", "alerts"):
            degraded.add_metric([part], float(part in troubled))
        yield degraded
        if self._service is None:
            return
        alerts = GaugeMetricFamily("lockstep_alerts", "Alerts by state and topic", labels=["state", "topic"])
        for (state, topic), number in sorted(counts.items()):
            alerts.add_metric([state, topic], number)
        yield alerts
        if self._service.runner is not None:
            self._service.runner.request_analysis(results)
            yield from _analysis(self._service.runner.status)


def _analysis(status: AnalysisStatus) -> Iterator[GaugeMetricFamily]:
    """Yield the gauges of the analysis. Every worker process of the server yields the same values."""
    numbers = {
        "failed": ("1 if the last analysis failed or was killed", float(status.failing)),
        "failures": ("Failed analyses since the last success", float(status.failures)),
        "last_success_timestamp_seconds": ("End of the last successful analysis, 0 if none", status.succeeded),
        "stale": ("1 if no analysis has succeeded for two hours", float(status.stale())),
    }
    for name, (text, value) in numbers.items():
        yield GaugeMetricFamily(f"lockstep_analysis_{name}", text, value=value)
    reason = GaugeMetricFamily("lockstep_analysis_failure", "1 while the analysis fails", labels=["reason"])
    if status.failing:
        reason.add_metric([status.reason], 1.0)
    yield reason
