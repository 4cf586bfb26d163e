"""Decide which cases get the next epochs: first all, then what looks slower, then the widest intervals.

The order has no effect on the error rates: a case is tested by its own epochs alone, and each of its tests may wrongly
end with a difference or with "same" no more often than ``lockstep.gate.sequential_decision`` says, however many tests
follow.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from statistics import fmean, stdev

from lockstep.gate.case_verdict import Trial
from lockstep.gate.measuring.pairing import PairTimer
from lockstep.gate.model import Group, GroupRequest, SeriesKey, Verdict
from lockstep.gate.sequential_decision import LOOKS
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite


@dataclass
class Bench:
    """The cases of one group that are timed. They share the buffers of an epoch.

    Attributes:
        sets: number of argument sets of an epoch.
        timers, trials: by case. A case that is decided is taken out of ``trials``.
    """

    suite: Suite
    case: Case
    group: Group
    sets: int
    timers: Mapping[SeriesKey, PairTimer]
    trials: dict[SeriesKey, Trial]

    @cached_property
    def used(self) -> set[str] | None:
        """Return the names of all arguments that base or head of a case takes; ``None`` if one takes any argument."""
        contenders = [contender for timer in self.timers.values() for contender in timer.contenders]
        functions = [contender.family.variants[contender.variant] for contender in contenders]
        parameters = [parameter for function in functions for parameter in signature(function).parameters.values()]
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        return None if takes_any else {parameter.name for parameter in parameters}

    @property
    def slower(self) -> list[SeriesKey]:
        """Return the cases that look slower, or are in their second pass."""
        return [key for key, trial in self.trials.items() if trial.looks_slower]

    def refuse(self, keys: Iterable[SeriesKey], reason: str) -> None:
        """End the trials of some cases without a verdict."""
        for key in keys:
            self.trials[key].refusal = Verdict(key, "unsure", reason)


@dataclass
class Scatter:
    """The largest standard deviation of log ratios between the epochs of a case, by quantity."""

    _most: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, key: SeriesKey, trial: Trial) -> None:
        """Take account of the passes of a case that have epochs enough for a test."""
        for measured in trial.passes:
            if len(measured) >= LOOKS[0]:
                self._most[key.quantity] = max(self._most[key.quantity], stdev(trial.ratios_of(measured)))

    def of(self, key: SeriesKey) -> float:
        """Return the largest standard deviation of a quantity; infinite if no case has epochs enough."""
        return self._most.get(key.quantity, float("inf"))


@dataclass
class Schedule:
    """Runs the epochs of all cases until they are decided or the time is up.

    Attributes:
        prepare: checks the cases of a group; yields verdicts on the refused ones, and a bench of the others.
        epoch: times one epoch of some cases of a bench, and adds it to their trials.
        scatter: the scatter of earlier cases; this schedule's cases are added.
        tell: called with a line of progress after all cases had one epoch.
    """

    prepare: Callable[[Suite, GroupRequest], Iterator[Verdict | Bench]]
    epoch: Callable[[Bench, Sequence[SeriesKey]], None]
    scatter: Scatter
    tell: Callable[[str], None]

    def run(self, asked: Sequence[tuple[Suite, GroupRequest]], deadline: float) -> Iterator[Verdict]:
        """Yield the verdict of each case when it is decided, and at ``deadline`` those of the undecided ones."""
        benches: list[Bench] = []
        started = time.monotonic()
        for suite, request in asked:
            if time.monotonic() >= deadline:
                break
            for one in self.prepare(suite, request):
                if isinstance(one, Verdict):
                    yield one
                    continue
                benches.append(one)
                self.epoch(one, list(one.trials))
                yield from self._over(one)
        if sum(len(bench.trials) for bench in benches) > 1:
            slower = sum(len(bench.slower) for bench in benches)
            cases = sum(len(bench.trials) for bench in benches)
            self.tell(f"{cases} cases had one epoch in {time.monotonic() - started:.0f} s: {slower} look slower")
        while time.monotonic() < deadline and (undecided := [bench for bench in benches if bench.trials]):
            yield from self._until_next_test(max(undecided, key=self._urgency), deadline)
        for bench in benches:
            yield from (trial.verdict(key, self.scatter.of(key)) for key, trial in bench.trials.items())

    def _urgency(self, bench: Bench) -> tuple[float, float]:
        """Return a number that orders benches: the worst slowdown first, then the size that is least excluded."""
        slower = max((fmean(trial.ratios) for key in bench.slower if (trial := bench.trials[key]).count), default=0.0)
        begun = float(any(not bench.trials[key].count for key in bench.slower))  # a second pass that is due
        excluded = max(trial.excluded(self.scatter.of(key)) for key, trial in bench.trials.items())
        return begun + slower, excluded

    def _until_next_test(self, bench: Bench, deadline: float) -> Iterator[Verdict]:
        """Time epochs of a bench, of the cases that look slower if there are some, until one of them is tested."""
        keys = bench.slower or list(bench.trials)
        tested = False
        while keys and not tested and time.monotonic() < deadline:
            self.epoch(bench, keys)
            tested = any(bench.trials[key].count in LOOKS or not bench.trials[key].count for key in keys)
            yield from self._over(bench)
            keys = [key for key in keys if key in bench.trials]

    def _over(self, bench: Bench) -> Iterator[Verdict]:
        """Take the cases that are over out of a bench, and yield their verdicts."""
        for key in [key for key, trial in bench.trials.items() if trial.over]:
            trial = bench.trials.pop(key)
            self.scatter.add(key, trial)
            yield trial.verdict(key, self.scatter.of(key))
