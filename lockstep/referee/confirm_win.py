"""Measure a candidate and its incumbent again, each in its own process; the judging process imports no candidate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial

from lockstep.record.model import Record
from lockstep.referee.bench import open_problem
from lockstep.referee.problem_definition import ProblemDefinition, Submission
from lockstep.suite.case import Case
from lockstep.timing.device import open_device
from lockstep.timing.isolation import isolated_judge
from lockstep.timing.isolation.confirm_isolated import confirm
from lockstep.timing.isolation.contestant_process import template_for
from lockstep.timing.isolation.isolated_time import Isolated


@dataclass(frozen=True)
class Entrant:
    """How to start the process that runs a submission, or the problem's own incumbent (``None``), for a judge."""

    source: ProblemDefinition
    submission: Submission | None
    silence_s: float
    module: str = "lockstep.referee.candidate_process"

    def arguments(self, suite: str, variant: str) -> list[str]:
        """Return the command line arguments of ``lockstep.referee.candidate_process``."""
        candidate = self.submission and asdict(self.submission)
        return ["--problem", json.dumps(asdict(self.source)), "--candidate", json.dumps(candidate)]


class Judge:
    """Confirms or refuses the records of a problem's candidates by measuring each candidate again in its own process.

    Args:
        silence_s: seconds that a candidate may be silent before it counts as hung.

    Raises:
        SuiteError: the problem cannot be used.
    """

    def __init__(self, source: ProblemDefinition, silence_s: float) -> None:
        self._source, self._silence_s = source, silence_s
        device = open_device()
        self._problem = open_problem(source, device)
        self._template = template_for(Entrant.module)
        self._judge = isolated_judge.Judge(device, self._template)

    def confirm(self, candidate: Submission, incumbent: Submission | None, records: Sequence[Record]) -> list[Record]:
        """Judge candidate and incumbent again, each in a process of its own. Return their records with the outcome.

        The outcome is that of ``lockstep.timing.isolation.confirm_isolated.confirm``: a refused record is failed, and a
        speedup that is not confirmed is replaced.

        Args:
            incumbent: the submission to compare with; None for the problem's own incumbent.
            records: records of both from the first measurement, at all cases.
        """
        suite = self._problem.against(incumbent.name if incumbent else self._problem.name)

        def judged(case: Case, variant: str) -> Isolated:
            submission = candidate if variant == candidate.name else incumbent
            return self._judge.judge(Entrant(self._source, submission, self._silence_s), suite, case, variant)

        return [
            confirmed
            for case in self._problem.cases
            for confirmed in confirm([record for record in records if record.case == case.label], partial(judged, case))
        ]

    def close(self) -> None:
        """End the process that starts contestants, free the memory, and remove the contestants' files."""
        self._judge.close()
        self._template.close()
