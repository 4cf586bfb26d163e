"""Keeps the alerts in step with the results, beside the server and never in its way.

The analysis of millions of points takes seconds and memory that pages should have, so it is done by the verb that
people use, ``lockstep alerts list``, in a process of its own; pages read what it wrote.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from lockstep.alerts.analysis_status import AnalysisStatus, read_status, write_status
from lockstep.alerts.state_location import STATE
from lockstep.history.snapshot import Results
from lockstep.processes.children import run

#: Seconds after which the same results are analysed again: a machine that is silent shows by the clock alone.
_REPEAT_S = 3600.0

#: The same where the findings are missing because somebody deleted them.
_MISSING_S = 60.0

#: Seconds between a failure and the next try; twice as long after each further one, up to ``_MISSING``.
_RETRY_S = 4.0

#: Seconds that one analysis may take.
_TIMEOUT_S = 1800.0


class AnalysisRunner:
    """Starts an analysis when there is something new; one at a time.

    Args:
        options: of ``lockstep alerts list``, that say where results and thresholds are.
        state: where the alerts are kept; it may hold a password, and goes by the environment.
        turn: a file that need not exist. Analysts of the same file, in whatever processes, analyse one after the
            other; those with the same options and state share a status, in a file beside it.
    """

    def __init__(self, options: Sequence[str], state: str, turn: Path) -> None:
        self._turn = turn
        digest = blake2b("\0".join((*options, state)).encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
        self._path = turn.with_name(f"analysis-{digest}.json")
        program = "from lockstep.processes.children import end_with_parent; end_with_parent()\n"
        program += "from lockstep.commands.cli import main; main()"
        self._command = [sys.executable, "-c", program, "alerts", "list", "--no-list", *options]
        self._environment = os.environ | {STATE: state}
        self._lock = threading.Lock()
        self._running: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether an analysis of this process is under way, or waits for its turn."""
        return self._running is not None and self._running.is_alive()

    @property
    def status(self) -> AnalysisStatus:
        """How the last analyses went, by whatever process."""
        return read_status(self._path, self._turn)

    def request_analysis(self, results: Results, missing: bool = False) -> None:
        """Analyse these results if they were not analysed yet; returns at once.

        Args:
            results: to be analysed.
            missing: whether what an analysis leaves for the pages is not there.
        """
        with self._lock:
            if self.busy or not _due(self.status, _digest(results), missing):
                return
            self._running = threading.Thread(target=self._analyse, args=(_digest(results), missing), daemon=True)
            self._running.start()

    def wait(self, seconds: float) -> None:
        """Wait until no analysis of this process is under way, for so many seconds at most."""
        if self._running:
            self._running.join(seconds)

    def _analyse(self, of: str, missing: bool) -> None:
        try:
            with self._turn.open("w") as turn:
                fcntl.flock(turn, fcntl.LOCK_EX)
                # Another analyst may have done it meanwhile.
                status = self.status
                if not _due(status, of, missing):
                    return
                status = status.begin()
                write_status(self._path, status)
                reason = self._run()
                write_status(self._path, status.fail(reason) if reason else status.succeed(of))
        except OSError as error:
            # Nothing can be written where the status lies either.
            print(f"lockstep: the analysis cannot run: {error}", file=sys.stderr, flush=True)

    def _run(self) -> str:
        """Run the analysis; return why it failed, "" if it did not."""
        try:
            # Only this process holds the turn. The child ends with it, so the turn is free when nobody analyses.
            done = run(self._command, env=self._environment, text=True, errors="replace", timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"it took longer than {_TIMEOUT_S / 60:g} minutes"
        except OSError as error:
            return f"it cannot be started: {error}"
        if done.returncode == 0:
            return ""
        if done.returncode < 0:
            name = signal.Signals(-done.returncode).name
            return f"it was killed by {name}{', for want of memory perhaps' if name == 'SIGKILL' else ''}"
        lines = (done.stdout + done.stderr).strip().splitlines()
        return lines[-1].strip().rstrip(".") if lines else f"it ended with status {done.returncode}"


def _due(status: AnalysisStatus, of: str, missing: bool) -> bool:
    now = time.time()
    if status.failing:
        return now - status.ended >= min(_RETRY_S * 2.0 ** (status.failures - 1), _MISSING_S)
    # A clock that was set back must not put the next analysis off.
    age = abs(now - status.succeeded)
    return status.of != of or age >= (_MISSING_S if missing else _REPEAT_S)


def _digest(results: Results) -> str:
    """Digest of what the results hold; the same text, the same points."""
    states = [f"{machine} {results.state(machine)}" for machine in results.machines]
    return blake2b("\n".join(states).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
