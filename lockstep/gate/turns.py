"""Where one process cannot hold both versions: a worker a version, taking turns, and a third that shows how far two
workers of one version differ.

Two processes disagree for no reason: on an unlocked H200 by up to 0.8 % cold and 5 % warm, the same in every epoch, so
that no number of epochs averages it away. Changes therefore count only beyond that, or beyond three times what the twin
of base shows here if that is more; and a difference must be found again by workers that are started anew.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, geometric_mean

from lockstep.gate.client import Alone, GateWorker, Ring
from lockstep.gate.sequential import LOOKS, Decision, Test, found_twice, interval, relative
from lockstep.gate.verdict import OUT_OF_TIME, UNREACHED, Group, SeriesKey, Verdict
from lockstep.processes.watched import WorkerDied

#: What two processes of the same code were seen to differ by on an H200 with free clocks, the worst.
APART = 0.05

#: Times the twin's spread that counts as no change.
WIDTH = 3.0

#: The workers: base, base again, head; by the tree that each holds.
TREES = {"base": "base", "again": "base", "head": "head"}


@dataclass
class _Case:
    """One round of one case: log head / base and log again / base, an epoch each."""

    ratios: list[float] = field(default_factory=list)
    twins: list[float] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in TREES})
    rotations: int = 0
    decision: Decision | None = None
    verdict: Verdict | None = None


class Turns:
    """Judges groups with three workers that take turns.

    Args:
        ring: the trees and suites.
        silence_s: seconds without a sign of life after which a worker is killed.
        deadline: on ``time.monotonic()``'s clock.
    """

    def __init__(self, ring: Ring, silence_s: float, deadline: float) -> None:
        self._ring = ring
        self._silence_s = silence_s
        self._deadline = deadline
        self._workers: dict[str, GateWorker] = {}
        self._offsets: list[float] = []
        self._seed = ring.seed

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers.values():
            worker.close(patience_s=1.0)
        self._workers.clear()

    @property
    def spread(self) -> float:
        """How far two workers of base were apart, root mean square over cases (log units); 0 before any."""
        return math.sqrt(fmean(one**2 for one in self._offsets)) if self._offsets else 0.0

    def judge(self, groups: Sequence[Group], tests: Mapping[SeriesKey, Test]) -> Iterator[Verdict]:
        """Verdicts of all groups; ``tests`` have what was asked, and are widened here.

        Raises:
            WorkerDied: a worker does not start.
        """
        first: dict[SeriesKey, _Case] = {}
        for group in groups:
            taken = self._round(group, tests)
            first |= taken
            for key, case in taken.items():
                if case.verdict is not None or case.decision not in ("slower", "faster"):
                    yield self._verdict(key, tests[key], case, None)
        self.close()  # other processes for the second round
        for group in groups:
            variants = tuple(key.variant for key in group.cases() if _differs(first[key]))
            if variants:
                for key, case in self._round(replace(group, variants=variants), tests).items():
                    yield self._verdict(key, tests[key], first[key], case)
        self.close()

    def _round(self, group: Group, tests: Mapping[SeriesKey, Test]) -> dict[SeriesKey, _Case]:
        cases = {key: _Case() for key in group.cases()}
        live = dict(cases)
        epoch = 0
        # One more than the last look needs, since the first warms up.
        while live and time.monotonic() < self._deadline and epoch <= LOOKS[-1]:
            epoch += 1
            self._seed += 1
            self._epoch(group, live, epoch)
            for key, case in list(live.items()):
                if case.verdict is None and case.ratios:
                    case.decision = self._widened(tests[key], case).decide(case.ratios)
                if case.verdict is not None or case.decision is not None:
                    del live[key]
        self._offsets += [fmean(case.twins) for case in cases.values() if case.twins]
        return cases

    def _epoch(self, group: Group, live: Mapping[SeriesKey, _Case], epoch: int) -> None:
        """One turn of each worker, on the same draw; another one begins each time."""
        names = list(TREES)
        order = names[epoch % 3 :] + names[: epoch % 3]
        taken: dict[str, dict[str, float]] = {}
        for name in order if epoch % 2 else order[::-1]:
            asked = Alone(
                replace(group, variants=tuple(key.variant for key in live if live[key].verdict is None)),
                side=TREES[name],
                seed=self._seed,
                rotations={key.variant: case.rotations for key, case in live.items()},
            )
            if not asked.group.variants:
                return
            try:
                answer = self._worker(name).time_alone(asked)
            except WorkerDied as died:
                if died.at_start:
                    raise
                self._workers.pop(name).close(patience_s=0.0)
                self._give_up(live, died.variant.partition("@")[0], TREES[name], died.how)
                return
            for key, case in live.items():
                told = answer.get(key.variant)
                if told is None:
                    continue
                if told["outcome"]:
                    self._refuse(key, case, TREES[name], str(told["outcome"]), str(told["reason"]))
                else:
                    taken.setdefault(key.variant, {})[name] = float(told["seconds"])
                    case.rotations = case.rotations or int(told["rotations"])
        for key, case in live.items():
            seconds = taken.get(key.variant, {})
            # The first epoch warms up: workers that have not met a case before are slower at it.
            if seconds.keys() == TREES.keys() and epoch > 1:
                case.ratios.append(math.log(seconds["head"] / seconds["base"]))
                case.twins.append(math.log(seconds["again"] / seconds["base"]))
                for name, one in seconds.items():
                    case.seconds[name].append(one)

    def _worker(self, name: str) -> GateWorker:
        if name not in self._workers:
            self._workers[name] = GateWorker(self._ring, self._silence_s, alone=TREES[name])
        return self._workers[name]

    def _refuse(self, key: SeriesKey, case: _Case, side: str, outcome: str, reason: str) -> None:
        if side == "base":
            case.verdict = Verdict(key, "na" if outcome == "na" else "unsure", f"base cannot be timed: {reason}")
        elif case.verdict is None:
            case.verdict = Verdict(key, "removed" if outcome == "na" else "failed", reason)

    def _give_up(self, live: Mapping[SeriesKey, _Case], variant: str, side: str, how: str) -> None:
        """A worker died: at one variant if it said at which, else at all that it was asked for."""
        for key, case in live.items():
            if variant in ("", key.variant):
                self._refuse(key, case, side, "failed", how)

    def _widened(self, test: Test, case: _Case) -> Test:
        apart = math.expm1(WIDTH * max(self.spread, abs(fmean(case.twins))))
        return replace(test, min_effect=test.min_effect + max(APART, apart))

    def _verdict(self, key: SeriesKey, test: Test, first: _Case, second: _Case | None) -> Verdict:
        told = second if second is not None and second.ratios else first
        settled = (second.verdict if second else None) or first.verdict
        if settled is not None or not told.ratios:
            return settled or Verdict(key, "unsure", UNREACHED)
        log = interval(told.ratios, test.alpha)
        verdict = Verdict(
            key,
            "unsure",
            change=relative(log),
            min_effect=self._widened(test, told).min_effect,
            base_s=geometric_mean(told.seconds["base"]),
            head_s=geometric_mean(told.seconds["head"]),
            epochs=len(first.ratios) + (len(second.ratios) if second else 0),
            shared=False,
        )
        if second is None:
            return (
                replace(verdict, outcome="same")
                if first.decision == "same"
                else replace(verdict, reason=_undecided(first))
            )
        if second.decision is not None and second.decision == first.decision:
            twice = relative(found_twice(first.ratios, second.ratios, test))
            return replace(verdict, outcome=first.decision, confirmed=True, change=twice)
        seen = f"{math.expm1(fmean(first.ratios)):+.2%} in a first round, not confirmed"
        return replace(verdict, reason=seen if second.decision else f"{seen} by a second: {_undecided(second)}")


def _undecided(case: _Case) -> str:
    count = len(case.ratios)
    return "undecided" if count >= LOOKS[-1] else f"{OUT_OF_TIME} after {count} epochs"


def _differs(case: _Case) -> bool:
    return case.verdict is None and case.decision in ("slower", "faster")
