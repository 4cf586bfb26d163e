"""The worker of one commit: imports torch and the commit's packages once, then serves requests to measure.

``lockstep.processes.worker`` has the protocol. Requests: ``{"measure": {"suite", "case", "l2", "variants", "failed",
"twins", "reference_mhz", "costs"}}``, ``{"works": {"suite", "case", "variants"}}`` and, for ordinary asv benchmarks,
``{"run": [asv_runner arguments], "cwd"}``. Events: ``ready``, ``stage``, ``records``, ``works``, ``ran``, ``lost``.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.asv.worker_client import WorkerSpec
from lockstep.machine_code.model import CaseCode, CaseKey
from lockstep.processes.import_torch import load_torch
from lockstep.processes.worker import WorkerProcess
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite

if TYPE_CHECKING:
    from lockstep.timing.measure import Measurer


def main() -> int:
    """Import and measure one commit: serve the parent's requests until standard input ends."""
    process = WorkerProcess()
    spec = process.specification(WorkerSpec)
    load_torch()
    from lockstep.suite.checkout import import_from
    from lockstep.suite.discovery import load_suites

    # Suites are loaded first: they come from the current checkout and read the variants' names from its packages.
    suites = load_suites(spec.benchmark_dir)
    import_from(spec.checkout, spec.packages)
    from lockstep.record.provenance import host_facts
    from lockstep.timing.device import open_device
    from lockstep.timing.epochs import QUICK, Plan
    from lockstep.timing.measure import Measurer
    from lockstep.timing.tuners.choices import Choices, where_of
    from lockstep.timing.tuners.held_choices import Tuners

    device = open_device()
    measurer = Measurer(
        device,
        QUICK if spec.quick else Plan.on(device),
        listener=process.stage,
        history=spec.history,
    )
    if spec.seed is not None:
        measurer.seed = measurer.places = spec.seed
    host = host_facts()
    tuners = measurer.tuners = Tuners(
        Choices(spec.tuned),
        device,
        where_of(host),
        spec.retune,
        spec.stored,
        tell=process.tell,
        apart=lambda: measurer.observer.apart(),
    )
    process.emit("ready", host=host)
    with tuners.held():
        return _serve(process, measurer, suites, host, spec)


def _serve(
    process: WorkerProcess, measurer: Measurer, suites: Mapping[str, Suite], host: Mapping[str, str], spec: WorkerSpec
) -> int:
    """Serve the parent's requests until standard input ends; return the exit status."""
    from lockstep.machine_code.observed import Observer
    from lockstep.timing.device import DeviceLost

    informed = False
    try:
        for request in process.requests():
            if "run" in request:
                code, out = _run(request["run"], request["cwd"])
                process.emit("ran", code=code, out=out)
                continue
            if not informed:
                # Not earlier: the parent compiles kernels ahead after the worker reports that it is ready.
                measurer.observer = Observer(_known_code(host, suites, spec.checkout, spec.packages))
                informed = True
            asked = request.get("works") or request["measure"]
            suite = suites[asked.pop("suite")]
            case = suite.case(asked.pop("case"))
            if "works" in request:
                process.emit("works", works=_works(measurer, suite, case, asked["variants"], spec.checkout))
                continue
            records = measurer.measure(suite, case, **asked)
            process.emit(
                "records",
                records=[asdict(record) for record in records],
                controls=measurer.controls_summary(),
                stages=measurer.stages.take(),
            )
    except DeviceLost as lost:
        return process.lost(lost.variant, lost.reason, lost.rule)
    return 0


def _works(measurer: Measurer, suite: Suite, case: Case, variants: Sequence[str], checkout: Path) -> Mapping[str, str]:
    """Return the digest of the work of each variant; nothing if the family cannot be imported."""
    from lockstep.same_work.variant_digests import works

    measurer.listener("load", "")
    try:
        family = measurer.load(suite)
    except (Exception, SystemExit):
        return {}  # measuring says why
    finally:
        measurer.trusted.accept_settings()
    trusted = measurer.trusted.with_variants(family.variants)
    names = list(dict.fromkeys([suite.baseline, *variants]))

    def begin(name: str) -> None:
        measurer.listener("check", name)

    return works(suite, case, names, family, measurer.device, trusted, checkout.resolve(), begin)


def _known_code(
    host: Mapping[str, str], suites: Mapping[str, Suite], checkout: Path, packages: Sequence[str]
) -> Mapping[CaseKey, CaseCode]:
    """Return the code of this tree's cases, as ``compile_ahead`` cached it; nothing on a CPU."""
    if host["device"] != "cuda":
        return {}
    from lockstep.machine_code.compiled_tree import Reader
    from lockstep.machine_code.targets import Target
    from lockstep.suite.commit_sources import Tree

    tree = Tree("this commit", checkout.resolve(), tuple(packages))
    return Reader(tree, suites.values(), Target.of_host(host)).cached()


def _run(arguments: list[str], cwd: str) -> tuple[int, str]:
    """Run an ordinary asv benchmark (``time_*``, ``track_*`` …) in this process; return its exit code and output."""
    # Imported here: asv's runner serves only ordinary asv benchmarks.
    from asv_runner.run import _run as run_benchmark

    printed = io.StringIO()
    before = Path.cwd()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            os.chdir(cwd)
            run_benchmark(arguments)
            code = 0
        except Exception:
            traceback.print_exc()
            code = 1
        finally:
            os.chdir(before)
    return code, printed.getvalue()


if __name__ == "__main__":
    sys.exit(main())
