"""Compare releases that one process cannot hold by suites: first their code, then times with warm L2."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from lockstep.gate.model import SeriesKey, Verdict
from lockstep.gate.report.report import Report
from lockstep.gate.request import Request, unfit_machine
from lockstep.machine_code.differences.compare import Comparison, compare
from lockstep.machine_code.differences.report import in_short
from lockstep.machine_code.model import CaseKey
from lockstep.machine_code.targets import Target
from lockstep.machine_code.worker_session import TracingFailed
from lockstep.processes.toolchain import Toolchain
from lockstep.processes.toolchain.release import Release
from lockstep.processes.worker import spelled
from lockstep.record.provenance import Host, ask_host
from lockstep.scripts.gate_script import Asked, gate_script
from lockstep.scripts.plan import SUITE_SCRIPT, Plan, SuitePoints
from lockstep.scripts.project import Project
from lockstep.suite.commit_sources import Tree
from lockstep.suite.definition import PROTOCOL_VERSION
from lockstep.suite.evaluate import skip_reason

#: Without a GPU, kernels are compiled for this one.
_WITHOUT_GPU = Target.parse("sm_90")

#: The reason of cases that are not timed.
SAME_CODE = "the same machine code"


def gate_suites(request: Request, releases: Sequence[Release], say: Callable[[str], None]) -> Report:
    """Return the report on the cases of suites under two releases of a compiled package.

    Of releases of Triton, cases with the same machine code are the same without timing. Raise ``RuntimeError`` if torch
    cannot be imported.
    """
    started, host = time.monotonic(), ask_host()
    points = list(_points(request, host))
    code = _compared_code(request, releases, host, say)
    same: dict[CaseKey, None] = {}
    if code is not None and not request.measure_all:
        same = dict.fromkeys(key for key in points if code.status(key) == "same")
    timed = [key for key in points if key not in same]
    default = request.thresholds.default
    report = Report(
        base=request.base,
        head=request.head,
        min_effect=request.min_effect or default.min_effect,
        confidence=default.confidence,
        budget_s=request.budget_s,
        seed=request.seed,
        machine={**host.facts, "clock_state": host.clock_label},
    )
    compared_s = time.monotonic() - started
    report = replace(report, trouble=unfit_machine(report.machine, request.need_gpu, request.need_lock))
    if timed and not report.trouble:
        report = _timed(request, report, timed, say)
    told = [f"{in_short(code)}, under {request.base} and {request.head}"] if code is not None else []
    return replace(
        report,
        cases=(
            *(_with_code(verdict, code) for verdict in report.cases),
            *(Verdict(_key(key), "same", SAME_CODE, unchanged=True) for key in same),
        ),
        notes=(*told, *report.notes),
        wall_s=time.monotonic() - started,
        compared_s=compared_s,
    )


def _points(request: Request, host: Host) -> Iterator[CaseKey]:
    """Yield the cases that the request selects and this machine measures."""
    for name, suite in request.suites.items():
        labels = request.cases[name]
        for case in suite.cases_on(host.facts["device"]):
            if labels is None or case.label in labels:
                for variant in request.variants or suite.variants():
                    if variant in suite.variants() and not skip_reason(suite, variant, case):
                        yield CaseKey(name, variant, case.label)


def _compared_code(
    request: Request, releases: Sequence[Release], host: Host, say: Callable[[str], None]
) -> Comparison | None:
    """Compile the kernels of the suites under two releases of Triton; ``None`` for other packages."""
    if not all("triton" in release.packages for release in releases):
        return None
    base, head = (
        Tree(".", request.repository, request.packages, Toolchain(release.name, (release.folder,)))
        for release in releases
    )
    target = Target.of_host(host.facts) if host.facts["device"] == "cuda" else _WITHOUT_GPU
    try:
        return compare(base, head, request.suites.values(), target, say=say)
    except TracingFailed as failed:
        say(f"the code is not compared: {failed}")
        return None


def _timed(request: Request, report: Report, points: Sequence[CaseKey], say: Callable[[str], None]) -> Report:
    """Return the report on the times of these cases."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        asked = SuitePoints(request.benchmark_dir, request.repository, request.packages, tuple(points))
        file.write(spelled(asked))
        file.flush()
        plan = Plan(
            suite="suites",
            sides={},
            packages=(),
            local={},
            arguments=(file.name,),
            budget_s=request.budget_s,
            min_effect=report.min_effect,
            confidence=report.confidence,
            seed=request.seed,
            quick=request.quick,
            version=f"{PROTOCOL_VERSION}.1",
            tuned=str(request.tuned or ""),
        )
        project = Project(SUITE_SCRIPT, SUITE_SCRIPT.parent, SUITE_SCRIPT.parent, (), {})
        timed = gate_script(Asked(project, request.base, request.head, plan, apart=True), say)
    return replace(timed, cases=tuple(map(_of_suite, timed.cases)), script="")


def _of_suite(verdict: Verdict) -> Verdict:
    """Return the verdict on a call as that on a case of a suite; that on the script itself as it is."""
    words = verdict.key.variant.split(" ", 2)
    key = _key(CaseKey(*words)) if len(words) == 3 else verdict.key
    return replace(verdict, key=key, file="", line=0)  # Lockstep's own script is not where the change is


def _key(key: CaseKey) -> SeriesKey:
    return SeriesKey(key.suite, key.variant, key.case, "warm")


def _with_code(verdict: Verdict, code: Comparison | None) -> Verdict:
    """Add to a verdict how the machine code of its case differs."""
    key = CaseKey(verdict.key.suite, verdict.key.variant, verdict.key.case)
    changes = code.changes if code is not None else ()
    return replace(verdict, code=tuple(str(change) for change in changes if key in change.cases))
