"""What the detector says of each machine, computed once a state of the results and beside the pages.

Ten million points take the detector a minute; a page must not wait for it. So the analysis runs in a thread of its
own, pages say that it does, and ``version`` changes when it is there.
"""

from __future__ import annotations

import datetime
import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from weakref import WeakKeyDictionary

from dashboard.alerts.ranges import Ranges
from dashboard.alerts.watch import Picture, look
from dashboard.results.picture import Results
from lockstep.thresholds import Thresholds


class Findings:
    """Keeps an analysis for each machine of the results that are shown.

    Args:
        repo: a folder in the git repository that tells which commits lie between two.
        packages: folders of what is measured, relative to the repository's root.
        thresholds: what counts as a change.
        patience: seconds that a page waits for an analysis before it goes without.
    """

    def __init__(
        self,
        repo: Path,
        packages: Sequence[str] = (),
        thresholds: Thresholds | None = None,
        patience: float = 0.15,
    ) -> None:
        self.thresholds = thresholds or Thresholds()
        self._ranges = Ranges(repo, packages)
        self._patience = patience
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._numbers: WeakKeyDictionary[Results, int] = WeakKeyDictionary()
        self._next = itertools.count(1)
        self._jobs: WeakKeyDictionary[Results, dict[str, Future[Picture]]] = WeakKeyDictionary()

    def picture(self, results: Results, machine: str) -> Picture | None:
        """What is found on a machine; ``None`` while it is being looked for, and for an unknown machine."""
        if machine not in results.machines:
            return None
        with self._lock:
            # Not made before the first question: a server forks after it has built its pages.
            self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="findings")
            jobs = self._jobs.setdefault(results, {})
            if machine not in jobs:
                jobs[machine] = self._pool.submit(self._look, results, machine)
            job = jobs[machine]
        try:
            return job.result(self._patience)
        except NotYet:
            return None

    def version(self, results: Results) -> str:
        """Changes when the results or what is known of them changed; the same text means that nothing did."""
        with self._lock:
            if results not in self._numbers:
                self._numbers[results] = next(self._next)
            done = sum(job.done() for job in self._jobs.get(results, {}).values())
            return f"{self._numbers[results]}.{done}"

    def busy(self, results: Results) -> bool:
        """Whether something is being looked for that a page went without."""
        with self._lock:
            return not all(job.done() for job in self._jobs.get(results, {}).values())

    def _look(self, results: Results, machine: str) -> Picture:
        now = datetime.datetime.now(datetime.UTC)
        return look(results, self.thresholds, self._ranges, now, [machine])
