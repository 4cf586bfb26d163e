"""Find out the work of every commit of a run before any case is timed, several commits at once.

To capture a call takes milliseconds, to start a process and compile takes seconds; only the GPU's times need the GPU
alone. A kernel that tunes itself has no known work until its choice is stored, so what is still unknown is asked again
after the first commit was measured. Commits with equal files of a suite are asked once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from lockstep.asv.coordinator import CommitWorker
from lockstep.asv.survey import Case, Planned
from lockstep.asv.worker_client import Worker, WorkerDied, WorkerSpec
from lockstep.record.file import records_path
from lockstep.suite.commit_sources import RefError, sources
from lockstep.suite.definition import Suite
from lockstep.suite.family_files import sources_digest

#: Digests of the work of a case's variants, by suite, digest of the suite's files, and case.
Works = dict[tuple[str, str, str], Mapping[str, str]]

#: GPU memory of all processes together is what limits their number.
_MOST = 24


def without_records(commits: Sequence[str], folder: Path, environment: str) -> list[str]:
    """Return the commits of which a machine's folder of results holds no records."""
    # asv uses eight digits of the hash in the names of its files.
    return [commit for commit in commits if not records_path(folder, commit, environment).exists()]


@dataclass
class Scouts:
    """Processes that ask for the work of commits; ``spec`` is what a worker needs, with the checkout replaced."""

    spec: WorkerSpec
    repository: Path
    suites: Mapping[str, Suite]
    silence_s: float
    say: Callable[[str], None]
    make_worker: Callable[[WorkerSpec, float], Worker] = Worker
    works: Works = field(default_factory=dict)
    _choices: bytes | None = None
    _looks: int = 0

    @property
    def curious(self) -> bool:
        """Return whether to ask: at first, and once more if kernels were tuned since and some work is unknown."""
        if not self._looks:
            return True
        return self._looks == 1 and any(map(self._unknown, self.works)) and self._tuned() != self._choices

    def _unknown(self, key: tuple[str, str, str]) -> bool:
        return key not in self.works or "" in self.works[key].values()

    def _tuned(self) -> bytes:
        path = self.spec.tuned
        return path.read_bytes() if path is not None and path.exists() else b""

    def ask(self, commits: Sequence[str], plan: Mapping[Case, Planned]) -> None:
        """Ask for the work of every planned case of these commits that is not known."""
        self._choices, self._looks = self._tuned(), self._looks + 1
        cases: dict[tuple[str, str], list[str]] = {}
        for (suite, case, _), planned in plan.items():
            known = cases.setdefault((suite, case), [])
            known += [name for name in planned.variants if name not in known]
        names = sorted({suite for suite, _ in cases})
        processes = max(1, min(_MOST, len(os.sched_getaffinity(0)) - 1))
        with ExitStack() as trees, ThreadPoolExecutor(processes) as pool:
            seen: set[tuple[str, str]] = set()
            jobs = []
            for commit in commits:
                try:
                    tree = trees.enter_context(sources(commit, self.repository, self.spec.packages))
                except RefError:
                    continue  # asv says what is wrong
                digests = {name: sources_digest(tree.root, tree.packages, self.suites[name]) for name in names}
                new = {name: digest for name, digest in digests.items() if digest and (name, digest) not in seen}
                seen |= set(new.items())
                asked = {
                    (suite, case): variants
                    for (suite, case), variants in cases.items()
                    if suite in new and self._unknown((suite, new[suite], case))
                }
                if asked:
                    jobs.append(pool.submit(self._one, tree.root, new, asked))
            self.say(f"looking at the work of {len(jobs)} of {len(commits)} commits, {processes} at once")
            for job in jobs:
                job.result()

    def _one(self, folder: Path, digests: Mapping[str, str], cases: Mapping[tuple[str, str], Sequence[str]]) -> None:
        """Ask for the work of the cases of one commit; what kills a worker is left to the measurement."""
        spec = replace(self.spec, checkout=folder, stored=True)
        commit = CommitWorker(folder.name, spec, self.silence_s, say=self.say, make_worker=self.make_worker)
        with closing(commit) as worker, suppress(WorkerDied):
            for (suite, case), variants in cases.items():
                if works := worker.works(suite, case, variants):
                    self.works[suite, digests[suite], case] = works
