"""Judge whether head's kernels take longer to compile than base's.

One process compiles base's kernels and one compiles head's, in turn, each time with an empty cache. Such a pair of
compilations gives one ratio of times: in each process the fastest of ``REPEATS`` compilations counts.

The times of two processes with the same code differ, because each process places its code and its heap elsewhere.
Further pairs of the same two processes do not reveal this difference. So two other processes must confirm every
difference in a second pass, and a change below ``LEAST`` never counts.

No GPU is needed. Cases that compile the same kernels share their measurements.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.gate.case_verdict import Measured, Trial
from lockstep.gate.model import GroupRequest, SeriesKey, Verdict
from lockstep.gate.sequential_decision import Test
from lockstep.machine_code.compile_time import CompileClock, Kernels
from lockstep.machine_code.targets import Target
from lockstep.machine_code.worker_session import TracingFailed
from lockstep.suite.commit_sources import Tree

#: Number of compilations of a kernel on each side of a pair; the fastest counts.
REPEATS = 2

#: Smallest change that counts, as a share, even if the user requests less. Of 48 comparisons of unchanged code, each
#: with processes of its own, the largest change was 4.3 % (docs/gate.md).
LEAST = 0.1

#: Target on a machine without a GPU.
WITHOUT_GPU = Target.parse("sm_90")

#: What a pair consists of, for reports.
PAIRS = "pairs of compilations"


@dataclass(frozen=True)
class _Compared:
    """The kernels of base and head that are compared, and the test that decides. Equal ones share a trial."""

    base: Kernels
    head: Kernels
    test: Test


class CompilePairs:
    """Judges compile times. The compiling processes start on demand, and ``close`` ends them."""

    def __init__(self, base: Tree, head: Tree, benchmark_dir: Path) -> None:
        self._trees = {"base": base, "head": head}
        self._benchmark_dir = benchmark_dir
        self._target = WITHOUT_GPU
        self._clocks: dict[tuple[str, int], CompileClock] = {}
        self._trials: dict[_Compared, Trial] = {}

    def judge(self, request: GroupRequest, deadline: float, host: Mapping[str, str]) -> Iterator[Verdict]:
        """Yield the verdict on each case's compile time on ``host``'s GPU; unsure if undecided at the deadline."""
        self._target = Target.of_host(host) if host.get("device") == "cuda" else WITHOUT_GPU
        keys, suite, case = request.group.cases(), request.group.suite, request.group.case
        try:
            traced = {side: self._clock(side, 0).kernels(suite, case) for side in self._trees}
            compared = {key: _compared(key, traced, request) for key in keys}
            pairs = {one: key for key, one in compared.items() if not isinstance(one, Verdict)}
            trials = {one: self._trials.setdefault(one, Trial(one.test, PAIRS)) for one in pairs}
            # In turn, so that kernels that are hard to tell apart leave time for the others.
            while time.monotonic() < deadline and not all(trial.over for trial in trials.values()):
                for one, trial in trials.items():
                    if not trial.over:
                        self._add_pair(trial, pairs[one], one)
            yield from (one if isinstance(one, Verdict) else trials[one].verdict(key) for key, one in compared.items())
        except TracingFailed as failed:
            self.close()
            yield from (Verdict(key, "na", str(failed)) for key in keys)

    def close(self) -> None:
        """End the compiling processes."""
        for clock in self._clocks.values():
            clock.close()
        self._clocks.clear()

    def _add_pair(self, trial: Trial, key: SeriesKey, compared: _Compared) -> None:
        """Compile the kernels of base and head once more; which of the two comes first alternates from pair to pair."""
        order = ("base", "head") if sum(map(len, trial.passes)) % 2 else ("head", "base")
        kernels = {"base": compared.base, "head": compared.head}
        seconds = {side: self._seconds(side, len(trial.passes) - 1, key, kernels[side]) for side in order}
        base, head = seconds["base"], seconds["head"]
        if base is not None and head is not None:
            trial.add(Measured(base, head))
        elif head is None:
            trial.refusal = Verdict(key, "failed", "a kernel of head does not compile", in_base=base is None)
        else:
            trial.refusal = Verdict(key, "new", "nothing to compare with: a kernel of base does not compile")

    def _seconds(self, side: str, number: int, key: SeriesKey, kernels: Kernels) -> float | None:
        """Return the seconds to compile ``kernels`` of base or head (``side``); ``None`` if a kernel cannot compile."""
        clock = self._clock(side, number)
        clock.kernels(key.suite, key.case)  # the second pass's process has not traced them yet
        seconds = clock.clock(kernels, REPEATS)
        return (
            math.fsum(min(seconds[kernel]) for kernel in kernels)
            if all(kernel in seconds for kernel in kernels)
            else None
        )

    def _clock(self, side: str, number: int) -> CompileClock:
        """Return the process that times the compilations of base or head (``side``) in a pass (``number``)."""
        if (side, number) not in self._clocks:
            self._clocks[side, number] = CompileClock(self._trees[side], self._benchmark_dir, self._target)
        return self._clocks[side, number]


def _compared(
    key: SeriesKey, traced: Mapping[str, Mapping[str, Kernels | str]], request: GroupRequest
) -> _Compared | Verdict:
    """Return what is compared in a case, or the verdict on a case in which nothing can be."""
    kernels_of = {side: kernels.get(key.variant, f"{side} has no such variant") for side, kernels in traced.items()}
    base, head = kernels_of["base"], kernels_of["head"]
    if isinstance(base, str) or isinstance(head, str):
        return Verdict(key, "na", f"its kernels are not known: {head if isinstance(head, str) else base}")
    if not base and not head:
        return Verdict(key, "same", "no Triton kernel is compiled", unchanged=True)
    if not base or not head:
        return Verdict(key, "removed" if base else "new", f"{'head' if base else 'base'} compiles no Triton kernel")
    test = request.tests[key.variant]
    return _Compared(base, head, replace(test, min_effect=max(LEAST, test.min_effect)))
