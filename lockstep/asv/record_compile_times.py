"""Add the compile time to the records of a case, if it was requested."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lockstep.asv.worker_client import WorkerSpec
from lockstep.machine_code.compile_time import CompileClock
from lockstep.machine_code.targets import Target
from lockstep.machine_code.worker_session import TracingFailed
from lockstep.record.model import Record
from lockstep.suite.commit_sources import Tree
from lockstep.timing.intervals import estimated


class CompileCosts:
    """Measures the compile times of one commit, on the machine that measures the commit."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._clock: CompileClock | None = None

    def added(self, host: Mapping[str, str], suite: str, case: str, records: Sequence[Record]) -> list[Record]:
        """Return the records of a case with the cost ``compile``, or with a note that explains why there is none.

        A variant that launches no Triton kernel gets neither.
        """
        if host.get("device") != "cuda":
            return [_noted(record, "no compile: no GPU here to compile for") for record in records]
        if self._clock is None:
            tree = Tree("this commit", self._spec.checkout.resolve(), self._spec.packages)
            self._clock = CompileClock(tree, self._spec.benchmark_dir, Target.of_host(host))
        try:
            seconds = self._clock.seconds(suite, case, [record.variant for record in records])
        except TracingFailed as error:
            return [_noted(record, f"no compile: {error}") for record in records]
        return [_with_seconds(record, seconds.get(record.variant, ())) for record in records]

    def close(self) -> None:
        """End the compiler process, if it was started."""
        if self._clock is not None:
            self._clock.close()
            self._clock = None


def _with_seconds(record: Record, seconds: Sequence[float] | str) -> Record:
    if record.state != "ok" or not seconds:
        return record
    if isinstance(seconds, str):
        return _noted(record, f"no compile: {seconds}")
    return replace(record, costs={**record.costs, "compile": estimated([math.log(value) for value in seconds])})


def _noted(record: Record, note: str) -> Record:
    return replace(record, note="; ".join(filter(None, (record.note, note)))) if record.state == "ok" else record
