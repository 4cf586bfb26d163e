"""Observe cases in several worker processes at once: while one compiles a kernel, the others capture.

Triton compiles a kernel at its first call, so no kernel is compiled that no case calls. The processes share Triton's
cache on disk. They end before anything is timed.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from lockstep.gate.model import Group
from lockstep.gate.worker_client import GateWorker, Setup
from lockstep.machine_code.model import CaseKey
from lockstep.processes.watched_worker import WorkerDied
from lockstep.same_work.work import Observed

#: Maximum number of processes: each takes some 600 MB of the GPU's memory and a second to create its context.
MOST = 12


class Observers:
    """Worker processes that observe groups of cases; they start when the object is created."""

    def __init__(self, setup: Setup, silence_s: float, count: int) -> None:
        self._setup = setup
        self._silence_s = silence_s
        self._workers = [GateWorker(setup, silence_s) for _ in range(count)]
        self._closed = False

    def observe(self, groups: Iterable[Group], deadline: float) -> dict[CaseKey, Observed]:
        """Observe groups until all are observed or the time is up; return what was seen of each case.

        Cases that kill a worker, and cases that nobody reached, are left out. No group begins after ``deadline``, on
        ``time.monotonic()``'s clock. Raise ``WorkerDied`` if no worker starts.
        """
        waiting, observed = deque(groups), dict[CaseKey, Observed]()
        with ThreadPoolExecutor(len(self._workers)) as threads:
            runs = [threads.submit(self._run, worker, waiting, observed, deadline) for worker in self._workers]
            try:
                failures = [failure for run in runs if (failure := run.result())]
            except BaseException:  # an interruption: the threads must end
                self.close()
                raise
        if len(failures) == len(runs):
            raise failures[0]
        return observed

    def _run(
        self, worker: GateWorker, waiting: deque[Group], observed: dict[CaseKey, Observed], deadline: float
    ) -> WorkerDied | None:
        """Observe waiting groups in one worker, and end it. Return why it did not start, if it did not."""
        try:
            worker.ready()
            while waiting and time.monotonic() < deadline and not self._closed:
                try:
                    group = waiting.popleft()
                except IndexError:  # another thread was faster
                    break
                remaining = list(group.variants)
                while remaining and time.monotonic() < deadline and not self._closed:
                    try:
                        for variant, one in worker.observe(replace(group, variants=tuple(remaining))):
                            observed[CaseKey(group.suite, variant, group.case)] = one
                            remaining.remove(variant)
                    except WorkerDied as died:
                        # The case is measured later, which says how it fails.
                        culprit = died.variant.partition("@")[0]
                        remaining.remove(culprit if culprit in remaining else remaining[0])
                        worker.close(patience_s=0.0)
                        worker = GateWorker(self._setup, self._silence_s)
                        worker.ready()
        except WorkerDied as died:
            return died
        finally:
            worker.close(patience_s=0.0)
        return None

    def close(self) -> None:
        """End all workers at once, also those that observe."""
        self._closed = True
        for worker in self._workers:
            worker.kill()


def observers_here() -> int:
    """Return how many processes observe at once: two fewer than there are processors."""
    return max(1, min(MOST, len(os.sched_getaffinity(0)) - 2))
