"""A worker's side of the protocol that ``lockstep.processes.watched`` speaks with it.

A worker reads one JSON request a line from standard input and writes one JSON event a line to the file descriptor that
``--reply`` names. It ends at the end of its input. Before anything that may hang or crash it emits a ``stage`` event,
so that the parent knows what ran. What kernels and compilers print goes to the parent's log.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from lockstep.processes.children import end_with_parent

#: Exit status of a worker whose CUDA context broke.
CONTEXT_LOST = 70


class WorkerProcess:
    """The process that serves requests. Create it first, before slow imports: the process then ends with its parent.

    Args:
        name: of the program, for usage errors.

    Attributes:
        parser: of the command line; add the worker's own arguments, then call ``parse``.
    """

    def __init__(self, name: str) -> None:
        end_with_parent()
        self.parser = argparse.ArgumentParser(prog=name)
        self.parser.add_argument("--reply", type=int, required=True, help="file descriptor for events")

    def parse(self) -> argparse.Namespace:
        """Parse the command line and open the way for events."""
        options = self.parser.parse_args()
        self._reply = os.fdopen(options.reply, "w", buffering=1, encoding="utf-8")
        return options

    def emit(self, event: str, **content: Any) -> None:
        """Send an event to the parent."""
        self._reply.write(json.dumps({"event": event, **content}) + "\n")

    def stage(self, stage: str, variant: str = "") -> None:
        """Report what begins; ``variant`` is the culprit if the process hangs or dies in it ("" for all variants)."""
        self.emit("stage", stage=stage, variant=variant)

    def lost(self, variant: str, reason: str, rule: str = "") -> int:
        """Report a broken CUDA context, or a process that broke a rule, and return the exit status to end with."""
        self.emit("lost", variant=variant, reason=reason, rule=rule)
        return CONTEXT_LOST

    def requests(self) -> Iterator[dict[str, Any]]:
        """Yield requests until standard input ends."""
        yield from map(json.loads, sys.stdin)
