"""Start a worker process, send it requests, and notice when it hangs or dies.

This module runs in the parent process; ``lockstep.processes.worker`` runs in the worker. Workers measure a commit,
serve the gate, run one candidate for the referee, or trace and compile.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NoReturn

from lockstep.processes.end_with_parent import ended, kill_group, reap
from lockstep.processes.exit_status import CONTEXT_LOST, Unusable
from lockstep.processes.started_process import LOST_S, Started, WarmProcesses
from lockstep.processes.worker import END, IDLE

#: Minimum seconds without an event that a worker may take to start, even if its limit is shorter. A worker imports
#: torch, which takes long on a busy machine.
START_S = 60.0

#: Processes that have imported torch and can become workers.
_WARM = WarmProcesses()


#: Rule that a silent worker breaks: ``lockstep.timing.rules.rule.Rule.HUNG``, repeated because that package imports
#: torch.
HUNG = "hung"

#: Maximum bytes that a worker may print, and maximum bytes of one event: code under test may write without end.
MOST_PRINTED = 64 << 20
MOST_EVENT = 64 << 20

#: A request may take at most this many times the allowed silence. Otherwise a worker that sends events for ever would
#: never count as hung.
MOST_SILENCES = 60

#: Seconds between two checks of a silent worker: whether it has ended, and how much it has printed.
LOOK_S = 0.5

#: A variant is not tried at further cases after it hung or killed its worker at this many cases.
PATIENCE = 2

#: Phrase for messages that says what a worker was doing when it died, by its last ``stage`` event.
_DOING = {
    "start": "at start",
    "load": "in its import",
    "trace": "while it was traced",
    "observe": "while its work was observed",
    "check": "in its check",
    "draw": "while its arguments were prepared",
    "capture": "while its calls were captured",
    "time": "while timing",
    "verify": "while its timed results were checked",
}


class WorkerDied(Unusable):
    """The worker hung, was killed or failed.

    Attributes:
        variant: the variant that caused it, if one variant was running alone; "" while all variants were timed.
        how: a line for the user: "hung for 120 s in its check", "killed by SIGSEGV while timing", …
        at_start: whether the worker died before it was ready. A new worker would then die too.
        rule: name of the broken rule (``lockstep.timing.rules.rule.Rule``), or "".
        stage: the worker's stage, by its last ``stage`` event.
    """

    def __init__(self, variant: str, how: str, *, at_start: bool = False, rule: str = "", stage: str = "") -> None:
        super().__init__(f"the worker does not start: {how}" if at_start else f"{variant or 'worker'}: {how}")
        self.variant = variant
        self.how = how
        self.at_start = at_start
        self.rule = rule
        self.stage = stage


class Culprits:
    """Decide which variants are no longer tried: those that hung or killed workers at ``PATIENCE`` cases."""

    def __init__(self) -> None:
        self._deaths: dict[tuple[str, str], list[WorkerDied]] = {}

    def add(self, suite: str, variant: str, died: WorkerDied) -> None:
        """Record that this variant of a suite killed or hung a worker once more."""
        self._deaths.setdefault((suite, variant), []).append(died)

    def refusal(self, suite: str, variant: str) -> str:
        """Return the reason for not trying the variant again, or "" if it may be tried."""
        deaths = self._deaths.get((suite, variant), [])
        return f"not tried: {deaths[-1].how} at {len(deaths)} earlier cases" if len(deaths) >= PATIENCE else ""

    def rule(self, suite: str, variant: str) -> str:
        """Return the rule that the variant broke when it last killed or hung a worker; "" if it broke none."""
        deaths = self._deaths.get((suite, variant))
        return deaths[-1].rule if deaths else ""


class Watched:
    """A running worker process. Call ``close`` at the end. The worker also ends when this process ends.

    Args:
        module: module to run with ``python -m``; it uses ``lockstep.processes.worker``.
        arguments: the module's command line.
        silence_s: seconds without an event after which the worker counts as hung; its start may take ``START_S``.
        check_s: minimum seconds that a check may take, because a check compiles kernels that were not compiled ahead.
        environment: variables of the worker; by default the variables of this process.
        folders: folders of packages that precede all others on the worker's path.
        prefix: the beginning of the command line, of a program that runs the rest of it (a sandbox).
        warm: whether the worker is a fork of a process that has imported torch, unless ``folders`` may hold another.
        look: called with the worker's process id about every ``LOOK_S`` seconds of waiting; returns what the worker did
            that it may not do, as the predicate of a sentence, or "". The worker is then killed.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        silence_s: float,
        check_s: float = 0.0,
        environment: Mapping[str, str] = os.environ,
        pass_fds: Sequence[int] = (),
        folders: Sequence[Path] = (),
        prefix: Sequence[str] = (),
        warm: bool = False,
        look: Callable[[int], str] = lambda pid: "",
    ) -> None:
        self.silence_s = silence_s
        self._look = look
        self._requested_at = monotonic()
        self._least_s = {"start": START_S, "check": check_s}
        self._warm = warm and not folders
        if self._warm:
            self._started = _WARM.become(module, arguments, environment)
        else:
            self._started = Started([*prefix, sys.executable, "-m", module], arguments, environment, pass_fds, folders)
        self._process, self._log, self._events = self._started.process, self._started.log, self._started.events
        self._buffer = bytearray()
        self._closed = False
        #: Called with each progress line of the worker.
        self.say: Callable[[str], None] = lambda line: None
        self._stage, self._variant = "start", ""
        self._owes = False  # whether the worker still has to answer a request

    def started(self) -> dict[str, Any]:
        """Return the event "ready", with which a start ends; end a worker that does not start, with ``WorkerDied``."""
        try:
            return self.wait("ready")
        except BaseException:
            self.close(patience_s=0.0)
            raise

    def wait(self, answer: str) -> dict[str, Any]:
        """Return the worker's next event ``answer``; ``WorkerDied`` if it hung, died or lost its CUDA context."""
        return next(event for event in self.until(answer) if event["event"] == answer)

    def until(self, answer: str) -> Iterator[dict[str, Any]]:
        """Yield the worker's events up to and including the next ``answer``, without ``stage`` and ``told`` events.

        The errors are those of ``wait``.
        """
        while True:
            event = self._next()
            if event["event"] == "stage":
                self._stage, self._variant = str(event.get("stage")), str(event.get("variant", ""))
            elif event["event"] == "told":
                self.say(str(event["text"]))
            elif event["event"] == "lost":
                reap(self._process, LOST_S)
                rule = str(event.get("rule", ""))
                reason = str(event.get("reason"))
                how = reason if rule else f"broke the CUDA context ({reason})"
                raise WorkerDied(str(event.get("variant", "")), how, rule=rule, stage=self._stage)
            elif event["event"] == IDLE:
                self._stop("ended with exit status 0")
            else:
                self._owes = self._owes and event["event"] != answer
                yield event
                if event["event"] == answer:
                    return

    def ask(self, request: dict[str, Any]) -> None:
        """Send a request, whose answer ``wait`` then returns. The errors are those of ``wait``."""
        self._stage, self._variant, self._owes = "request", "", True
        self._requested_at = monotonic()
        try:
            self._started.send(request)
        except BrokenPipeError:
            self._died()

    def kill(self) -> None:
        """Kill the worker; a ``wait`` in progress then raises ``WorkerDied``.

        Another thread may call this. ``close`` must still be called.
        """
        kill_group(self._process)

    def close(self, patience_s: float = 5.0) -> None:
        """End the worker. Kill it if a request is unanswered, or if it does not end within ``patience_s`` seconds."""
        if self._closed:
            return
        self._closed = True
        if self._warm and patience_s and not self._owes and self._is_idle(patience_s):
            _WARM.keep(self._started)
            return
        self._started.end(0.0 if self._owes else patience_s)

    @property
    def pid(self) -> int:
        """Return the process id of the worker, or of the program that runs it."""
        return self._process.pid

    def _is_idle(self, patience_s: float) -> bool:
        """Let the worker end, and return whether its process waits for another worker."""
        self.silence_s, self._stage, self._requested_at = patience_s, "end", monotonic()
        with contextlib.suppress(WorkerDied, BrokenPipeError):
            self._started.send({END: None})
            while self._next()["event"] != IDLE:
                pass
            return True
        return False

    def _next(self) -> dict[str, Any]:
        patience = max(self._least_s.get(self._stage, 0.0), self.silence_s)
        heard, searched = monotonic(), 0
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ)
            while (end := self._buffer.find(b"\n", searched)) < 0:
                searched = len(self._buffer)
                if selector.select(min(LOOK_S, patience)):
                    chunk = os.read(self._events, 1 << 16)
                    if not chunk:
                        self._died()
                    self._buffer += chunk
                    if len(self._buffer) > MOST_EVENT:
                        self._stop("wrote an event without end")
                # A child of a dead worker may still have the event pipe open.
                elif ended(self._process) and not selector.select(0):
                    self._died()
                if os.fstat(self._log.fileno()).st_size > MOST_PRINTED:
                    self._stop(f"printed more than {MOST_PRINTED >> 20} MiB")
                if looked := self._look(self.pid):
                    self._stop(looked)
                if monotonic() - heard > patience:
                    self._stop(f"hung for {patience:g} s", HUNG)
        if monotonic() - self._requested_at > (longest := max(patience, MOST_SILENCES * self.silence_s)):
            self._stop(f"did not answer for {longest:g} s", HUNG)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            event = json.loads(line)
            known = isinstance(event, dict) and isinstance(event.get("event"), str)
        except ValueError:
            known = False
        if not known:
            self._stop("wrote to the harness's own pipe")
        return dict(event)

    def _stop(self, how: str, rule: str = "") -> NoReturn:
        """Kill the worker and raise ``WorkerDied``. ``how`` describes the worker's failure."""
        self.kill()
        # The driver may block the end of a process for a while.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LOST_S)
        self._started.drain()
        raise WorkerDied(
            self._variant, f"{how} {self._doing()}", at_start=self._stage == "start", rule=rule, stage=self._stage
        )

    def _died(self) -> NoReturn:
        deadline = monotonic() + LOST_S
        while not ended(self._process):
            if monotonic() > deadline:
                self._stop("closed the harness's own pipe")
            sleep(0.02)
        code = reap(self._process)
        if code == CONTEXT_LOST:
            how = "broke the CUDA context"
        elif code < 0:
            how = f"killed by {signal.Signals(-code).name} {self._doing()}"
        else:
            how = f"ended with exit status {code} {self._doing()}"
        tail = self._tail()
        how = f"{how}: {tail}" if tail else how
        raise WorkerDied(self._variant, how, at_start=self._stage == "start", stage=self._stage)

    def _doing(self) -> str:
        return _DOING.get(self._stage, "on a request")

    def _tail(self) -> str:
        """Return the last line that the worker printed."""
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 4096))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else ""
