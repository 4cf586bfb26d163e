"""Trace and compile one tree, as a process that ``lockstep.machine_code.worker_session`` controls.

``lockstep.processes.worker`` describes the protocol. Requests: ``{"trace": {"suites", "skip", "cases"}}``, ``{"build":
identities}``, ``{"clock": {"identities", "repeats"}}`` and ``{"describe": {}}``. Events: ``ready``, ``stage`` (before a
variant is traced), ``traced``, ``built``, ``clocked``, ``described``.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.machine_code.model import KernelCode
from lockstep.machine_code.targets import Target
from lockstep.processes.import_torch import load_torch
from lockstep.processes.worker import WorkerProcess

if TYPE_CHECKING:
    from lockstep.machine_code.tracing.recorded_launches import Request


def main() -> int:
    """Trace and compile one tree: serve the parent's requests until standard input ends."""
    process = WorkerProcess("lockstep code worker")
    parser = process.parser
    parser.add_argument("--benchmarks", type=Path, required=True)
    parser.add_argument("--tree", type=Path, required=True)
    parser.add_argument("--target", type=Target.spelled, required=True)
    parser.add_argument("--packages", nargs="+", required=True)
    parser.add_argument("--processes", type=int, required=True)
    options = process.parse()
    load_torch()
    from lockstep.gpu.triton_assembler import keep_toolchain
    from lockstep.machine_code.compiling.build import build, compile_seconds, identify
    from lockstep.machine_code.compiling.compiler_facts import compiler_facts
    from lockstep.machine_code.tracing.simulated_target import untraceable_triton
    from lockstep.machine_code.tracing.trace_suites import Tracer
    from lockstep.suite.checkout import import_from
    from lockstep.suite.discovery import load_suites

    if too_old := untraceable_triton():
        sys.exit(too_old)
    keep_toolchain()
    suites = load_suites(options.benchmarks)
    import_from(options.tree, options.packages)
    tracer = Tracer(suites, options.tree, options.packages, options.target, process.stage)
    #: Requests to compile and kernels, by the identity of the kernel.
    traced: dict[str, tuple[Request, KernelCode]] = {}

    def beat() -> None:
        process.stage("compile")

    process.emit("ready")
    for request in process.requests():
        match request:
            case {"trace": wanted}:
                rows = tracer.trace(**wanted)
                launched = list(dict.fromkeys(launch for _, _, launches in rows for launch, _ in launches))
                kernels = dict(zip(launched, identify(launched, options.tree, options.processes, beat), strict=True))
                traced |= {kernel.identity: (launch, kernel) for launch, kernel in kernels.items()}
                cases = [
                    (key, [(kernels[launch].identity, text) for launch, text in launches], asdict(code))
                    for key, code, launches in rows
                ]
                process.emit("traced", kernels=list(map(asdict, kernels.values())), cases=cases)
            case {"build": wanted}:
                built = build([traced[identity] for identity in wanted], options.processes, beat)
                process.emit("built", kernels=list(map(asdict, built)))
            case {"clock": {"identities": wanted, "repeats": repeats}}:
                seconds = compile_seconds([traced[identity][0] for identity in wanted], repeats)
                process.emit("clocked", seconds=seconds)
            case _:
                process.emit("described", **asdict(compiler_facts(options.target)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
