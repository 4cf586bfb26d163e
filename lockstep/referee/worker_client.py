"""Start the referee's worker process, and let it measure candidates."""

from __future__ import annotations

import json
from dataclasses import asdict

from lockstep.processes.watched_worker import Watched
from lockstep.record.file import record_from
from lockstep.record.model import Record
from lockstep.referee.error_rate import Stage
from lockstep.referee.problem_definition import ProblemDefinition, Refused, Submission
from lockstep.suite.definition import SuiteError


class RefereeWorker(Watched):
    """A running worker process that judges candidates for one problem: a suite, or a task of another benchmark.

    Attributes:
        incumbent: name of the implementation that the problem itself gives as the one to beat, or "".
    """

    def __init__(self, source: ProblemDefinition, silence_s: float) -> None:
        """Start the worker and wait until it has opened the problem.

        Args:
            silence_s: seconds without an event after which the worker counts as hung. A check includes compilation and
                may take twice as long.

        Raises:
            WorkerDied: the worker did not start.
            SuiteError: the problem cannot be used.
        """
        arguments = ["--problem", json.dumps(asdict(source))]
        super().__init__("lockstep.referee.worker", arguments, silence_s, 2 * silence_s)
        ready = self.started()
        if ready["unusable"]:
            self.close()
            raise SuiteError(ready["unusable"])
        self.host: dict[str, str] = ready["host"]
        self.incumbent: str = ready["incumbent"]

    def measure(
        self, candidate: Submission | None, incumbent: Submission | None, stage: Stage, seed: int
    ) -> list[Record]:
        """Measure a candidate in the worker; arguments and records are those of ``Bench.measure``.

        Raises:
            WorkerDied: the worker hung, died or lost its CUDA context; start another worker.
            Refused: the candidate's file cannot be used.
        """
        submissions = {"candidate": candidate and asdict(candidate), "incumbent": incumbent and asdict(incumbent)}
        self.ask({"measure": submissions | {"stage": stage, "seed": seed}})
        event = self.wait("records")
        if event["refused"]:
            raise Refused(event["refused"], event["rule"])
        return [record_from(row) for row in event["records"]]
