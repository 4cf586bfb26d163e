"""Measure the same cases in several fresh workers, to see how far repeated measurements scatter."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar

from lockstep.asv.coordinator import CommitWorker
from lockstep.asv.worker_client import WorkerSpec
from lockstep.record.model import TWIN, Record
from lockstep.record.run_agreement import Run
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import in_history
from lockstep.timing.clocks.reference_clocks import ReferenceClocks

Item = TypeVar("Item")

#: Suite, label of the case, and cache state.
Planned = tuple[Suite, str, str]


@dataclass
class FreshRuns:
    """Measures the same cases in one fresh worker after the other.

    Attributes:
        suites, states: suites and cache states to measure; a CPU has the state "warm" alone.
        series: number of speedups after which the first run ends.
        chosen: variants to measure of each suite, by its name.
        say: function that reports a variant that killed its worker.
        plan: the cases of the first run, which the others measure too.
        reference_clocks: the clocks of the first run, as those of a history's first commit.
    """

    spec: WorkerSpec
    silence_s: float
    suites: Sequence[Suite]
    states: Sequence[str]
    series: int
    chosen: Mapping[str, Sequence[str]]
    costs: Sequence[str]
    say: Callable[[str], None]
    plan: list[Planned] = field(default_factory=list)
    reference_clocks: ReferenceClocks = field(default_factory=ReferenceClocks)

    def run(self) -> Run:
        """Measure the cases in a new worker, one variant of each twice, and return the records."""
        arms: dict[tuple[str, str, str, str], Record] = {}
        done: list[Planned] = []
        commit = CommitWorker("the working tree", self.spec, self.silence_s, say=self.say, clocks=self.reference_clocks)
        with closing(commit) as worker:
            device = worker.host["device"]
            states = ("warm",) if device == "cpu" else self.states
            for turn, planned in enumerate(self.plan or in_turn(self.suites, states, device)):
                done.append(planned)
                suite, label, l2 = planned
                variants = list(self.chosen[suite.name])
                twins = [_twin(suite, label, l2, turn, variants)]
                records = worker.measure(suite.name, label, l2, variants, suite.benchmark_version, twins, self.costs)
                arms |= {record.key: record for record in records}
                if not self.plan and _compared(arms.values()) >= self.series:
                    break
        self.plan = done
        return arms


def in_turn(suites: Sequence[Suite], states: Sequence[str], device: str) -> Iterator[Planned]:
    """Yield one case of each suite in turn until all are listed, starting in the middle of each suite's list.

    The first case of most suites is the smallest and the noisiest.
    """
    pools = [middles(list(suite.cases_on(device))) for suite in suites]
    for turn in itertools.zip_longest(*pools):
        for suite, case in zip(suites, turn, strict=True):
            if case is not None:
                yield from ((suite, case.label, l2) for l2 in states)


def _twin(suite: Suite, label: str, l2: str, turn: int, chosen: Sequence[str]) -> str:
    """Return the variant to measure twice: the next of the chosen variants in turn.

    Measuring every variant twice would double the length of a round, and arms agree less in a longer round.
    """
    followed = [name for name in chosen if in_history(suite, name, suite.case(label), l2)] or [suite.baseline]
    return followed[turn % len(followed)]


def middles(pool: Sequence[Item]) -> Iterator[Item]:
    """Yield all items breadth first: the middle, the middle of each half, …"""
    stretches = deque([pool])
    while stretches:
        stretch = stretches.popleft()
        if stretch:
            middle = len(stretch) // 2
            yield stretch[middle]
            stretches += stretch[:middle], stretch[middle + 1 :]


def _compared(records: Iterable[Record]) -> int:
    """Return the number of series with a speedup, without the baseline, whose speedup is 1 by definition."""
    return sum(
        record.speedup is not None and record.variant != record.baseline and not record.variant.endswith(TWIN)
        for record in records
    )
