"""A process that may hang or die: started, asked, and watched by its parent.

It reads one JSON request a line from standard input, and writes one JSON event a line to the file descriptor
named by ``--reply``; whatever kernels and compilers print goes to a log. Before anything that may hang or
crash it tells a ``stage`` event, so that the parent knows what it was doing.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lockstep
from lockstep.processes.children import kill_group, reap, start

#: Exit status of a worker whose CUDA context broke. Here, because a module that is run by its name must
#: not have been imported by its package before: Python warns, and the warning is taken for last words.
CONTEXT_LOST = 70

#: Seconds without any event for which a worker may start, where a shorter silence counts as hung afterwards: it
#: imports torch, which takes long on a busy machine.
START_S = 60.0

#: Seconds that a worker may take to end once it has reported a broken CUDA context.
LOST_S = 30.0


class WorkerDied(RuntimeError):
    """The worker hung, was killed or broke; ``variant`` is what it was checking ("" while timing all).

    Attributes:
        variant: the culprit, if one variant was running alone.
        how: a line for people: "hung for 120 s", "killed by SIGSEGV", …
        at_start: it never came up, so another one would not either.
    """

    def __init__(self, variant: str, how: str, *, at_start: bool = False) -> None:
        super().__init__(f"{variant or 'worker'}: {how}")
        self.variant = variant
        self.how = how
        self.at_start = at_start


class Watched:
    """A running worker. ``close`` it, or let its standard input end with this process.

    Args:
        module: run as ``python -m``; it takes ``--reply``.
        arguments: of its command line.
        silence_s: seconds without any event after which it counts as hung; at its start it may take ``START_S``.
        check_s: seconds that a check may take at least: it compiles, where nothing was compiled ahead.
    """

    def __init__(self, module: str, arguments: Sequence[str], silence_s: float, check_s: float = 0.0) -> None:
        self.silence_s = silence_s
        self._least_s = {"start": START_S, "check": check_s}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 — lives as long as the worker
        ours, theirs = os.pipe()
        home = str(Path(lockstep.__file__).parents[1])
        path = os.pathsep.join(part for part in (home, os.environ.get("PYTHONPATH", "")) if part)
        self._process = start(
            [sys.executable, "-m", module, "--reply", str(theirs), *arguments],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs,),
            env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
        )
        os.close(theirs)
        self._events = ours
        self._buffer = b""
        self._stage, self._variant = "start", ""
        self._owes = False  # an answer

    def wait(self, answer: str) -> dict[str, Any]:
        """The next event of this kind.

        Raises:
            WorkerDied: it hung, died or lost its CUDA context; start another one.
        """
        return next(event for event in self.until(answer) if event["event"] == answer)

    def until(self, answer: str) -> Iterator[dict[str, Any]]:
        """Events up to and with the next of this kind; stages are noted and not handed on. Raises as ``wait``."""
        while True:
            event = self._next()
            if event["event"] == "stage":
                self._stage, self._variant = event["stage"], event["variant"]
            elif event["event"] == "lost":
                reap(self._process, LOST_S)
                raise WorkerDied(event["variant"], f"broke the CUDA context ({event['reason']})")
            else:
                self._owes = self._owes and event["event"] != answer
                yield event
                if event["event"] == answer:
                    return

    def ask(self, request: dict[str, Any]) -> None:
        """Hand over a request; ``wait`` for its answer. Raises as ``wait``."""
        self._stage, self._variant, self._owes = "request", "", True
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._died()

    def close(self, patience_s: float = 5.0) -> None:
        """End the worker, by force if it is at work or does not end by itself within ``patience_s`` seconds."""
        if self._log.closed:
            return
        if self._process.stdin and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        reap(self._process, 0.0 if self._owes else patience_s)
        os.close(self._events)
        self._log.close()

    def _next(self) -> dict[str, Any]:
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                patience = max(self._least_s.get(self._stage, 0.0), self.silence_s)
                if not selector.select(patience):
                    self._kill()
                    how = f"hung for {patience:g} s {self._doing()}"
                    raise WorkerDied(self._variant, how, at_start=self._stage == "start")
                chunk = os.read(self._events, 1 << 16)
                if not chunk:
                    self._died()
                self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        event: dict[str, Any] = json.loads(line)
        return event

    def _died(self) -> None:
        code = reap(self._process, LOST_S)
        if code == CONTEXT_LOST:
            how = "broke the CUDA context"
        elif code < 0:
            how = f"killed by {signal.Signals(-code).name} {self._doing()}"
        else:
            how = f"ended with exit status {code} {self._doing()}"
        tail = self._tail()
        how = f"{how}: {tail}" if tail else how
        raise WorkerDied(self._variant, how, at_start=self._stage == "start")

    def _doing(self) -> str:
        doing = {"start": "at start", "load": "in its import", "check": "in its check"}
        doing |= {
            "draw": "while its arguments were prepared",
            "capture": "while its calls were captured",
            "time": "while timing",
        }
        return doing.get(self._stage, "on a request")

    def _tail(self) -> str:
        """Last line the worker printed."""
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 4096))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def _kill(self) -> None:
        kill_group(self._process)
        self._process.wait()
