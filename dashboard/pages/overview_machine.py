"""The overview's machines: which opens first, the menu, and the scatter of a machine's series."""

from __future__ import annotations

from typing import Any

import numpy as np
from dash import html

from lockstep.alerts.analysis.machine_findings import MachineFindings
from lockstep.alerts.analysis.noisy_series import scatter_of
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered

#: Number of newest commits whose numbers are counted, to find the machine with the most: few, so that it is fast.
RECENT = 8


@remembered
def opening_machine(results: Results) -> str:
    """Return the machine that the overview shows first: of the machines with many numbers, the one measured last.

    Numbers are counted over a machine's last ``RECENT`` commits; "many" is at least half of the largest count. So a new
    test machine replaces an old one, but a laptop with one test run does not. A target that was only compiled for, not
    measured on, is shown only if no machine has measured.
    """
    measured = [name for name in results.machines if _is_measured(results, name)] or list(results.machines)
    numbers = {machine: _numbers(results, machine) for machine in measured}
    threshold = max(numbers.values()) / 2
    return max(
        (name for name in numbers if numbers[name] >= threshold), key=lambda name: (_measured_at(results, name), name)
    )


def _is_measured(results: Results, machine: str) -> bool:
    return not all(results.benchmarks[series.benchmark].exact for series in results.series(machine=machine))


def newest_first(results: Results) -> list[str]:
    """Return the names of the machines, the one that measured last first."""
    return sorted(results.machines, key=lambda name: -_measured_at(results, name))


def scatter_line(machine: str, findings: MachineFindings | None) -> list[Any]:
    """Return a warning if a machine's series scatter so much that small changes stay hidden; otherwise []."""
    scatter = scatter_of(findings.noise.values()) if findings else None
    return [html.P(scatter.sentence(machine), className="dim")] if scatter else []


def _numbers(results: Results, machine: str) -> int:
    """Count a machine's numbers at its last ``RECENT`` commits. A case that failed or is n/a has no number."""
    trends = results.trends(results.series(machine=machine), RECENT)
    return sum(int(np.isfinite(trend.value).sum()) for trend in trends)


def _measured_at(results: Results, machine: str) -> int:
    """Return when the machine last measured (ms since 1970), or if unknown, the date of its newest commit."""
    return max(run.measured_at for run in results.runs_of(machine)) or results.machines[machine].last_date
