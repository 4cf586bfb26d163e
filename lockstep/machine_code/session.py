"""The parent's side of ``lockstep.machine_code.worker``: trace and compile one tree, without variants that kill it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.machine_code.model import (
    CaseCode,
    CaseKey,
    KernelCode,
    environment_from,
    kernel_code_from,
    memory_from,
)
from lockstep.machine_code.targets import Target
from lockstep.processes.watched import Watched, WorkerDied

#: Seconds without an event after which a worker counts as hung. Compiling a batch of kernels takes less.
SILENCE_S = 300.0


class TracingFailed(RuntimeError):
    """The worker does not start, or dies whatever it does; the message ends with what it printed last."""


class TooSlow(RuntimeError):
    """Tracing and compiling took longer than they may."""


@dataclass(frozen=True)
class Tree:
    """Sources of the packages under test.

    Attributes:
        name: as the user called it: "HEAD~1", "."; for messages.
        root: folder that holds the packages.
        packages: top-level packages under test.
        trusted: further packages that they may call without leaving what is traced.
    """

    name: str
    root: Path
    packages: tuple[str, ...]
    trusted: tuple[str, ...] = ()


class Session:
    """Traces and compiles one tree. The process starts when it is needed; ``close`` ends it."""

    def __init__(
        self, tree: Tree, benchmark_dir: Path, processes: int, cases: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Args: the tree; today's suites; processes that compiling may use at once; cases of each suite, or all."""
        self.tree = tree
        self._cases = cases
        self._benchmark_dir = benchmark_dir
        self._processes = processes
        self._worker: Watched | None = None
        self._skip: dict[str, str] = {}
        self._traced: list[dict[str, Any]] = []
        self._stopped = False

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def trace(self, suites: Iterable[str], target: Target) -> dict[CaseKey, CaseCode]:
        """Code of these suites' cases, nothing compiled.

        Raises:
            TracingFailed: the worker does not come up.
        """
        asked = {"suites": list(suites), "target": target.spell()}
        if any(former["target"] != asked["target"] for former in self._traced):
            self.close()  # what a module asked while it was imported was another target's answer
        while True:
            try:
                event = self._ask({"trace": {**asked, "skip": self._skip, "cases": self._cases}}, "traced")
            except WorkerDied as died:
                self.close()
                if not died.variant:
                    raise TracingFailed(f"{self.tree.name}: {died.how}") from died
                self._skip[died.variant] = f"cannot be followed without a GPU ({died.how})"
                continue
            self._traced.append(asked)
            kernels = {row["identity"]: kernel_code_from(row) for row in event["kernels"]}
            return {
                CaseKey(suite, variant, case): CaseCode(
                    tuple(kernels[one] for one in identities),
                    tuple(host),
                    unknown,
                    environment_from(event["environment"]),
                    absent,
                    memory_from(memory),
                )
                for suite, variant, case, identities, host, unknown, absent, memory in event["cases"]
            }

    def build(self, identities: Iterable[str], suites: Iterable[str], target: Target) -> dict[str, KernelCode]:
        """Kernels with their machine code, by identity.

        Args:
            identities: of kernels that these suites launch.
            suites: traced first, if this process has not yet.
            target: that they were traced for.

        Raises:
            TracingFailed: the worker does not come up, or dies.
        """
        asked = {"suites": list(suites), "target": target.spell()}
        if asked not in self._traced:
            self.trace(suites, target)
        try:
            event = self._ask({"build": {"target": asked["target"], "identities": list(identities)}}, "built")
        except WorkerDied as died:
            self.close()
            raise TracingFailed(f"{self.tree.name}: {died.how}") from died
        return {row["identity"]: kernel_code_from(row) for row in event["kernels"]}

    def stop(self) -> None:
        """Let a request of another thread fail at once, and every further one; ``close`` still has to be called."""
        self._stopped = True
        worker = self._worker  # the other thread may close it meanwhile
        if worker is not None:
            worker.kill()

    def close(self) -> None:
        """End the process, if there is one, and whatever its compilers started."""
        worker, self._worker = self._worker, None
        self._traced.clear()
        if worker is not None:
            worker.close(patience_s=0.0)

    def _start(self) -> Watched:
        arguments = ["--benchmarks", str(self._benchmark_dir), "--tree", str(self.tree.root)]
        arguments += ["--processes", str(self._processes), "--packages", *self.tree.packages]
        arguments += ["--trusted", *self.tree.trusted]
        # Triton's interpreter compiles nothing, and a CUDA context would take memory on the GPU.
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment["CUDA_VISIBLE_DEVICES"] = ""
        return Watched("lockstep.machine_code.worker", arguments, SILENCE_S, environment=environment)

    def _ask(self, request: Mapping[str, Any], answer: str) -> dict[str, Any]:
        """Return the answer to a request.

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
