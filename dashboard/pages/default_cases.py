"""Select the shapes that a page shows before the reader chooses: those that became slower last, or take longest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from lockstep.alerts.analysis.machine_findings import MachineFindings
from lockstep.compare.series_of_suite import keys_of
from lockstep.compare.series_status import reported_changes
from lockstep.history.model import Trend
from lockstep.history.row_keys import key_of
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered

#: Number of newest commits that count as history. Older commits say little about the current state.
RECENT = 100

#: Number of cases that a page selects if its address selects none.
FIRST_CASES = 2


@remembered
def informative_cases(
    results: Results, machine: str, suite: str, findings: MachineFindings | None
) -> tuple[tuple[str, str], ...]:
    """Return pairs of case and cache state of a suite, the most informative first, without cases that have no numbers.

    Cases that became slower come first, the latest slowdown first. Of the others, the case whose best-measured variant
    has more numbers at recent commits comes first, and of cases with equally many numbers the one that takes longest.
    """
    slowed: dict[tuple[str, str], int] = defaultdict(lambda: -1)
    measured: dict[tuple[str, str], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    keys = keys_of(results, suite, machine)
    for key in keys:
        worse = [change.last for change in reported_changes(results, key, findings) if change.sense == "worse"]
        slowed[key.case, key.l2] = max(slowed[key.case, key.l2], *worse, -1)
    for trend in results.trends(results.keys(machine).series_of(keys), last=RECENT):
        if not results.benchmarks[trend.series.benchmark].is_ratio:
            *_, case, l2 = key_of(trend.series, trend.benchmark)
            measured[case, l2] = max(measured[case, l2], _history(trend))
    known = [place for place, (length, _) in measured.items() if length]
    known.sort(key=lambda place: (-slowed[place], -measured[place][0], -measured[place][1], place))
    return tuple(known)


def first_cache(
    results: Results,
    machine: str,
    suite: str,
    cases: Sequence[str],
    caches: Sequence[str],
    findings: MachineFindings | None,
) -> str:
    """Return the cache state that a family page selects: that of the most informative case.

    ``cases`` are the requested cases. If none of them has numbers, all cases count. Without any numbers, the page
    selects the first of ``caches``.
    """
    known_cases = informative_cases(results, machine, suite, findings)
    cache_states = [l2 for case, l2 in known_cases if case in cases] or [l2 for _, l2 in known_cases]
    return cache_states[0] if cache_states else caches[0]


def first_cases(
    results: Results, machine: str, suite: str, l2: str, cases: Sequence[str], findings: MachineFindings | None
) -> list[str]:
    """Return the cases that a family page selects: the machine's most informative cases.

    A machine without numbers in this cache state gets the first of ``cases``.
    """
    known_cases = [case for case, state in informative_cases(results, machine, suite, findings) if case and state == l2]
    return known_cases[:FIRST_CASES] or [case for case in cases if case][:FIRST_CASES]


def _history(trend: Trend) -> tuple[int, float]:
    """Return the count of the newest benchmark version's numbers, and the last of them."""
    values = trend.value[(trend.version == trend.version[-1]) & np.isfinite(trend.value) & (trend.value > 0)]
    return len(values), float(values[-1]) if len(values) else 0.0
