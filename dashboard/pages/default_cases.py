"""Select the most informative shapes of a suite, which a page shows before the reader chooses."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from lockstep.compare.series_of_suite import keys_of
from lockstep.history.display_names import natural
from lockstep.history.model import Trend
from lockstep.history.row_keys import key_of
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered

#: Number of newest commits that count as history. Older commits say little about the current state.
RECENT = 100

#: Number of cases that a page selects if its address selects none.
FIRST_CASES = 2


@remembered
def informative_cases(results: Results, machine: str, suite: str) -> tuple[tuple[str, str], ...]:
    """Return pairs of case and cache state of a suite, the most informative first, without cases that have no numbers.

    The case whose best-measured variant has more numbers at recent commits is more informative. Of cases with equally
    many numbers, the case with the larger change from first to last number comes first.
    """
    known_cases: dict[tuple[str, str], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    series = results.keys(machine).series_of(keys_of(results, suite, machine))
    for trend in results.trends(series, last=RECENT):
        *_, case, l2 = key_of(trend.series, trend.benchmark)
        known_cases[case, l2] = max(known_cases[case, l2], _history(trend))
    known = [(length, moved, place) for place, (length, moved) in known_cases.items() if length]
    return tuple(place for *_, place in sorted(known, key=lambda ranked: (-ranked[0], -ranked[1], ranked[2])))


def first_cache(results: Results, machine: str, suite: str, cases: Sequence[str], caches: Sequence[str]) -> str:
    """Return the cache state that a family page selects: that of the most informative case.

    ``cases`` are the requested cases. If none of them has numbers, all cases count. Without any numbers, the page
    selects the first of ``caches``.
    """
    known_cases = informative_cases(results, machine, suite)
    cache_states = [l2 for case, l2 in known_cases if case in cases] or [l2 for _, l2 in known_cases]
    return cache_states[0] if cache_states else caches[0]


def first_cases(results: Results, machine: str, suite: str, l2: str, cases: Sequence[str]) -> list[str]:
    """Return the cases that a family page selects: the machine's most informative cases, small shapes first.

    A machine without numbers in this cache state gets the first of ``cases``.
    """
    known_cases = [case for case, state in informative_cases(results, machine, suite) if case and state == l2]
    return sorted(known_cases[:FIRST_CASES], key=natural) or [case for case in cases if case][:FIRST_CASES]


def _history(trend: Trend) -> tuple[int, float]:
    """Return the count of the newest benchmark version's numbers, and |log(last number / first number)|."""
    values = trend.value[(trend.version == trend.version[-1]) & np.isfinite(trend.value) & (trend.value > 0)]
    return len(values), abs(math.log(values[-1] / values[0])) if len(values) else 0.0
