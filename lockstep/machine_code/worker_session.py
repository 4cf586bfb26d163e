"""Trace and compile one tree in a worker process (``lockstep.machine_code.worker``), and skip variants that kill it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from lockstep.gpu.triton_assembler import ASSEMBLER, own_assembler
from lockstep.machine_code.model import CaseCode, CaseKey, KernelCode
from lockstep.machine_code.targets import Target
from lockstep.processes.exit_status import Unusable
from lockstep.processes.toolchain import INSTALLED
from lockstep.processes.watched_worker import Watched, WorkerDied
from lockstep.processes.worker import spelled, typed
from lockstep.suite.commit_sources import Tree

#: Seconds without an event after which a worker counts as hung. Compiling a batch of kernels takes less time.
SILENCE_S = 300.0

#: Seconds that a worker may take to end.
WAIT_S = 2.0


class TracingFailed(Unusable):
    """The worker process that traces a tree does not start or dies; the message ends with the last line it printed."""


@dataclass(frozen=True)
class Specification:
    """What a worker traces and compiles; ``Session`` and ``Tree`` describe the fields."""

    benchmark_dir: Path
    root: Path
    packages: tuple[str, ...]
    target: Target
    processes: int


class Session:
    """A process that traces and compiles one tree for one target. It starts on demand, and ``close`` ends it.

    Methods that need the process raise ``TracingFailed`` if it does not start, or dies. At most ``processes`` processes
    compile at once.
    """

    def __init__(self, tree: Tree, target: Target, benchmark_dir: Path, processes: int) -> None:
        self.tree = tree
        self.target = target
        self._benchmark_dir = benchmark_dir
        self._processes = processes
        self._worker: Watched | None = None
        self._skip: dict[str, str] = {}
        self._stopped = False
        self._traced: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def trace(self, suites: Iterable[str], cases: Mapping[str, Sequence[str]] | None = None) -> dict[CaseKey, CaseCode]:
        """Return the code of these suites' cases (labels by suite, None for all) with no kernel compiled.

        Variants that kill the process are unknown.
        """
        names = list(suites)
        while True:
            try:
                event = self.request("tracing", "traced", trace={"suites": names, "skip": self._skip, "cases": cases})
                break
            except TracingFailed as failed:
                if not isinstance(died := failed.__cause__, WorkerDied) or not died.variant:
                    raise
                self._skip[died.variant] = f"cannot be followed without a GPU ({died.how})"
        self._traced.update(names)
        kernels = {row["identity"]: typed(KernelCode, row) for row in event["kernels"]}
        return {
            CaseKey(*key): replace(
                typed(CaseCode, row),
                kernels=tuple(replace(kernels[identity], configuration=text) for identity, text in launches),
            )
            for key, launches, row in event["cases"]
        }

    def request(self, doing: str, answer: str, **request: Any) -> dict[str, Any]:
        """Return the answer of the process, started if needed; ``TracingFailed`` says what it was ``doing``."""
        try:
            if self._worker is None:
                self._worker = self._start()
                if not self._stopped:
                    self._worker.wait("ready")
            if self._stopped:
                raise WorkerDied("", "stopped")
            self._worker.ask(request)
            return self._worker.wait(answer)
        except WorkerDied as died:
            self.close()
            raise TracingFailed(f"{doing} {self.tree.label} failed: {died.how}") from died

    def stop(self) -> None:
        """Make another thread's request, and every later request, fail at once; ``close`` must still be called."""
        self._stopped = True
        worker = self._worker  # the other thread may close it meanwhile
        if worker is not None:
            worker.kill()

    def close(self) -> None:
        """End the process, if there is one, and the processes that its compilers started."""
        worker, self._worker = self._worker, None
        self._traced.clear()
        if worker is not None:
            worker.close(patience_s=0.0 if self._stopped else WAIT_S)

    def _start(self) -> Watched:
        tree = self.tree
        specification = Specification(self._benchmark_dir, tree.root, tree.packages, self.target, self._processes)
        # Triton's interpreter compiles nothing, and a CUDA context would take memory on the GPU.
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment["CUDA_VISIBLE_DEVICES"] = ""
        if self.target.gpu:
            environment["LOCKSTEP_KERNEL_GPU"] = self.target.gpu  # kernels may depend on the name of the GPU
        toolchain = tree.toolchain
        if toolchain != INSTALLED and environment.get(ASSEMBLER) == str(own_assembler()):
            del environment[ASSEMBLER]  # ``keep_toolchain`` of this process set it to the installed Triton's
        return Watched(
            "lockstep.machine_code.worker",
            [spelled(specification)],
            SILENCE_S,
            environment=environment,
            folders=toolchain.folders,
            warm=True,
        )
