"""Start the worker process of one commit, send it requests and return its answers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.processes.watched_worker import Watched, WorkerDied
from lockstep.processes.worker import spelled
from lockstep.record.file import record_from
from lockstep.record.model import Record

__all__ = ["Worker", "WorkerDied", "WorkerSpec"]


@dataclass(frozen=True)
class WorkerSpec:
    """The code that a worker imports, and the settings of its measurements.

    Attributes:
        checkout: tree with the packages under test.
        packages: top-level packages imported from the tree.
        benchmark_dir: folder of the current suites, with which every commit is measured.
        history: whether to leave out cases that a history does not measure.
        seed: seed of checked inputs, placement of buffers, and order; ``None`` for the seeds that a history uses.
        check_s: minimum seconds that a check may take; see ``lockstep.processes.watched_worker.Watched``.
        folders: folders of packages that precede the installed ones (``lockstep.processes.toolchain``).
        tuned: file of the choices of tuners; ``None`` to hold choices for the life of the worker only.
        retune: whether tuners choose for themselves.
        stored: whether tuners take stored choices only.
        gpu: UUID of the GPU to measure on; "" for the one that CUDA chooses.
    """

    checkout: Path
    packages: tuple[str, ...]
    benchmark_dir: Path
    quick: bool = False
    history: bool = True
    seed: int | None = None
    check_s: float = 0.0
    folders: tuple[Path, ...] = ()
    tuned: Path | None = None
    retune: bool = False
    stored: bool = False
    gpu: str = ""


class Worker(Watched):
    """A running process that has imported the packages of one commit and measures them.

    Every method raises ``WorkerDied`` if the worker hangs, dies or loses its CUDA context; start another worker then.
    """

    def __init__(self, spec: WorkerSpec, silence_s: float) -> None:
        """Start the worker, and wait until it is ready. ``WorkerDied``: ``how`` ends with the last line it printed."""
        environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": spec.gpu} if spec.gpu else {})}
        super().__init__(
            "lockstep.asv.worker",
            [spelled(spec)],
            silence_s,
            spec.check_s,
            environment,
            folders=spec.folders,
            warm=True,
        )
        self.host: dict[str, str] = self.started()["host"]

    def measure(
        self,
        suite: str,
        case: str,
        l2: str,
        variants: Sequence[str],
        failed: Mapping[str, str],
        twins: Sequence[str] = (),
        reference_mhz: Mapping[str, float] | None = None,
        costs: Sequence[str] = (),
    ) -> tuple[list[Record], dict[str, dict[str, float | str]], dict[str, float]]:
        """Measure a case in the worker.

        Args:
            failed: why variants that killed a worker must not run again, by name.
            reference_mhz: SM clock of each variant's first measurement, to which times are normalised.

        Returns:
            The records, a summary of the worker's control timings so far (``lockstep.timing.controls``), and the
            seconds spent in each stage.
        """
        request: dict[str, Any] = {"suite": suite, "case": case, "l2": l2}
        request |= {"variants": list(variants), "failed": dict(failed), "twins": list(twins)}
        request |= {"reference_mhz": dict(reference_mhz or {}), "costs": list(costs)}
        self.ask({"measure": request})
        event = self.wait("records")
        return [record_from(row) for row in event["records"]], event["controls"], event["stages"]

    def works(self, suite: str, case: str, variants: Sequence[str]) -> dict[str, str]:
        """Return the digest of the work of variants and of the baseline (``lockstep.same_work.variant_digests``)."""
        self.ask({"works": {"suite": suite, "case": case, "variants": list(variants)}})
        return {str(name): str(digest) for name, digest in self.wait("works")["works"].items()}

    def run(self, arguments: Sequence[str], cwd: str) -> tuple[int, str]:
        """Run an ordinary asv benchmark; return its exit code and output."""
        self.ask({"run": list(arguments), "cwd": cwd})
        event = self.wait("ran")
        return int(event["code"]), str(event["out"])
