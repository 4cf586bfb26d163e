"""The worker's side of the protocol between a worker process and its parent (``lockstep.processes.watched_worker``).

The worker reads JSON requests from standard input, one per line. It writes JSON events, one per line, to the file
descriptor that ``--reply`` names. It ends when its input ends. Before each step that may hang or crash, it sends a
``stage`` event, so that the parent knows which step was running. Output of kernels and compilers goes to the parent's
log.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from lockstep.processes.end_with_parent import end_with_parent
from lockstep.processes.exit_status import CONTEXT_LOST

#: Name of the request that ends a worker, and of the event that its process sends if it can become another worker.
END = "end worker"
IDLE = "idle"


class WorkerProcess:
    """This process as a worker: its command line, the requests it reads and the events it sends.

    Create it before slow imports: only from then on does the process end with its parent.

    Args:
        name: name of the program, for usage errors.

    Attributes:
        parser: parser of the command line; add the worker's own arguments, then call ``parse``.
    """

    def __init__(self, name: str) -> None:
        end_with_parent()
        self.parser = argparse.ArgumentParser(prog=name)
        self.parser.add_argument("--reply", type=int, required=True, help="file descriptor on which to send events")

    def parse(self) -> argparse.Namespace:
        """Parse the worker's command line, and open the pipe on which it sends events to the parent."""
        options = self.parser.parse_args()
        self._reply = os.fdopen(options.reply, "w", buffering=1, encoding="utf-8")
        return options

    def emit(self, event: str, **content: Any) -> None:
        """Send an event with these fields to the parent, as one line of JSON."""
        self._reply.write(json.dumps({"event": event, **content}) + "\n")

    def stage(self, stage: str, variant: str = "") -> None:
        """Tell the parent which stage begins, before the stage may hang or crash.

        ``variant`` is the variant to blame if the process dies in this stage; "" if all variants run in it.
        """
        self.emit("stage", stage=stage, variant=variant)

    def lost(self, variant: str, reason: str, rule: str = "") -> int:
        """Tell the parent that a variant broke the CUDA context or a rule; return the status to exit with."""
        self.emit("lost", variant=variant, reason=reason, rule=rule)
        return CONTEXT_LOST

    def requests(self) -> Iterator[dict[str, Any]]:
        """Yield the parent's requests until standard input ends or the parent requests the end."""
        yield from itertools.takewhile(lambda request: END not in request, map(json.loads, sys.stdin))
