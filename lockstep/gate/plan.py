"""Plan a comparison: which cases to measure, in which order, and which unchanged cases to use as an A/A control."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from lockstep.gate.model import Group, SeriesKey, SideFacts
from lockstep.suite.definition import CACHE_STATES, Suite
from lockstep.suite.evaluate import skip_reason

#: Maximum time for a case as a multiple of an equal share of the remaining budget, and the seconds that every case gets
#: at least. Most cases are decided in less time.
MOST_SHARES, LEAST_CASE_S = 2.0, 5.0

#: Number of groups that the A/A control measures. The seed of the run selects them.
AA_GROUPS = 3


def cases_here(
    suites: Mapping[str, Suite], requested: Mapping[str, Sequence[str] | None], *, on_cpu: bool
) -> dict[str, list[str]]:
    """Return the labels of the requested cases that this machine can compare, by suite: on a CPU the quick cases.

    ``requested`` has ``None`` for all cases of a suite.
    """
    cases: dict[str, list[str]] = {}
    for name, suite in suites.items():
        here, labels = suite.cases_on("cpu" if on_cpu else "cuda"), requested[name]
        cases[name] = [case.label for case in here if labels is None or case.label in labels]
    return cases


def states_here(l2: str, *, on_cpu: bool) -> tuple[str, ...]:
    """Return the requested cache states, "both" or one, that this machine can compare: on a CPU at most "warm"."""
    return tuple(state for state in CACHE_STATES if l2 in (state, "both") and (state == "warm" or not on_cpu))


def series(
    suites: Mapping[str, Suite],
    cases: Mapping[str, Sequence[str]],
    states: Sequence[str],
    variants: Sequence[str],
    imported: Mapping[str, Mapping[str, SideFacts]],
) -> Iterator[SeriesKey]:
    """Yield the key of every series that base or head has, of these cases, states and variants (all, if empty)."""
    for name, suite in suites.items():
        sides = [imported.get(name, {}).get(side, SideFacts()) for side in ("base", "head")]
        found = dict.fromkeys(variant for side in sides for variant in side.variants)
        if not found and not all(side.missing for side in sides):
            # Neither side could be imported. Today's variants are listed, so that the report shows the failure.
            found = dict.fromkeys(suite.variants())
        chosen = [variant for variant in found if not variants or variant in variants]
        for case in cases[name]:
            measured = [variant for variant in chosen if not skip_reason(suite, variant, suite.case(case))]
            yield from (SeriesKey(name, variant, case, l2) for l2 in states for variant in measured)


def groups(keys: Iterable[SeriesKey]) -> list[Group]:
    """Return the keys in groups with the same suite, case, cache state and quantity."""
    gathered: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for key in keys:
        gathered[key.suite, key.case, key.l2, key.quantity].append(key.variant)
    return [
        Group(suite, case, l2, tuple(variants), quantity) for (suite, case, l2, quantity), variants in gathered.items()
    ]


def deadline_of(sizes: Iterable[int], now: float, end: float) -> float:
    """Return when the first undecided part must stop, so that it does not use the budget of the others.

    Args:
        sizes: number of cases of each undecided part.
        now, end: times on ``time.monotonic()``'s clock; ``end`` is the end of the budget.
    """
    first, *others = sizes
    share = (end - now) / (first + sum(others))
    return min(end, now + first * max(LEAST_CASE_S, MOST_SHARES * share))


def aa_groups(unchanged: Sequence[SeriesKey], chance: random.Random) -> list[Group]:
    """Select a few unchanged cases at random, of different suites if possible, for the A/A control."""
    todo = groups(unchanged)
    chance.shuffle(todo)
    by_suite: dict[str, list[Group]] = defaultdict(list)
    for group in todo:
        by_suite[group.suite].append(group)
    picked: list[Group] = []
    while by_suite:
        for suite in list(by_suite):
            picked.append(by_suite[suite].pop())
            if not by_suite[suite]:
                del by_suite[suite]
    # One variant of each case, to limit the cost.
    return [replace(group, variants=(chance.choice(group.variants),)) for group in picked[:AA_GROUPS]]
