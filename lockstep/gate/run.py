"""Run the gate once, from the names of two versions to a report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from lockstep.gate.case_verdict import UNREACHED
from lockstep.gate.coordinator import Coordinator
from lockstep.gate.plan import Selection, select
from lockstep.gate.process_pairs.compile_pairs import CompilePairs
from lockstep.gate.report.report import Report
from lockstep.gate.request import Request
from lockstep.gate.trees import Version, commits_between, version
from lockstep.gate.unchanged import Unchanged, compare_sources, describe
from lockstep.gate.worker_client import Setup
from lockstep.gpu.nvml import NoGpu, Refused, all_gpus
from lockstep.gpu.nvml import Target as ClockTarget
from lockstep.machine_code import Target, TracingFailed, codes_of
from lockstep.processes.watched_worker import WorkerDied
from lockstep.suite.changed_text import changed_texts
from lockstep.suite.discovery import expect_variants

#: Minimum seconds for comparing the code, even if the budget is smaller.
LEAST_COMPARISON_S = 60.0


def run(request: Request, say: Callable[[str], None]) -> Report:
    """Compare head with base. An interruption (Ctrl-C, or a SIGTERM converted to Ctrl-C) also ends in a report.

    Raises:
        RefError: base or head is not a version in this repository.
        SuiteError: no version has a requested variant.
    """
    started = time.monotonic()
    with contextlib.ExitStack() as folders:
        base, head = (
            folders.enter_context(version(request.repository, name, request.packages))
            for name in (request.base, request.head)
        )
        setup = Setup(
            base=base.tree.root,
            head=head.tree.root,
            packages=request.packages,
            benchmark_dir=request.benchmark_dir,
            suites=tuple(request.suites),
            seed=request.seed,
            quick=request.quick,
        )
        request = replace(request, about=(*request.about, *commits_between(request.repository, base, head)))
        compile_pairs = CompilePairs(base.tree, head.tree, request.benchmark_dir)
        coordinator = Coordinator(setup, request, say, compile_pairs)
        coordinator.notes += changed_texts(request.suites.values(), base.commit.removesuffix("+dirty"))
        blank = Report(
            base=base.label,
            head=head.label,
            min_effect=request.thresholds.default.min_effect if request.min_effect is None else request.min_effect,
            confidence=request.thresholds.default.confidence,
            budget_s=request.budget_s,
            seed=request.seed,
        )
        try:
            with _locked(request.lock):
                trouble = _judge(request, coordinator, base, head, say)
        except WorkerDied as died:
            trouble = f"the worker does not start: {died.how}"
        except (NoGpu, Refused) as refused:
            trouble = str(refused)
        except KeyboardInterrupt:
            blank, trouble = replace(blank, interrupted=True), ""
            unreached = [key for key, verdict in coordinator.verdicts.items() if verdict.reason == UNREACHED]
            coordinator.verdicts |= {
                key: replace(coordinator.verdicts[key], reason="interrupted before it") for key in unreached
            }
        finally:
            coordinator.close()
        return replace(
            blank,
            machine=coordinator.machine,
            cases=tuple(coordinator.verdicts.values()),
            meter=tuple(coordinator.aa_verdicts),
            notes=tuple(coordinator.notes),
            controls=coordinator.controls,
            trouble=trouble,
            absent=coordinator.absent,
            wall_s=time.monotonic() - started,
            compared_s=coordinator.compared_s,
        )


def _judge(request: Request, coordinator: Coordinator, base: Version, head: Version, say: Callable[[str], None]) -> str:
    """Compare the requested cases. Return why this machine cannot compare them, or ""."""
    started = time.monotonic()
    machine = coordinator.start()
    say(f"both versions imported in {time.monotonic() - started:.0f} s")
    imported = [name for sides in coordinator.imported.values() for facts in sides.values() for name in facts.variants]
    expect_variants(request.variants, request.suites.values(), imported)
    selection = _select(request, machine)
    if trouble := _unfit(request, machine, selection):
        return trouble
    started = time.monotonic()
    unchanged = _look(request, coordinator, base, head, selection, say)
    coordinator.compared_s = time.monotonic() - started
    say(f"code compared in {coordinator.compared_s:.0f} s")
    coordinator.begin()
    coordinator.judge(selection, unchanged)
    return coordinator.trouble()


def _look(
    request: Request,
    coordinator: Coordinator,
    base: Version,
    head: Version,
    selection: Selection,
    say: Callable[[str], None],
) -> Unchanged:
    """Find the cases that the change does not affect, by equal sources and by their work on the GPU."""
    deadline = time.monotonic() + max(LEAST_COMPARISON_S, request.budget_s)
    unchanged = compare_sources(base.tree, head.tree, request.suites.values())
    differing = [suite for name, suite in request.suites.items() if name not in unchanged.same_sources]
    if coordinator.machine["device"] == "cpu":
        return replace(unchanged, measure_all=request.measure_all)
    if request.measure_all:
        _compile(request, coordinator.machine, (base, head), say)
    if differing:
        try:
            limit_s = deadline - time.monotonic()
            comparison, note = describe(base.tree, head.tree, differing, coordinator.machine, say, limit_s)
        except TracingFailed as failed:
            comparison, note = None, f"differences have no names: the code could not be traced ({failed})"
        unchanged = replace(unchanged, comparison=comparison)
        coordinator.notes += [note] if note else []
        if not request.measure_all:
            say(f"observing {', '.join(suite.name for suite in differing)}")
            unchanged = coordinator.observe(selection, unchanged, deadline)
    return replace(unchanged, measure_all=request.measure_all)


def _select(request: Request, machine: Mapping[str, str]) -> Selection:
    return select(
        request.suites, request.cases, on_cpu=machine["device"] == "cpu", l2=request.l2, variants=request.variants
    )


def _compile(
    request: Request, host: Mapping[str, str], versions: Sequence[Version], say: Callable[[str], None]
) -> None:
    """Compile both versions into Triton's cache, unless the comparison of their code has done so already."""
    if host["device"] == "cuda":
        for side in versions:
            codes_of(side.tree, request.suites.values(), Target.of_host(host), anew=True, say=say)


def _unfit(request: Request, machine: Mapping[str, str], selection: Selection) -> str:
    if request.need_gpu and machine["device"] == "cpu":
        return "there is no GPU, and --require-gpu asks for one"
    clocks = machine["clock_state"]
    if request.need_lock and not clocks.startswith(("locked", "base")):
        return f"clocks are {clocks}, but --require-locked asks for locked clocks (lockstep clocks lock, or --lock)"
    if not selection.states:
        return "a CPU measures no cases with a cold L2: leave --l2 cold out"
    if not any(selection.cases.values()):
        quick = [f"{name} {case.label}" for name, suite in request.suites.items() for case in suite.quick]
        return f"this machine measures none of the selected cases; a CPU measures {', '.join(quick[:8]) or 'none'}"
    return ""


@contextlib.contextmanager
def _locked(target: ClockTarget | None) -> Iterator[None]:
    """Lock the clocks during the block, and reset them however the block ends.

    Raises:
        NoGpu, Refused: there is no GPU, or its clocks cannot be locked.
    """
    if target is None:
        yield
        return
    from lockstep.gpu.clock_lock import locked  # imports torch to verify the lock

    gpus = all_gpus()
    if len(gpus) > 1:
        raise NoGpu(f"--lock needs one GPU, and {len(gpus)} are visible; lock one by `lockstep clocks lock --gpu`")
    with locked(gpus[0], target):
        yield
