"""The process that runs one candidate, or an incumbent, and nothing else (``lockstep.referee.contestant``).

This process holds no reference, no seed of inputs, no verdict, and no clock that the result depends on. Requests: first
``arena``, then ``idle`` any number of times, ``load``, and for each case ``case``, then ``run``. Each answer carries an
``error`` or "". The judge does not rely on these answers: it takes the time and reads the outputs itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lockstep.processes.import_torch import load_torch
from lockstep.processes.worker import WorkerProcess
from lockstep.referee.problem_definition import Contest
from lockstep.referee.sandbox import limit_resources

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.referee.problem import Candidate
    from lockstep.timing.device import Device


def main() -> int:
    """Run one candidate at the requests of a judge in another process, until standard input ends."""
    process = WorkerProcess()
    contest = process.specification(Contest)
    limit_resources()
    load_torch()
    import torch

    from lockstep.referee.arena import attach
    from lockstep.referee.open_problem import open_problem
    from lockstep.timing.checks.check import brief
    from lockstep.timing.device import open_device

    device = open_device()
    requests = process.requests()
    buffer = attach(next(requests)["arena"], device.torch_device)
    number = torch.zeros(1, device=device.torch_device)
    idle = device.capture([lambda: number.add_(1.0)], device.new_pool())
    candidate: Candidate | None = None
    replay: Callable[[], object] = idle
    process.emit("done", error="")
    for request in requests:
        [(verb, value)] = request.items()
        content = {}
        try:
            if verb == "load":
                problem = open_problem(contest.problem, device)
                candidate = problem.load(contest.candidate)
                content["prepares"] = candidate.prepares()
            elif verb == "case":
                assert candidate is not None, "the judge asks for load first"
                replay = bound(candidate, value, buffer, device)
            else:
                replay()
                device.synchronize()
            process.emit("done", error="", **content)
        except (Exception, SystemExit) as error:
            process.emit("done", error=brief(error))
    return 0


def bound(candidate: Candidate, sets: Sequence[Any], buffer: Tensor, device: Device) -> Callable[[], object]:
    """Compile the candidate for a case; return a replay of one call on each argument set.

    On a GPU the replay is a CUDA graph, or the plain calls if they cannot be captured. ``sets``: the argument sets in
    the shared ``buffer``, dicts of ``inputs``, ``out`` and ``results``.
    """
    from lockstep.referee.arena import decode
    from lockstep.timing.graph_capture import CaptureError

    calls = [candidate.call(**decode(text, buffer)) for text in sets]
    calls[0]()  # compiles
    device.synchronize()
    try:
        replay = device.capture(calls, device.new_pool())
        replay()  # the first launch of a graph also copies the graph to the GPU
    except CaptureError:

        def replay() -> None:
            for call in calls:
                call()

        replay()
    device.synchronize()
    return replay


if __name__ == "__main__":
    sys.exit(main())
