"""Find what the variant that takes other variants' kernels did while one of them became slower."""

from __future__ import annotations

from dataclasses import replace

from lockstep.alerts.analysis.step_facts import levels
from lockstep.alerts.model import Alert
from lockstep.history.snapshot import Results
from lockstep.record.series_name import BEST


def with_best(alert: Alert, results: Results) -> Alert:
    """Return a slowdown with ``best_moved`` and ``best_takes``, if the suite has a variant ``best``."""
    worst = alert.members[0].series if alert.members else None
    if worst is None or worst.variant == BEST or not (worst.ours and worst.timed):
        return alert
    commit = alert.members[0].commit
    old, new = levels(results, replace(worst, variant=BEST), alert.before, commit)
    moved, min_effect = new - old, alert.members[0].min_effect
    if not moved <= min_effect:
        return alert
    works = {
        point.series.axis("variant"): point.work
        for point in results.at(commit, alert.machine)
        if results.benchmarks[point.series.benchmark].suite == worst.suite
        and (point.series.axis("case"), point.series.axis("l2")) == (worst.case, worst.l2)
    }
    same = [name for name, work in works.items() if name != BEST and work and work == works.get(BEST)]
    takes = same[0] if same and worst.variant not in same else ""
    return replace(alert, best_moved=moved if moved < -min_effect else 0.0, best_takes=takes)
