"""Trace and compile one tree in a worker process (``lockstep.machine_code.worker``), and skip variants that kill it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.gpu.triton_assembler import ASSEMBLER, own_assembler
from lockstep.machine_code.compiling.compiler_facts import CompilerFacts
from lockstep.machine_code.model import CaseCode, CaseKey, KernelCode, call_from, kernel_code_from
from lockstep.machine_code.targets import Target
from lockstep.processes.toolchain import INSTALLED, Toolchain
from lockstep.processes.watched_worker import Watched, WorkerDied

#: Seconds without an event after which a worker counts as hung. Compiling a batch of kernels takes less time.
SILENCE_S = 300.0


class TracingFailed(RuntimeError):
    """The worker process that traces a tree does not start or dies; the message ends with the last line it printed."""


@dataclass(frozen=True)
class Tree:
    """The sources of the packages under test.

    Attributes:
        name: the user's name for the tree, such as "HEAD~1" or "."; for messages.
        root: folder that holds the packages.
        packages: top-level packages under test.
        toolchain: the compiler packages to use.
    """

    name: str
    root: Path
    packages: tuple[str, ...]
    toolchain: Toolchain = INSTALLED

    @property
    def label(self) -> str:
        """Return the tree's name, and its toolchain unless that is the installed one: "HEAD with triton==3.6.0"."""
        return self.name if self.toolchain == INSTALLED else f"{self.name} with {self.toolchain.name}"


class Session:
    """Traces and compiles one tree for one target. The worker process starts on demand; ``close`` ends it.

    Methods that need the worker raise ``TracingFailed`` if it does not start, or dies.
    """

    def __init__(
        self,
        tree: Tree,
        target: Target,
        benchmark_dir: Path,
        processes: int,
        cases: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Prepare to trace and compile a tree.

        Args:
            tree: the sources of the packages under test.
            target: the GPU to compile for.
            benchmark_dir: folder of the current suites.
            processes: maximum number of processes that compile at once.
            cases: case labels by suite; ``None`` for all cases.
        """
        self.tree = tree
        self._target = target
        self._cases = cases
        self._benchmark_dir = benchmark_dir
        self._processes = processes
        self._worker: Watched | None = None
        self._skip: dict[str, str] = {}
        self._traced: list[list[str]] = []
        self._codes: dict[tuple[str, str], dict[CaseKey, CaseCode]] = {}
        self._stopped = False

    def trace(self, suites: Iterable[str], cases: Mapping[str, Sequence[str]] | None = None) -> dict[CaseKey, CaseCode]:
        """Return the code of these suites' cases, or only of those listed in ``cases``, with no kernel compiled."""
        names = list(suites)
        while True:
            try:
                request = {"suites": names, "skip": self._skip, "cases": cases or self._cases}
                event = self._ask("traced", trace=request)
                break
            except WorkerDied as died:
                self.close()
                if not died.variant:
                    raise TracingFailed(f"tracing {self.tree.label} failed: {died.how}") from died
                self._skip[died.variant] = f"cannot be followed without a GPU ({died.how})"
        self._traced.append(names)
        kernels = {row["identity"]: kernel_code_from(row) for row in event["kernels"]}
        return {
            CaseKey(*key): CaseCode(
                tuple(kernels[identity] for identity in identities), tuple(host), unknown, absent, call_from(call)
            )
            for *key, identities, host, unknown, absent, call in event["cases"]
        }

    def trace_case(self, suite: str, case: str) -> dict[CaseKey, CaseCode]:
        """Return the code of all variants at one case, as ``trace`` does. A later call repeats the result."""
        if (suite, case) not in self._codes:
            # A variant may end the worker meanwhile, which empties ``_codes``.
            codes = self.trace([suite], {suite: [case]})
            self._codes[suite, case] = codes
        return self._codes[suite, case]

    def build(self, identities: Iterable[str], suites: Iterable[str]) -> dict[str, KernelCode]:
        """Return kernels with their machine code, by identity.

        Args:
            identities: identities of kernels that these suites launch.
            suites: suites that the worker process traces first, unless it has traced them before.
        """
        names = list(suites)
        if names not in self._traced:
            self.trace(names)
        event = self._answer("compiling", "built", build=list(identities))
        return {row["identity"]: kernel_code_from(row) for row in event["kernels"]}

    def describe(self) -> CompilerFacts:
        """Return the versions and the default options of the compiler."""
        event = self._answer("describing the compiler of", "described", describe={})
        return CompilerFacts(event["versions"], event["options"])

    def clock(self, identities: Sequence[str], repeats: int) -> dict[str, tuple[float, ...]]:
        """Return the seconds that each kernel takes to compile, by identity; those that do not compile are left out.

        Args:
            identities: identities of kernels that the running worker has traced.
            repeats: how often each kernel is compiled, each time with an empty cache.
        """
        request = {"identities": list(identities), "repeats": repeats}
        seconds = self._answer("timing the compiler of", "clocked", clock=request)["seconds"]
        return {identity: tuple(times) for identity, times in zip(identities, seconds, strict=True) if times}

    def stop(self) -> None:
        """Make another thread's request, and every later request, fail at once; ``close`` must still be called."""
        self._stopped = True
        worker = self._worker  # the other thread may close it meanwhile
        if worker is not None:
            worker.kill()

    def close(self) -> None:
        """End the worker process, if there is one, and the processes that its compilers started."""
        worker, self._worker = self._worker, None
        self._traced.clear()
        self._codes.clear()
        if worker is not None:
            worker.close(patience_s=0.0)

    def _start(self) -> Watched:
        arguments = ["--benchmarks", str(self._benchmark_dir), "--tree", str(self.tree.root)]
        arguments += ["--target", self._target.spell(), "--processes", str(self._processes)]
        arguments += ["--packages", *self.tree.packages]
        # Triton's interpreter compiles nothing, and a CUDA context would take memory on the GPU.
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment["CUDA_VISIBLE_DEVICES"] = ""
        if self._target.gpu:
            environment["LOCKSTEP_KERNEL_GPU"] = self._target.gpu  # kernels may depend on the name of the GPU
        toolchain = self.tree.toolchain
        if toolchain != INSTALLED and environment.get(ASSEMBLER) == str(own_assembler()):
            del environment[ASSEMBLER]  # ``keep_toolchain`` of this process set it to the installed Triton's
        return Watched(
            "lockstep.machine_code.worker", arguments, SILENCE_S, environment=environment, folders=toolchain.folders
        )

    def _answer(self, doing: str, answer: str, **request: Any) -> dict[str, Any]:
        try:
            return self._ask(answer, **request)
        except WorkerDied as died:
            self.close()
            raise TracingFailed(f"{doing} {self.tree.label} failed: {died.how}") from died

    def _ask(self, answer: str, **request: Any) -> dict[str, Any]:
        """Send a request to the worker, which is started if needed, and return the answer.

        Raises:
            WorkerDied: the worker ended or hung; ``variant`` is the "suite variant" that it was tracing, or "".
        """
        if self._worker is None:
            self._worker = self._start()
            if not self._stopped:
                self._worker.wait("ready")
        if self._stopped:
            raise WorkerDied("", "stopped")
        self._worker.ask(request)
        return self._worker.wait(answer)
