"""The referee's worker: opens one problem and measures candidates with their incumbent, one request at a time.

Requests: ``{"measure": {"candidate", "incumbent", "stage", "seed"}}``; candidate and incumbent are a ``Submission`` or
null. Events: ``ready`` (host, and the name of the problem's own incumbent or ""), ``unusable`` (the problem cannot be
opened), ``records`` (with the reason and the rule for which a candidate is refused, or ""), ``stage``, ``lost``.
``lockstep.processes.watched_worker`` describes how requests and events are sent.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from lockstep.processes.import_torch import load_torch
from lockstep.processes.worker import WorkerProcess


def main() -> int:
    """Open one problem and measure candidates: serve the parent's requests until standard input ends."""
    process = WorkerProcess("lockstep referee worker")
    process.parser.add_argument("--problem", type=json.loads, required=True, help="a ProblemDefinition as JSON")
    options = process.parse()
    load_torch()
    # Imported here: torch and Triton are slow to import, and the process must first be tied to its parent.
    from lockstep.record.provenance import host_facts
    from lockstep.referee.bench import Bench, open_problem
    from lockstep.referee.problem_definition import ProblemDefinition, Refused, Submission
    from lockstep.suite.definition import SuiteError
    from lockstep.timing.device import DeviceLost, open_device

    device = open_device()
    process.stage("load")
    try:
        problem = open_problem(ProblemDefinition(**options.problem), device)
    except (SuiteError, OSError) as error:
        process.emit("ready", host={}, incumbent="", unusable=str(error))
        return 0
    bench = Bench(problem, device, process.stage)
    own_incumbent = problem.name if problem.incumbent else ""
    process.emit("ready", host=host_facts(), incumbent=own_incumbent, unusable="")
    for request in process.requests():
        arguments = request["measure"]
        candidate, incumbent = (
            Submission(**submission) if submission else None
            for submission in (arguments["candidate"], arguments["incumbent"])
        )
        refused = rule = ""
        try:
            records = bench.measure(candidate, incumbent, arguments["stage"], arguments["seed"])
        except Refused as error:
            records, refused, rule = [], str(error), error.rule
        except DeviceLost as lost:
            return process.lost(lost.variant, lost.reason, lost.rule)
        process.emit("records", records=[asdict(record) for record in records], refused=refused, rule=rule)
    return 0


if __name__ == "__main__":
    sys.exit(main())
