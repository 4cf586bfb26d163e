"""Judge a variant from another process: the code under test can reach neither the clock nor the verdict.

The judge holds seeds, reference, clock and verdict, and never imports the code under test. It runs each variant in a
contestant process of its own (``lockstep.timing.isolation.trial``). ``lockstep.timing.isolation.isolated_time``
computes the time of a call from the times of the runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from lockstep.processes.template import Template
from lockstep.processes.watched_worker import WorkerDied
from lockstep.suite.case import Case
from lockstep.suite.definition import Suite, SuiteError
from lockstep.timing.device import Device
from lockstep.timing.isolation.arena import SharedBuffer
from lockstep.timing.isolation.isolated_time import SLACK_S, Isolated, require_growth, time_of_call, waiting
from lockstep.timing.isolation.trial import Launcher, Refused, Trial, arena_bytes
from lockstep.timing.stage_times import Stages

#: Runs of a contestant that do not resolve the time of a call are repeated: at most this many rounds in all, and none
#: that begins after this many seconds.
MOST_ROUNDS = 3
BUDGET_S = 10.0

#: Maximum number of contestants that compile at the same time.
COMPILERS = 8


@dataclass(frozen=True)
class Checkout:
    """The code under test, and the process that runs it: packages in a folder, suites, and a time limit.

    Attributes:
        folder: the folder from which the packages under test are imported.
        packages: names of these top-level packages.
        benchmark_dir: the folder with the modules of the suites.
        silence_s: seconds without an answer after which this process counts as hung and is killed.
        module: the module that this process runs.
    """

    folder: Path
    packages: tuple[str, ...]
    benchmark_dir: Path
    silence_s: float
    module: str = "lockstep.timing.isolation.contestant_process"

    def arguments(self, suite: str, variant: str) -> list[str]:
        """Return the command line arguments with which the contestant process runs one variant of a suite."""
        folders = [
            "--benchmarks",
            str(self.benchmark_dir),
            "--checkout",
            str(self.folder),
            "--packages",
            *self.packages,
        ]
        return [*folders, "--suite", suite, "--variant", variant]


class Judge:
    """Runs variants in separate processes, one after another, and judges them. Call ``close`` at the end.

    Args:
        device: the device on which variants run.
        template: the process from which these processes are forked, see
            ``lockstep.timing.isolation.contestant_process.template_for``; ``None`` starts each process anew.

    Attributes:
        stages: the seconds that judging took, by stage.
    """

    def __init__(self, device: Device, template: Template | None = None) -> None:
        self.stages = Stages()
        self._device, self._template = device, template
        self._shared: SharedBuffer | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="lockstep-", ignore_cleanup_errors=True)

    def judge(self, launcher: Launcher, suite: Suite, case: Case, variant: str) -> Isolated:
        """Run one variant at one case in a separate process, and judge the variant.

        Raises:
            Disqualified: outputs of a timed run are wrong, inputs or canary bytes changed, or the time does not grow
                with the number of calls.
            WorkerDied: the separate process hung or died.
            Refused: the variant raised an error.
            NotImplementedError: the variant or the suite cannot be judged this way; the message says why.
        """
        with contextlib.ExitStack() as stack:
            trial = Trial(stack, suite, case, variant, self._device, self.stages)
            shared = self._memory(stack, trial.layout.end)
            trial.start(launcher, shared, self._template, self._scratch(launcher, suite, variant))
            trial.idle()
            trial.load()
            trial.set_up()
            runs: dict[int, list[float]] = {length: [] for length in trial.lengths}
            deadline = perf_counter() + BUDGET_S
            for _ in range(MOST_ROUNDS):
                for length in trial.order():
                    runs[length].append(trial.run(length))
                isolated = time_of_call(trial.idle_s, runs, SLACK_S[self._device.kind], trial.notes)
                if (isolated.low > 0 and not waiting(trial.idle_s, runs)) or perf_counter() > deadline:
                    break
            require_growth(variant, trial.idle_s, runs)
            return isolated

    def compile(self, launcher: Launcher, suite: Suite, case: Case, variants: Sequence[str]) -> None:
        """Compile what ``judge`` will need, in a contestant (a separate process) of each variant, all at the same time.

        Each contestant writes to the cache of its own variant only, so no variant can change another's kernels. On a
        CPU nothing is compiled ahead. Errors are ignored: ``judge`` meets the same error and raises it.
        """
        if self._device.kind == "cpu":
            return

        def compiled(variant: str) -> None:
            ignored = contextlib.suppress(WorkerDied, Refused, NotImplementedError, SuiteError)
            with ignored, contextlib.ExitStack() as stack:
                trial = Trial(stack, suite, case, variant, self._device, Stages(), most_sets=2)
                trial.start(launcher, shared, self._template, self._scratch(launcher, suite, variant))
                trial.load()
                trial.set_up()

        with self.stages.stage("compile"), contextlib.ExitStack() as outer_stack:
            shared = self._memory(outer_stack, 0)
            with ThreadPoolExecutor(min(COMPILERS, len(os.sched_getaffinity(0)))) as pool:
                list(pool.map(compiled, variants))

    def close(self) -> None:
        """Free the memory shared with contestants, and remove their files. The template process continues."""
        self._folder.cleanup()
        if self._shared is not None:
            self._shared.close()
            self._shared = None

    def _memory(self, stack: contextlib.ExitStack, size: int) -> SharedBuffer:
        """Return memory of at least ``size`` bytes that two processes share until ``stack`` closes.

        On a GPU one allocation is used again and again: torch frees memory that is shared by CUDA's IPC only once the
        other process has released the memory, and a killed process never does.
        """
        torch_device = self._device.torch_device
        if self._device.kind != "cuda":
            shared = SharedBuffer(size, torch_device)
            stack.callback(shared.close)
            return shared
        if self._shared is None or self._shared.bytes.numel() < size:
            available = arena_bytes(self._device)
            self._shared = SharedBuffer(max(size, available + available // 16), torch_device)  # with canaries
        return self._shared

    def _scratch(self, launcher: Launcher, suite: Suite, variant: str) -> Path:
        """Return the only folder that the processes of a variant may write to, which holds its compiled kernels."""
        name = hashlib.sha256(repr(launcher.arguments(suite.name, variant)).encode()).hexdigest()[:16]
        folder = Path(self._folder.name, name)
        folder.mkdir(exist_ok=True)
        return folder
