"""Run the gate once, from the names of two versions to a report."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lockstep.gate.compile_pairs import CompilePairs
from lockstep.gate.coordinator import Coordinator
from lockstep.gate.import_facts import Imports
from lockstep.gate.judge import Judge
from lockstep.gate.model import UNREACHED, SeriesKey, Verdict
from lockstep.gate.observers import Observers, observers_here
from lockstep.gate.plan import cases_here, groups, series, states_here
from lockstep.gate.report.report import Report
from lockstep.gate.request import Request, unfit_machine
from lockstep.gate.unchanged import Unchanged, compare_sources
from lockstep.gate.versions import Version, commits_between, version
from lockstep.gate.worker_client import Setup
from lockstep.gpu.nvml import NoGpu, Refused, all_gpus, find_gpu
from lockstep.gpu.nvml import Target as ClockTarget
from lockstep.processes.watched_worker import WorkerDied
from lockstep.record.counted import counted
from lockstep.suite.changed_text import changed_texts
from lockstep.suite.selection import expect_variants

#: Minimum seconds for observing, even if the budget is smaller.
LEAST_OBSERVATION_S = 60.0


def run(request: Request, say: Callable[[str], None]) -> Report:
    """Compare head with base. An interruption (Ctrl-C, or a SIGTERM converted to Ctrl-C) also ends in a report.

    Raise ``RefError`` if base or head is not a version in this repository. Raise ``SuiteError`` if no version has a
    requested variant.
    """
    started = time.monotonic()
    suites = counted(len(request.suites), "suite")
    say(f"comparing base {request.base} with head {request.head} by {suites}, in {request.budget_s:g} s")
    with contextlib.ExitStack() as folders:
        base, head = (
            folders.enter_context(version(request.repository, name, request.packages))
            for name in (request.base, request.head)
        )
        request = replace(request, about=(*request.about, *commits_between(request.repository, base, head)))
        comparison = _Run(request, base, head, say)
        interrupted, trouble = False, ""
        try:
            with _locked(request.lock):
                trouble = comparison.judge()
        except WorkerDied as died:
            trouble = f"the worker does not start: {died.how}"
        except (NoGpu, Refused) as refused:
            trouble = str(refused)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            comparison.close()
        return replace(comparison.report(interrupted=interrupted), trouble=trouble, wall_s=time.monotonic() - started)


@dataclass
class _Run:
    """One comparison of two versions, and what is known of it so far."""

    request: Request
    base: Version
    head: Version
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        request, base, head = self.request, self.base.tree, self.head.tree
        self._setup = Setup(
            base=base.root,
            head=head.root,
            packages=request.packages,
            benchmark_dir=request.benchmark_dir,
            suites=tuple(request.suites),
            seed=request.seed,
            quick=request.quick,
            tuned=request.tuned,
            retune=request.retune,
        )
        self._coordinator = Coordinator(self._setup, request.silence_s, self.say)
        self._compile_pairs = CompilePairs(base, head, request.benchmark_dir)
        self._observers: Observers | None = None
        self._imports = Imports()
        self._judge: Judge | None = None
        self._notes = list(changed_texts(request.suites.values(), self.base.commit.removesuffix("+dirty")))
        self._compared_s = 0.0

    def judge(self) -> str:
        """Compare the requested cases. Return why this machine cannot compare them, or ""."""
        request, started = self.request, time.monotonic()
        unchanged = replace(self._compare_sources(), measure_all=request.measure_all)
        self._imports = self._coordinator.start()
        machine = self._coordinator.machine
        self.say(f"both versions imported in {time.monotonic() - started:.0f} s")
        self._notes += [f"{n}: {c.reason}, so its cases were not compared" for n, c in self._imports.conflicts.items()]
        sides = self._imports.sides
        expect_variants(
            request.variants,
            request.suites.values(),
            [name for of_suite in sides.values() for facts in of_suite.values() for name in facts.variants],
        )
        on_cpu = machine["device"] == "cpu"
        cases, states = cases_here(request.suites, request.cases, on_cpu=on_cpu), states_here(request.l2, on_cpu=on_cpu)
        if trouble := _unfit(request, machine, cases, states):
            return trouble
        keys = list(series(request.suites, cases, states, request.variants, sides))
        started = time.monotonic()
        unchanged = self._observe(keys, unchanged)
        self._compared_s = time.monotonic() - started
        self._judge = Judge(request, self._imports, unchanged, self._coordinator, self._compile_pairs, self.say)
        self._judge.run(keys)
        return self._judge.trouble()

    def report(self, *, interrupted: bool) -> Report:
        """Return the report of what is known."""
        request, judge = self.request, self._judge
        verdicts, default = judge.verdicts.values() if judge else (), request.thresholds.default
        return Report(
            base=self.base.label,
            head=self.head.label,
            min_effect=default.min_effect if request.min_effect is None else request.min_effect,
            confidence=default.confidence,
            budget_s=request.budget_s,
            seed=request.seed,
            machine=self._coordinator.machine,
            cases=tuple(_interrupted(verdict) for verdict in verdicts) if interrupted else tuple(verdicts),
            meter=tuple(judge.aa_verdicts if judge else ()),
            notes=(*self._notes, *(judge.notes if judge else ())),
            interrupted=interrupted,
            controls=self._coordinator.controls,
            absent=self._imports.absent,
            compared_s=self._compared_s,
        )

    def close(self) -> None:
        """End all processes at once."""
        if self._observers is not None:
            self._observers.close()
        self._compile_pairs.close()
        self._coordinator.close()

    def _compare_sources(self) -> Unchanged:
        """Find suites with equal sources. If others must be observed on a GPU, start the processes that observe."""
        suites = self.request.suites
        unchanged = compare_sources(self.base.tree, self.head.tree, suites.values())
        differing = tuple(name for name in suites if name not in unchanged.same_sources)
        self.say(f"{len(unchanged.same_sources)} of {len(suites)} suites have the same sources")
        to_observe = tuple(suites) if self.request.measure_all else differing
        if to_observe and find_gpu() is not None:
            setup = replace(self._setup, suites=to_observe)
            self._observers = Observers(setup, self.request.silence_s, observers_here())
        return unchanged

    def _observe(self, keys: Sequence[SeriesKey], unchanged: Unchanged) -> Unchanged:
        """Look on the GPU which cases give it the same work in base and head.

        If all cases are measured, this compiles their kernels and names what differs.
        """
        if self._observers is None or self._coordinator.machine["device"] == "cpu":
            return unchanged
        waiting = [key for key in keys if self._imports.on_both_sides(key) and not unchanged.same(key)]
        to_observe = groups(dict.fromkeys(replace(key, l2="") for key in waiting))
        random.Random(self.request.seed).shuffle(to_observe)  # other kernels are compiled at the same time
        self.say(f"observing {sum(len(group.variants) for group in to_observe)} cases")
        started = time.monotonic()
        observed = self._observers.observe(to_observe, started + max(LEAST_OBSERVATION_S, self.request.budget_s))
        same = sum(not seen.difference for seen in observed.values())
        if observed:
            told = f"observed on this GPU: {same} of {len(observed)} cases give it the same work"
            self._notes.append(told)
            self.say(f"{told} ({time.monotonic() - started:.0f} s)")
        return replace(unchanged, observed=observed)


def _interrupted(verdict: Verdict) -> Verdict:
    return replace(verdict, reason="interrupted before it") if verdict.reason == UNREACHED else verdict


def _unfit(
    request: Request, machine: Mapping[str, str], cases: Mapping[str, Sequence[str]], states: Sequence[str]
) -> str:
    if unfit := unfit_machine(machine, request.need_gpu, request.need_lock):
        return unfit
    if not states:
        return "a CPU measures no cases with a cold L2: leave --l2 cold out"
    if not any(cases.values()):
        quick = [f"{name} {case.label}" for name, suite in request.suites.items() for case in suite.quick]
        return f"this machine measures none of the selected cases; a CPU measures {', '.join(quick[:8]) or 'none'}"
    return ""


@contextlib.contextmanager
def _locked(target: ClockTarget | None) -> Iterator[None]:
    """Lock the clocks during the block, and reset them however it ends; ``NoGpu`` or ``Refused`` if that fails."""
    if target is None:
        yield
        return
    from lockstep.gpu.clock_lock import locked  # imports torch to verify the lock

    gpus = all_gpus()
    if len(gpus) > 1:
        raise NoGpu(f"--lock needs one GPU, and {len(gpus)} are visible; lock one by `lockstep clocks lock --gpu`")
    with locked(gpus[0], target):
        yield
