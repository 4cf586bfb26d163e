"""Trace and compile one tree, as a process that ``lockstep.machine_code.worker_session`` controls.

``lockstep.processes.worker`` describes the protocol. Requests: ``{"trace": {"suites", "target", "skip", "cases"}}``,
``{"build": {"target", "identities"}}``, ``{"clock": {"target", "identities", "repeats"}}`` and ``{"describe":
{"target"}}``. Events: ``ready``, ``stage`` (before a variant is traced), ``traced``, ``built``, ``clocked``,
``described``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from lockstep.machine_code.compiling.compiler_facts import compiler_facts
from lockstep.machine_code.family_files import definition_packages, family_files
from lockstep.machine_code.model import KernelCode, Memory
from lockstep.machine_code.targets import Target
from lockstep.machine_code.tracing.driver_stand_in import untraceable_triton
from lockstep.machine_code.tracing.read_environment import record_environment
from lockstep.machine_code.tracing.recorded_launches import Request
from lockstep.machine_code.tracing.trace_listener import heard_by
from lockstep.processes.import_torch import load_torch
from lockstep.processes.worker import WorkerProcess
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import skip_reason
from lockstep.suite.missing_files import without_tree

#: Suite, variant and case; then the steps of the host side, the requests to compile, the reason for distrust, whether
#: the tree lacks a name that the variant imports, and the device memory of the call.
Row = tuple[str, str, str, tuple[list[str], list[Request], str, bool, Memory | None]]


def main() -> int:
    """Trace and compile one tree: serve the parent's requests until standard input ends."""
    process = WorkerProcess("lockstep code worker")
    parser = process.parser
    parser.add_argument("--benchmarks", type=Path, required=True)
    parser.add_argument("--tree", type=Path, required=True)
    parser.add_argument("--packages", nargs="+", required=True)
    parser.add_argument("--processes", type=int, required=True)
    options = process.parse()
    load_torch()
    if too_old := untraceable_triton():
        sys.exit(too_old)

    # Imported here: torch and Triton are slow to import, and the process must first be tied to its parent.
    from lockstep.gpu.triton_assembler import keep_toolchain
    from lockstep.machine_code.compiling.reproducible_assembly import fix_addresses
    from lockstep.suite.checkout import import_from
    from lockstep.suite.discovery import load_suites

    fix_addresses()
    keep_toolchain()
    suites = load_suites(options.benchmarks)
    import_from(options.tree, options.packages)
    tracer = Tracer(suites, options.tree, options.packages, options.processes, process)
    process.emit("ready")
    for request in process.requests():
        if "trace" in request:
            tracer.trace(**request["trace"])
        elif "describe" in request:
            process.emit("described", **asdict(compiler_facts(Target.spelled(request["describe"]["target"]))))
        elif "clock" in request:
            tracer.clock(**request["clock"])
        else:
            tracer.build(**request["build"])
    return 0


class Tracer:
    """Traces suites of one tree, and stores a request to compile for each kernel that a variant launches."""

    def __init__(
        self,
        suites: Mapping[str, Suite],
        tree: Path,
        packages: Iterable[str],
        processes: int,
        process: WorkerProcess,
    ) -> None:
        self._suites = suites
        self._tree = tree
        self._packages = tuple(packages)
        # A suite's own variants are code under test as well: their questions about the machine decide what they do.
        own = {
            name for suite in suites.values() if suite.adapters for name in definition_packages(suite, self._packages)
        }
        self._under_test = frozenset({*self._packages, *own})
        self._environment = record_environment(self._under_test)
        #: What modules under test asked while they were imported, by their files.
        self._asked: dict[str, str] = {}
        self._answering: str | None = None
        self._processes = processes
        self._process = process
        self._requests: dict[tuple[str, str], tuple[Request, KernelCode]] = {}

    def trace(
        self,
        suites: Iterable[str],
        target: str,
        skip: Mapping[str, str],
        cases: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Trace the cases of these suites, and send the parent their code, with no kernel compiled.

        Args:
            target: text of ``Target.spell``.
            skip: reasons for variants ("suite variant") that must not be traced.
            cases: labels of the cases by suite; ``None`` for all cases.
        """
        # Imported here: torch and Triton are slow to import, and the process must first be tied to its parent.
        from lockstep.machine_code.compiling.build import Identification

        self._answer_as(target)
        chosen = [(self._suites[name], None if cases is None else cases[name]) for name in suites]
        traces = []
        with Identification(self._tree, self._processes) as identification:
            for chosen_suite, labels in chosen:
                for row in self._suite(chosen_suite, Target.spelled(target), skip, labels):
                    traces.append(row)
                    identification.add(row[3][1])
            identified = identification.finish()
        kernels = {id(request): kernel for request, kernel in identified}
        self._requests |= {(target, kernel.identity): (request, kernel) for request, kernel in identified}
        rows = []
        for suite, variant, case, (steps, requests, unknown, absent, memory) in traces:
            identities = [kernels[id(request)].identity for request in requests]
            rows.append([suite, variant, case, identities, steps, unknown, absent, memory])
        environment = sorted(self._environment.items())
        self._process.emit(
            "traced", kernels=[asdict(kernel) for kernel in kernels.values()], cases=rows, environment=environment
        )

    def build(self, target: str, identities: Iterable[str]) -> None:
        """Compile kernels that this process has traced, and send the parent their machine code."""
        # Imported here: torch and Triton are slow to import, and the process must first be tied to its parent.
        from lockstep.machine_code.compiling.build import build

        pairs = [self._requests[target, identity] for identity in identities]
        built = build([request for request, _ in pairs], [kernel for _, kernel in pairs], self._processes)
        self._process.emit("built", kernels=[asdict(kernel) for kernel in built])

    def clock(self, target: str, identities: Iterable[str], repeats: int) -> None:
        """Compile kernels that this process has traced, and report how long each takes."""
        # Imported here: torch and Triton are slow to import, and the process must first be tied to its parent.
        from lockstep.machine_code.compiling.build import compile_seconds

        requests = [self._requests[target, identity][0] for identity in identities]
        self._process.emit("clocked", seconds=compile_seconds(requests, repeats))

    def _answer_as(self, target: str) -> None:
        """Make torch and Triton report the target as the GPU, before modules under test are imported."""
        if self._answering is None:
            # Imported here: torch and Triton are slow to import, and the process must first be tied to its parent.
            from lockstep.machine_code.tracing.driver_stand_in import stand_in
            from lockstep.machine_code.tracing.simulated_target import answer_as

            stand_in(Target.spelled(target))
            answer_as(Target.spelled(target))
            self._answering = target
        if self._answering != target:
            raise ValueError(
                "this process already traces for another target, and modules may have stored facts of that target: "
                "start a new process"
            )

    def _suite(
        self, suite: Suite, target: Target, skip: Mapping[str, str], labels: Sequence[str] | None
    ) -> Iterator[Row]:
        # Imported here: torch and Triton are slow to import, and the process must first be tied to its parent.
        from lockstep.machine_code.tracing.trace import Importing, trace_case
        from lockstep.suite.variants import NotInCommit, load_family

        try:
            with heard_by(self._note_import, lambda step: None, None), Importing():  # type: ignore[no-untyped-call]
                family = load_family(suite)
        except NotInCommit as error:
            yield from self._unknown(suite, suite.variants(), f"no {error.lacks}", absent=True)
            return
        except Exception as error:
            yield from self._unknown(
                suite, suite.variants(), f"cannot be imported ({type(error).__name__}: {without_tree(str(error))})"
            )
            return
        distrust_reason = self._distrust_of_loading(suite)
        for variant in family.variants:
            if reason := skip.get(f"{suite.name} {variant}"):
                yield from self._unknown(suite, [variant], reason)
                continue
            self._process.stage("trace", f"{suite.name} {variant}")
            for case in suite.cases:
                if skip_reason(suite, variant, case) or (labels is not None and case.label not in labels):
                    continue  # never measured, or not requested
                try:
                    trace = trace_case(suite, case, family, variant, target, self._under_test)
                except NotInCommit as error:
                    yield suite.name, variant, case.label, ([], [], f"no {error.lacks}", True, None)
                    continue
                memory = None if distrust_reason else trace.memory
                traced = trace.steps, trace.requests, distrust_reason or trace.unknown, False, memory
                yield suite.name, variant, case.label, traced

    def _distrust_of_loading(self, suite: Suite) -> str:
        """Return a reason to distrust all traces of a suite: what its modules asked during their import. Else ""."""
        if not self._asked:
            return ""
        files = family_files(self._tree, self._packages, suite).files
        paths = {os.path.realpath(self._tree / name) for name in files}
        return next((reason for path, reason in self._asked.items() if os.path.realpath(path) in paths), "")

    def _note_import(self, reason: str) -> None:
        """Record a question of a module for every module under test that is being imported."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            module = str(frame.f_globals.get("__name__", ""))
            if module.partition(".")[0] in self._under_test:
                self._asked.setdefault(frame.f_code.co_filename, f"{reason} while {module} is imported")
            frame = frame.f_back

    @staticmethod
    def _unknown(suite: Suite, variants: Iterable[str], reason: str, *, absent: bool = False) -> Iterator[Row]:
        for variant in variants:
            for case in suite.cases:
                if not skip_reason(suite, variant, case):
                    yield suite.name, variant, case.label, ([], [], reason, absent, None)


if __name__ == "__main__":
    sys.exit(main())
