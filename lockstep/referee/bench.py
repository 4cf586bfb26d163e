"""Measure candidates of one problem together with their incumbent, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lockstep.machine_code.observed import Observer
from lockstep.record.model import Record
from lockstep.referee.error_rate import Stage
from lockstep.referee.flashinfer import flashinfer_problem
from lockstep.referee.kernelbench import kernelbench_problem
from lockstep.referee.problem import Candidate, Problem
from lockstep.referee.problem_definition import ProblemDefinition, Refused, Submission
from lockstep.referee.suites import suite_problem
from lockstep.suite.definition import Suite
from lockstep.timing.checks.check import brief
from lockstep.timing.device import Device
from lockstep.timing.interleave import Plan
from lockstep.timing.measure import Listener, Measurer
from lockstep.timing.rules.rule import Disqualified

#: Duration of each stage. A stage takes a fixed number of epochs, as its fixed-sample test requires.
PLANS: Mapping[Stage, Plan] = {
    "screen": Plan(replay_s=2e-3, rounds=4, min_epochs=3, max_epochs=3, budget_s=3.0, warmup_s=0.05),
    "repeat": Plan(min_epochs=9, max_epochs=9, budget_s=9.0),
    "final": Plan(min_epochs=24, max_epochs=24, budget_s=24.0),
}


def open_problem(source: ProblemDefinition, device: Device) -> Problem:
    """Read the problem that ``source`` describes: of a suite, of KernelBench, or of FlashInfer-Bench.

    Raises:
        SuiteError: the definition is incomplete; the message says what is missing.
        OSError: a file cannot be read.
    """
    kinds = {"suite": suite_problem, "kernelbench": kernelbench_problem, "flashinfer": flashinfer_problem}
    return kinds[source.kind](source, device)


class Bench:
    """Measures one candidate at a time beside the incumbent. Reuses controls, checks and incumbent for all candidates.

    Args:
        listener: called before each step that may hang; see ``Measurer``.
    """

    def __init__(self, problem: Problem, device: Device, listener: Listener = lambda stage, variant: None) -> None:
        self._problem = problem
        self._measurer = Measurer(device, PLANS["screen"], listener=listener)
        self._loaded: dict[str, Candidate] = {problem.name: problem.incumbent} if problem.incumbent else {}
        self._suites: dict[str, Suite] = {}

    def measure(
        self, candidate: Submission | None, incumbent: Submission | None, stage: Stage, seed: int
    ) -> list[Record]:
        """Return the records of the incumbent and of the candidate, case by case, the incumbent's first.

        Args:
            candidate: the candidate to judge; None measures the incumbent alone.
            incumbent: the submission to compare with; None for the problem's own incumbent.
            stage: "screen", "repeat" or "final", which decides the duration.
            seed: seed of checked inputs, placement of buffers, and order; a candidate must not know the seed.

        Raises:
            Refused: a candidate's file cannot be loaded.
            DeviceLost: a variant broke the CUDA context.
        """
        rival = incumbent.name if incumbent else self._problem.name
        submissions = {submission.name: submission for submission in (incumbent, candidate) if submission}
        self._loaded = {
            name: loaded for name, loaded in self._loaded.items() if name in {*submissions, self._problem.name}
        }
        for name, submission in submissions.items():
            if name not in self._loaded:
                self._loaded[name] = self._load(submission)
        family = self._problem.family({name: self._loaded[name] for name in (rival, *submissions)})
        measurer = self._measurer
        measurer.plan, measurer.seed, measurer.places = PLANS[stage], seed, seed
        measurer.load = lambda suite: family
        # a new observer, because an observer keeps the kernels of every candidate it has seen
        measurer.observer = Observer()
        if rival not in self._suites:
            self._suites = {rival: self._problem.against(rival)}
        suite, names = self._suites[rival], [candidate.name] if candidate else []
        return [
            record for case in self._problem.cases for record in measurer.measure(suite, case, self._problem.l2, names)
        ]

    def _load(self, submission: Submission) -> Candidate:
        self._measurer.listener("load", submission.name)
        try:
            with self._measurer.trusted.guarding():
                return self._problem.load(Path(submission.path), submission.function)
        except Disqualified as error:
            raise Refused(f"the candidate's import {error.evidence}", error.rule) from error
        except (Exception, SystemExit) as error:
            raise Refused(f"the candidate's file cannot be loaded: {brief(error)}") from error
