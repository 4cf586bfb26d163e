"""Trace and compile one tree in a worker process (``lockstep.machine_code.worker``), and skip variants that kill it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.gpu.triton_assembler import ASSEMBLER, own_assembler
from lockstep.machine_code.compiling.compiler_facts import CompilerFacts, facts_from
from lockstep.machine_code.model import (
    CaseCode,
    CaseKey,
    KernelCode,
    environment_from,
    kernel_code_from,
    memory_from,
)
from lockstep.machine_code.targets import Target
from lockstep.processes.toolchain import INSTALLED, Toolchain
from lockstep.processes.watched_worker import Watched, WorkerDied

#: Seconds without an event after which a worker counts as hung. Compiling a batch of kernels takes less time.
SILENCE_S = 300.0


class TracingFailed(RuntimeError):
    """The worker process that traces a tree does not start or dies; the message ends with the last line it printed."""


class TooSlow(RuntimeError):
    """Tracing and compiling the trees took longer than the limit that the caller gave."""


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
    """Traces and compiles one tree. The worker process starts on demand; ``close`` ends it."""

    def __init__(
        self,
        tree: Tree,
        benchmark_dir: Path,
        processes: int,
        cases: Mapping[str, Sequence[str]] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare to trace and compile a tree. The first request starts the worker process.

        Args:
            tree: the sources of the packages under test.
            benchmark_dir: folder of the current suites.
            processes: maximum number of processes that compile at once.
            cases: case labels by suite; ``None`` for all cases.
            variables: environment variables that are set for the worker, besides those of this process.
        """
        self.tree = tree
        self._variables = variables or {}
        self._cases = cases
        self._benchmark_dir = benchmark_dir
        self._processes = processes
        self._worker: Watched | None = None
        self._skip: dict[str, str] = {}
        self._traced: list[dict[str, Any]] = []
        self._codes: dict[tuple[str, str, str], dict[CaseKey, CaseCode]] = {}
        self._stopped = False

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def trace(
        self, suites: Iterable[str], target: Target, cases: Mapping[str, Sequence[str]] | None = None
    ) -> dict[CaseKey, CaseCode]:
        """Return the code of these suites' cases, or only of those listed in ``cases``, with no kernel compiled.

        Raises:
            TracingFailed: the worker does not start.
        """
        request = {"suites": list(suites), "target": target.spell()}
        if any(former["target"] != request["target"] for former in self._traced):
            self.close()  # modules may have stored answers of the other target when they were imported
        while True:
            try:
                event = self._ask({"trace": {**request, "skip": self._skip, "cases": cases or self._cases}}, "traced")
            except WorkerDied as died:
                self.close()
                if not died.variant:
                    raise TracingFailed(f"tracing {self.tree.label} failed: {died.how}") from died
                self._skip[died.variant] = f"cannot be followed without a GPU ({died.how})"
                continue
            self._traced.append(request)
            kernels = {row["identity"]: kernel_code_from(row) for row in event["kernels"]}
            return {
                CaseKey(suite, variant, case): CaseCode(
                    tuple(kernels[identity] for identity in identities),
                    tuple(host),
                    unknown,
                    environment_from(event["environment"]),
                    absent,
                    memory_from(memory),
                )
                for suite, variant, case, identities, host, unknown, absent, memory in event["cases"]
            }

    def trace_case(self, suite: str, case: str, target: Target) -> dict[CaseKey, CaseCode]:
        """Return the code of all variants at one case, as ``trace`` does. Later calls for this case repeat the result.

        Args:
            suite, case: the suite, and the label of the case.

        Raises:
            TracingFailed: the worker does not start.
        """
        key = suite, case, target.spell()
        if key not in self._codes:
            # A variant may end the worker meanwhile, which empties ``_codes``.
            codes = self.trace([suite], target, {suite: [case]})
            self._codes[key] = codes
        return self._codes[key]

    def build(self, identities: Iterable[str], suites: Iterable[str], target: Target) -> dict[str, KernelCode]:
        """Return kernels with their machine code, by identity.

        Args:
            identities: identities of kernels that these suites launch.
            suites: suites that the worker process traces first, unless it has traced them before.

        Raises:
            TracingFailed: the worker does not start, or dies.
        """
        request = {"suites": list(suites), "target": target.spell()}
        if request not in self._traced:
            self.trace(suites, target)
        try:
            event = self._ask({"build": {"target": request["target"], "identities": list(identities)}}, "built")
        except WorkerDied as died:
            self.close()
            raise TracingFailed(f"compiling {self.tree.label} failed: {died.how}") from died
        return {row["identity"]: kernel_code_from(row) for row in event["kernels"]}

    def describe(self, target: Target) -> CompilerFacts:
        """Return the versions and the default options of the compiler. Raises the errors of ``trace``."""
        try:
            return facts_from(self._ask({"describe": {"target": target.spell()}}, "described"))
        except WorkerDied as died:
            self.close()
            raise TracingFailed(f"describing the compiler of {self.tree.label} failed: {died.how}") from died

    def clock(self, identities: Sequence[str], target: Target, repeats: int) -> dict[str, tuple[float, ...]]:
        """Return the seconds that each kernel takes to compile, by identity; those that do not compile are left out.

        Args:
            identities: identities of kernels that the running worker has traced.
            repeats: how often each kernel is compiled, each time with an empty cache.

        Raises:
            TracingFailed: the worker dies.
        """
        request = {"target": target.spell(), "identities": list(identities), "repeats": repeats}
        try:
            seconds = self._ask({"clock": request}, "clocked")["seconds"]
        except WorkerDied as died:
            self.close()
            raise TracingFailed(f"timing the compiler of {self.tree.label} failed: {died.how}") from died
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
        arguments += ["--processes", str(self._processes), "--packages", *self.tree.packages]
        # Triton's interpreter compiles nothing, and a CUDA context would take memory on the GPU.
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment |= {**self._variables, "CUDA_VISIBLE_DEVICES": ""}
        toolchain = self.tree.toolchain
        if toolchain != INSTALLED and environment.get(ASSEMBLER) == str(own_assembler()):
            del environment[ASSEMBLER]  # ``keep_toolchain`` of this process set it to the installed Triton's
        return Watched(
            "lockstep.machine_code.worker", arguments, SILENCE_S, environment=environment, folders=toolchain.folders
        )

    def _ask(self, request: Mapping[str, Any], answer: str) -> dict[str, Any]:
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
        self._worker.ask(dict(request))
        return self._worker.wait(answer)
