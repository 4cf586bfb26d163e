"""Keeps the alerts in step with the results, beside the server and never in its way.

The analysis of millions of points takes seconds and memory that pages should have, so it is done by the verb that
people use, ``lockstep alerts list``, in a process of its own; pages read what it wrote.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from weakref import ref

from dashboard.alerts.commands.options import STATE
from dashboard.results.picture import Results
from lockstep.processes import run

#: Seconds after which the same results are looked at again: a machine that is silent shows by the clock alone.
_AGAIN = 3600.0

#: The same where what it found is missing: it failed, or somebody deleted it.
_MISSING = 60.0

#: Seconds that one analysis may take.
_LONGEST = 1800.0


class Analyst:
    """Starts an analysis when there is something new; one at a time.

    Args:
        options: of ``lockstep alerts list``, that say where results and thresholds are.
        state: where the alerts are kept; it may hold a password, and goes by the environment.
        turn: a file that need not exist; analysts of the same file, in whatever processes, analyse one after the other.
    """

    def __init__(self, options: Sequence[str], state: str, turn: Path) -> None:
        self._turn = turn
        program = "from lockstep.processes import end_with_parent; end_with_parent()\n"
        program += "from lockstep.cli import main; main()"
        self._command = [sys.executable, "-c", program, "alerts", "list", "--no-list", *options]
        self._environment = os.environ | {STATE: state}
        self._lock = threading.Lock()
        self._seen: ref[Results] | None = None
        self._looked = 0.0
        self._running: threading.Thread | None = None
        #: What was wrong with the last analysis; "" if nothing.
        self.trouble = ""

    @property
    def busy(self) -> bool:
        """Whether an analysis is under way."""
        return self._running is not None and self._running.is_alive()

    def look(self, results: Results, missing: bool = False) -> None:
        """Analyse these results if they were not analysed yet; returns at once.

        Args:
            results: to be analysed.
            missing: whether what an analysis leaves for the pages is not there.
        """
        with self._lock:
            same = self._seen is not None and self._seen() is results
            if self.busy or (same and time.monotonic() - self._looked < (_MISSING if missing else _AGAIN)):
                return
            self._seen, self._looked = ref(results), time.monotonic()
            self._running = threading.Thread(target=self._analyse, daemon=True)
            self._running.start()

    def wait(self, seconds: float) -> None:
        """Until no analysis is under way."""
        if self._running:
            self._running.join(seconds)

    def _analyse(self) -> None:
        try:
            with self._turn.open("w") as turn:
                fcntl.flock(turn, fcntl.LOCK_EX)
                # Only this process holds the turn. The child ends with it, so the turn is free when nobody analyses.
                done = run(self._command, env=self._environment, text=True, errors="replace", timeout=_LONGEST)
        except (OSError, subprocess.TimeoutExpired) as error:
            self.trouble = f"the analysis did not run: {error}"
            return
        if done.returncode == 0:
            self.trouble = ""
            return
        said = (done.stdout + done.stderr).strip().splitlines()
        self.trouble = said[-1] if said else f"the analysis ended with status {done.returncode}"
