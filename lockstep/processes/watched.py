"""The parent's side of a worker, a process that may hang or die; ``lockstep.processes.worker`` is the other side.

Every worker is started, asked and watched here: the one that measures a commit, the gate's, and the one that traces and
compiles.
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.processes.children import kill_group, reap, start
from lockstep.processes.worker import CONTEXT_LOST

#: The folder that Lockstep is imported from, for ``PYTHONPATH`` of workers.
HOME = Path(__file__).parents[2]

#: Seconds without an event that a worker may take to start, however short its limit is afterwards: it imports torch,
#: which takes long on a busy machine.
START_S = 60.0

#: Seconds that a worker may take to end once it has reported a broken CUDA context.
LOST_S = 30.0


#: Rule that a worker breaks by its silence (``lockstep.timing.rules``, which imports torch's rooms).
HUNG = "hung"

#: A variant that hung or killed its worker at this many cases is not tried at further ones.
PATIENCE = 2

#: What a worker did when it died, by its last ``stage`` event.
_DOING = {
    "start": "at start",
    "load": "in its import",
    "trace": "while it was traced",
    "check": "in its check",
    "draw": "while its arguments were prepared",
    "capture": "while its calls were captured",
    "time": "while timing",
    "verify": "while its timed results were checked",
}


class WorkerDied(RuntimeError):
    """The worker hung, was killed or broke.

    Attributes:
        variant: the culprit, if one variant was running alone; "" while all were timed.
        how: a line for people: "hung for 120 s in its check", "killed by SIGSEGV while timing", …
        at_start: it did not come up, so another worker would not either.
        rule: name of the rule that was broken (``lockstep.timing.rules.Rule``), or "".
    """

    def __init__(self, variant: str, how: str, *, at_start: bool = False, rule: str = "") -> None:
        super().__init__(f"{variant or 'worker'}: {how}")
        self.variant = variant
        self.how = how
        self.at_start = at_start
        self.rule = rule


class Culprits:
    """Variants that hung or killed a worker; after ``PATIENCE`` cases a variant is not tried again."""

    def __init__(self) -> None:
        self._deaths: dict[tuple[str, str], list[WorkerDied]] = {}

    def add(self, suite: str, variant: str, died: WorkerDied) -> None:
        """Count one death."""
        self._deaths.setdefault((suite, variant), []).append(died)

    def refusal(self, suite: str, variant: str) -> str:
        """Return why the variant is not tried any more, or ""."""
        deaths = self._deaths.get((suite, variant), [])
        return f"not tried: {deaths[-1].how} at {len(deaths)} cases before" if len(deaths) >= PATIENCE else ""

    def rule(self, suite: str, variant: str) -> str:
        """Return the rule that the variant broke last, or ""."""
        deaths = self._deaths.get((suite, variant))
        return deaths[-1].rule if deaths else ""


class Watched:
    """A running worker. ``close`` it; it also ends when this process ends.

    Args:
        module: run as ``python -m``; it uses ``lockstep.processes.worker``.
        arguments: of its command line.
        silence_s: seconds without an event after which it counts as hung; its start may take ``START_S``.
        check_s: seconds that a check may take at least: it compiles what was not compiled ahead.
        environment: variables of the worker; by default those of this process.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        silence_s: float,
        check_s: float = 0.0,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.silence_s = silence_s
        self._least_s = {"start": START_S, "check": check_s}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 — lives as long as the worker
        ours, theirs = os.pipe()
        path = os.pathsep.join(part for part in (str(HOME), environment.get("PYTHONPATH", "")) if part)
        self._process = start(
            [sys.executable, "-m", module, "--reply", str(theirs), *arguments],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs,),
            env={**environment, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
        )
        os.close(theirs)
        self._events = ours
        self._buffer = b""
        self._stage, self._variant = "start", ""
        self._owes = False  # an answer

    def wait(self, answer: str) -> dict[str, Any]:
        """Wait for the next event of a kind and return it.

        Raises:
            WorkerDied: it hung, died or lost its CUDA context; start another one.
        """
        return next(event for event in self.until(answer) if event["event"] == answer)

    def until(self, answer: str) -> Iterator[dict[str, Any]]:
        """Yield events up to and including the next of a kind, without ``stage`` events. Raises as ``wait``."""
        while True:
            event = self._next()
            if event["event"] == "stage":
                self._stage, self._variant = event["stage"], event["variant"]
            elif event["event"] == "lost":
                reap(self._process, LOST_S)
                rule = event.get("rule", "")
                how = event["reason"] if rule else f"broke the CUDA context ({event['reason']})"
                raise WorkerDied(event["variant"], how, rule=rule)
            else:
                self._owes = self._owes and event["event"] != answer
                yield event
                if event["event"] == answer:
                    return

    def ask(self, request: dict[str, Any]) -> None:
        """Send a request; ``wait`` for its answer. Raises as ``wait``."""
        self._stage, self._variant, self._owes = "request", "", True
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._died()

    def kill(self) -> None:
        """Kill the worker from another thread: a ``wait`` under way raises ``WorkerDied``. Still ``close`` it."""
        kill_group(self._process)

    def close(self, patience_s: float = 5.0) -> None:
        """End the worker: kill it if it owes an answer or does not end by itself within ``patience_s`` seconds."""
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
                    self.kill()
                    self._process.wait()
                    how = f"hung for {patience:g} s {self._doing()}"
                    raise WorkerDied(self._variant, how, at_start=self._stage == "start", rule=HUNG)
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
        return _DOING.get(self._stage, "on a request")

    def _tail(self) -> str:
        """Return the last line that the worker printed."""
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 4096))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else ""
