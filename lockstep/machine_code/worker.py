"""Trace and compile one tree, as a process that ``lockstep.machine_code.worker_session`` controls.

``lockstep.processes.worker`` describes the protocol. Requests: ``{"trace": {"suites", "skip", "cases"}}``, ``{"build":
identities}``, ``{"clock": {"identities", "repeats"}}`` and ``{"describe": {}}``. Events: ``ready``, ``stage`` (before a
variant is traced), ``traced``, ``built``, ``clocked``, ``described``.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from lockstep.machine_code.model import KernelCode
from lockstep.machine_code.worker_session import Specification
from lockstep.processes.import_torch import load_torch
from lockstep.processes.worker import WorkerProcess

if TYPE_CHECKING:
    from lockstep.machine_code.tracing.recorded_launches import Request


def main() -> int:
    """Trace and compile one tree: serve the parent's requests until standard input ends."""
    process = WorkerProcess()
    asked = process.specification(Specification)
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
    suites = load_suites(asked.benchmark_dir)
    import_from(asked.root, asked.packages)
    tracer = Tracer(suites, asked.root, asked.packages, asked.target, process.stage)
    #: Requests to compile and kernels, by the identity of the kernel.
    traced: dict[str, tuple[Request, KernelCode]] = {}

    beat = partial(process.stage, "compile")
    process.emit("ready")
    for request in process.requests():
        match request:
            case {"trace": wanted}:
                rows = tracer.trace(**wanted)
                launched = list(dict.fromkeys(launch for _, _, launches in rows for launch, _ in launches))
                kernels = dict(zip(launched, identify(launched, asked.root, asked.processes, beat), strict=True))
                traced |= {kernel.identity: (launch, kernel) for launch, kernel in kernels.items()}
                cases = [
                    (key, [(kernels[launch].identity, text) for launch, text in launches], asdict(code))
                    for key, code, launches in rows
                ]
                process.emit("traced", kernels=list(map(asdict, kernels.values())), cases=cases)
            case {"build": wanted}:
                built = build([traced[identity] for identity in wanted], asked.processes, beat)
                process.emit("built", kernels=list(map(asdict, built)))
            case {"clock": {"identities": wanted, "repeats": repeats}}:
                seconds = compile_seconds([traced[identity][0] for identity in wanted], repeats)
                process.emit("clocked", seconds=seconds)
            case _:
                process.emit("described", **asdict(compiler_facts(asked.target)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
