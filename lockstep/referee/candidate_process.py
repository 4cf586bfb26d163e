"""The process that runs one candidate for a judge (``lockstep.timing.isolation.contestant_process``)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.processes.import_torch import load_torch
from lockstep.processes.worker import WorkerProcess

if TYPE_CHECKING:
    from lockstep.suite.variants import Family


def main() -> int:
    """Run one candidate, or the problem's own incumbent: serve the judge's requests until standard input ends."""
    process = WorkerProcess("lockstep referee contestant")
    process.parser.add_argument("--problem", type=json.loads, required=True, help="a ProblemDefinition as JSON")
    process.parser.add_argument("--candidate", type=json.loads, required=True, help="a Submission as JSON, or null")
    process.parser.add_argument("--scratch", type=Path, required=True)
    options = process.parse()
    load_torch()
    # Imported here: torch is slow to import, and the process must first be tied to its parent.
    from lockstep.referee.bench import open_problem
    from lockstep.referee.problem_definition import ProblemDefinition, Submission
    from lockstep.timing.device import open_device
    from lockstep.timing.isolation.contestant_process import serve

    problem = open_problem(ProblemDefinition(**options.problem), open_device())

    def load() -> tuple[Family, str]:
        if options.candidate is None:
            assert problem.incumbent is not None, "without a candidate, the problem must have an incumbent"
            return problem.family({problem.name: problem.incumbent}), problem.name
        submission = Submission(**options.candidate)
        return problem.family(
            {submission.name: problem.load(Path(submission.path), submission.function)}
        ), submission.name

    return serve(process, options.scratch, load)


if __name__ == "__main__":
    sys.exit(main())
