"""What is judged and in which order: proved cases aside, worst-known first, and a few proved ones as a noise meter."""

from __future__ import annotations

import contextlib
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.gate.verdict import Group, SeriesKey, SideFacts
from lockstep.record.file import SUFFIX, RecordError, read_records
from lockstep.suite.evaluate import skip_reason
from lockstep.suite.model import CACHE_STATES, Suite

#: Most time for a case, as a multiple of an equal share of what is left of the budget; and seconds that a case gets
#: however small its share is: most cases are decided in less.
MOST_SHARES, LEAST_CASE_S = 2.0, 5.0

#: How many groups the noise meter measures; seeded and told.
METER_GROUPS = 3


@dataclass(frozen=True)
class Selection:
    """What was asked for.

    Attributes:
        suites: by name.
        cases: suite name to the labels of its cases.
        states: cache states.
        variants: only these; empty for all.
    """

    suites: Mapping[str, Suite]
    cases: Mapping[str, Sequence[str]]
    states: Sequence[str]
    variants: Sequence[str] = ()

    def keys(self, found: Mapping[str, Mapping[str, SideFacts]]) -> Iterator[SeriesKey]:
        """Every series that base or head has."""
        for name in self.suites:
            sides = [found.get(name, {}).get(side, SideFacts()) for side in ("base", "head")]
            variants = dict.fromkeys(variant for side in sides for variant in side.variants)
            if not variants and not all(side.missing for side in sides):
                # Neither could be imported: named all the same, so that it is seen.
                variants = dict.fromkeys(self.suites[name].variants())
            for case in self.cases[name]:
                axes = self.suites[name].case(case)
                for l2 in self.states:
                    for variant in variants:
                        allowed = not skip_reason(self.suites[name], variant, axes)
                        if allowed and (not self.variants or variant in self.variants):
                            yield SeriesKey(name, variant, case, l2)


def select(
    suites: Mapping[str, Suite],
    asked: Mapping[str, Sequence[str] | None],
    *,
    on_cpu: bool,
    l2: str = "both",
    variants: Sequence[str] = (),
) -> Selection:
    """What this machine can judge: the quick cases, warm, on a CPU; all cases on a GPU. It may be nothing.

    Args:
        suites: those asked for.
        asked: labels of each suite's cases; ``None`` for all of them.
        on_cpu: no GPU here.
        l2: a cache state, or "both".
        variants: only these; empty for all.
    """
    cases: dict[str, Sequence[str]] = {}
    for name, suite in suites.items():
        here, wanted = (suite.quick if on_cpu else suite.cases), asked[name]
        cases[name] = [case.label for case in here if wanted is None or case.label in wanted]
    states: tuple[str, ...] = CACHE_STATES if l2 == "both" else (l2,)
    if on_cpu:
        states = tuple(state for state in states if state == "warm")
    return Selection(suites, cases, states, variants)


def groups(keys: Iterable[SeriesKey]) -> list[Group]:
    """The keys, gathered by suite, case and cache state."""
    gathered: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for key in keys:
        gathered[key.suite, key.case, key.l2].append(key.variant)
    return [Group(suite, case, l2, tuple(variants)) for (suite, case, l2), variants in gathered.items()]


def worst_first(
    todo: Sequence[Group],
    severity: Callable[[SeriesKey], float],
    noise: Mapping[SeriesKey, float],
    chance: random.Random,
) -> list[Group]:
    """Groups by how much their code changed, then by how noisy they were before; by lot among equals.

    The lot spreads what the budget reaches over all suites and shapes.
    """
    shuffled = list(todo)
    chance.shuffle(shuffled)
    return sorted(
        shuffled,
        key=lambda group: (
            -max(severity(key) for key in group.cases()),
            -max(noise.get(key, 0.0) for key in group.cases()),
        ),
    )


def deadline_of_group(left: Sequence[Group], now: float, end: float) -> float:
    """When the first group of ``left`` must stop, so that a noisy case does not take the budget of all others.

    Args:
        left: groups that are not judged yet.
        now, end: on ``time.monotonic()``'s clock; ``end`` is the end of the budget.
    """
    share = (end - now) / sum(len(group.variants) for group in left)
    return min(end, now + len(left[0].variants) * max(LEAST_CASE_S, MOST_SHARES * share))


def recorded_noise(results: Path, gpu: str) -> dict[SeriesKey, float]:
    """What the newest recorded measurement on this kind of GPU could tell apart, by series; nothing without one."""
    found: list[tuple[str, Path]] = []
    for path in results.glob(f"*/*{SUFFIX}"):
        # The first line alone: a long history has hundreds of files.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), path.open(encoding="utf-8") as file:
            told = json.loads(file.readline())
            if told["host"]["gpu"] == gpu:
                found.append((str(told["recorded_at"]), path))
    try:
        _, records = read_records(max(found)[1])
    except (ValueError, RecordError):  # there is none, or it is damaged
        return {}
    return {SeriesKey(one.suite, one.variant, one.case, one.l2): one.mde for one in records if one.mde is not None}


def sample(proved: Sequence[SeriesKey], traced: Callable[[SeriesKey], bool], chance: random.Random) -> list[SeriesKey]:
    """Proved cases to check against what really launches: one of each variant, those proved by their traces first.

    Args:
        proved: cases of base and head that are said to do the same.
        traced: whether a case's proof rests on its traces; the others' rests on the sources.
        chance: picks the cases, and their order.
    """
    shuffled = list(proved)
    chance.shuffle(shuffled)
    picked = {(key.suite, key.variant, traced(key)): key for key in shuffled}
    return sorted(picked.values(), key=lambda key: not traced(key))


def meter(proved: Sequence[SeriesKey], chance: random.Random) -> list[Group]:
    """A random few of the proved cases, of different suites where possible."""
    todo = groups(proved)
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
    # One variant each: the meter is to cost little.
    return [Group(one.suite, one.case, one.l2, (chance.choice(one.variants),)) for one in picked[:METER_GROUPS]]
