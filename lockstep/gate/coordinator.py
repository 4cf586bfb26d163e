"""Measure cases in a worker process: start workers, survive crashes, find the variants that cause them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from lockstep.gate.import_facts import Conflict, Imports
from lockstep.gate.model import GroupRequest, SeriesKey, Verdict
from lockstep.gate.worker_client import GateWorker, Setup
from lockstep.processes.watched_worker import Culprits, WorkerDied


class Coordinator:
    """Measures cases in a worker, and starts a new one when it dies. ``machine``: its facts, with the clock state."""

    def __init__(self, setup: Setup, silence_s: float, say: Callable[[str], None]) -> None:
        self.machine: dict[str, str] = {}
        self.controls: Mapping[str, Mapping[str, float | str]] = {}
        self._setup = setup
        self._silence_s = silence_s
        self._say = say
        self._worker: GateWorker | None = None
        self._skipped: dict[str, str] = {}
        self._culprits = Culprits()

    def start(self) -> Imports:
        """Import both versions; return the results. Raise ``WorkerDied`` if no worker starts for another reason."""
        worker = self._ready()
        self.machine = {**worker.host, "clock_state": worker.clock_state}
        return Imports(worker.imported, self._skipped, self._conflicts(worker))

    def judge(self, requests: Sequence[GroupRequest], deadline: float) -> Iterator[Verdict]:
        """Yield the verdicts of some groups. When a variant kills the worker, a new worker judges the other cases.

        ``deadline``: time on ``time.monotonic()``'s clock after which no further epoch starts.
        """
        remaining = {key: None for request in requests for key in request.group.cases()}
        while True:
            for key in list(remaining):
                if refusal := self._culprits.refusal(key.suite, key.variant):
                    del remaining[key]
                    yield Verdict(key, "failed", refusal)
            if not remaining or (remaining_s := deadline - time.monotonic()) <= 0:
                return
            worker = self._ready()
            try:
                for verdict in worker.judge(_of(requests, remaining), remaining_s, self._say):
                    del remaining[verdict.key]
                    yield verdict
                self.controls = worker.controls
                return
            except WorkerDied as died:
                self.close()
                culprit = _culprit(worker, died, remaining)
                del remaining[culprit]
                self._say(f"{culprit}: {died.how}")
                self._culprits.add(culprit.suite, culprit.variant, died)
                yield Verdict(culprit, "failed", died.how, in_base=died.variant.endswith("@base"))

    def close(self) -> None:
        """End the worker at once."""
        if self._worker is not None:
            self._worker.close(patience_s=1.0)
            self._worker = None

    def _ready(self) -> GateWorker:
        """Return the worker. Start it if needed, without suites whose import hangs or kills the worker."""
        while self._worker is None:
            worker = GateWorker(replace(self._setup, skip=tuple(self._skipped)), self._silence_s)
            try:
                self._worker = worker.ready()
            except WorkerDied as died:
                if "@" not in died.variant:
                    raise
                self._skipped[died.variant] = died.how
                self._say(f"import of {died.variant}: {died.how}")
        return self._worker

    def _conflicts(self, worker: GateWorker) -> dict[str, Conflict]:
        """Find suites whose head can be imported only without base; their cases cannot be compared."""
        failing = {
            name: sides["head"].error
            for name, sides in worker.imported.items()
            if "head" in sides and sides["head"].error and "base" in sides and sides["base"].variants
        }
        if not failing:
            return {}
        alone = GateWorker(replace(self._setup, skip=tuple(self._skipped), alone="head"), self._silence_s).ready()
        alone.close()
        heads = {name: alone.imported.get(name, {}).get("head") for name in failing}
        return {name: Conflict(head, failing[name]) for name, head in heads.items() if head and head.variants}


def _of(requests: Sequence[GroupRequest], keys: Mapping[SeriesKey, None]) -> list[GroupRequest]:
    """Return the requests with only these cases, and without those that have none."""
    asked = []
    for request in requests:
        variants = tuple(key.variant for key in request.group.cases() if key in keys)
        if variants:
            asked.append(replace(request, group=replace(request.group, variants=variants)))
    return asked


def _culprit(worker: GateWorker, died: WorkerDied, remaining: Mapping[SeriesKey, None]) -> SeriesKey:
    """Return the case that killed the worker: of the group that it judged, the variant that ran, or else the first."""
    in_group = [key for key in worker.group.cases() if key in remaining] if worker.group else []
    variant = died.variant.partition("@")[0]
    return next((key for key in in_group if key.variant == variant), next(iter(in_group or remaining)))
