"""Prometheus metrics: the age of each machine's results, open alerts, unreadable files, state of the analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dashboard.api.answers import troubles
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.analysis.runner import AnalysisStatus
from lockstep.alerts.pages_service import AlertService
from lockstep.history.store import Store


class Health(Collector):
    """Prometheus gauges of machines, alerts and the analysis, computed anew at each scrape.

    Args:
        service: the alerts; ``None`` leaves them out.
        findings: the findings, whose analysis is reported if this server runs it.
    """

    def __init__(self, store: Store, service: AlertService | None, findings: Findings) -> None:
        self._store = store
        self._service = service
        self._findings = findings

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Return no gauges. Without this method, the registry calls ``collect`` at start-up only to learn the names."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield every gauge with its present value."""
        results, service = self._store.current(), self._service
        runs = {(machine,): results.runs_of(machine) for machine in results.machines}
        last = {machine: max((run.measured_at for run in own), default=0) / 1000 for machine, own in runs.items()}
        name, text = "machine_last_report_timestamp_seconds", "When a machine last measured, in seconds since 1970"
        yield _gauge(name, text, last, "machine")
        commits = {machine: len(own) for machine, own in runs.items()}
        yield _gauge("machine_commits", "Commits that a machine has measured", commits, "machine")
        yield _gauge("machine_series", "Series of a machine", {key: results.count(*key) for key in runs}, "machine")
        yield _gauge("problems", "Result files not read in full", {(): len(results.problems)})
        counts = service.counts() if service else {}
        troubled = troubles(self._store, service)
        degraded = {(part,): part in troubled for part in ("results", "alerts")}
        yield _gauge("degraded", "1 while a part shows old data", degraded, "part")
        if service is not None:
            yield _gauge("alerts", "Alerts by state and topic", dict(sorted(counts.items())), "state", "topic")
        self._findings.request_analysis(results)
        if status := self._findings.status:
            yield from _analysis(status)


def _analysis(status: AnalysisStatus) -> Iterator[GaugeMetricFamily]:
    """Yield the gauges of the analysis. Every worker process of the server yields the same values."""
    failing = {(status.reason,): 1.0} if status.failing else {}
    yield _gauge("analysis_failed", "1 if the last analysis failed or was killed", {(): status.failing})
    yield _gauge("analysis_failures", "Failed analyses since the last success", {(): status.failures})
    last = "End of the last successful analysis, 0 if none"
    yield _gauge("analysis_last_success_timestamp_seconds", last, {(): status.succeeded})
    yield _gauge("analysis_stale", "1 if no analysis has succeeded for two hours", {(): status.stale()})
    yield _gauge("analysis_failure", "1 while the analysis fails", failing, "reason")


def _gauge(name: str, text: str, values: Mapping[Any, float], *labels: str) -> GaugeMetricFamily:
    """Return a gauge with a value for each combination of the labels' values."""
    gauge = GaugeMetricFamily(f"lockstep_{name}", text, labels=labels)
    for key, value in values.items():
        gauge.add_metric(key, float(value))
    return gauge
