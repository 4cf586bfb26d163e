"""Open the problem that a ``ProblemDefinition`` describes."""

from __future__ import annotations

from lockstep.referee.flashinfer import flashinfer_problem
from lockstep.referee.kernelbench import kernelbench_problem
from lockstep.referee.problem import Problem
from lockstep.referee.problem_definition import ProblemDefinition
from lockstep.referee.suites import suite_problem
from lockstep.timing.device import Device


def open_problem(source: ProblemDefinition, device: Device) -> Problem:
    """Read the problem that ``source`` describes: of a suite, of KernelBench, or of FlashInfer-Bench.

    Raise ``SuiteError`` if the definition is incomplete; the message says what is missing. Raise ``OSError`` if a file
    cannot be read.
    """
    kinds = {"suite": suite_problem, "kernelbench": kernelbench_problem, "flashinfer": flashinfer_problem}
    return kinds[source.kind](source, device)
