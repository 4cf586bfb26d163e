"""Run the analysis of new results in a child process of the dashboard's server.

The analysis of millions of points takes seconds and hundreds of megabytes, which must not slow the server. So a child
process runs the command that people also use, ``lockstep alerts list``, and writes the findings that pages read. A file
in the store's cache says whether the last analyses succeeded; all processes of the dashboard share it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from lockstep.alerts.database.location import STATE
from lockstep.history.snapshot import Results
from lockstep.processes.end_with_parent import run
from lockstep.processes.only_one import only_one
from lockstep.processes.trouble import Trouble, refused_by_disk
from lockstep.record.file import replace_file

#: Seconds after which unchanged results are analysed again, because a machine may have become silent meanwhile.
_REPEAT_S = 3600.0

#: Seconds after which unchanged results are analysed again if the findings are missing because somebody deleted them.
_MISSING_S = 60.0

#: Seconds between the first failure and the next attempt. Each further failure doubles the time, up to ``_MISSING_S``.
_RETRY_S = 4.0

#: Maximum seconds of one analysis.
_TIMEOUT_S = 1800.0

#: Seconds without a successful analysis after which the findings count as stale. Even unchanged results are analysed
#: every hour.
STALE_AFTER_S = 7200.0


@dataclass(frozen=True)
class AnalysisStatus:
    """Status of the last analyses. Times are in seconds since 1970, 0.0 for none.

    Attributes:
        ended: end of the last analysis.
        succeeded: end of the last successful analysis.
        of: digest of the results that the last successful analysis read.
        failures: number of failed analyses since the last successful analysis.
        reason: why the last analysis failed; "" if the analysis succeeded.
    """

    ended: float = 0.0
    succeeded: float = 0.0
    of: str = ""
    failures: int = 0
    reason: str = ""

    @property
    def failing(self) -> bool:
        """Whether the last analysis failed."""
        return bool(self.failures)

    def stale(self) -> bool:
        """Return whether the last successful analysis is older than ``STALE_AFTER_S``."""
        return bool(self.succeeded) and time.time() - self.succeeded > STALE_AFTER_S

    def succeed(self, digest: str) -> AnalysisStatus:
        """Return the status of an analysis that succeeds now; ``digest`` is the digest of its results."""
        now = time.time()
        return AnalysisStatus(ended=now, succeeded=now, of=digest)

    def fail(self, reason: str) -> AnalysisStatus:
        """Return the status of an analysis that fails now."""
        return replace(self, ended=time.time(), failures=self.failures + 1, reason=reason)

    @property
    def text(self) -> str:
        """Notice for the dashboard if the last analysis failed or the findings are stale; otherwise ""."""
        since = ""
        if self.succeeded:
            at = datetime.fromtimestamp(self.succeeded, UTC)
            since = f" The findings shown are of {at:%Y-%m-%d %H:%M} UTC."
        if self.failing:
            return f"The last analysis failed: {self.reason}.{since}"
        return f"No analysis has run for over {STALE_AFTER_S / 3600:g} hours.{since}" if self.stale() else ""


def read_status(path: Path) -> AnalysisStatus:
    """Return the status from the file; a status without any analysis if the file is missing or damaged."""
    try:
        return AnalysisStatus(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return AnalysisStatus()


def write_status(path: Path, status: AnalysisStatus) -> None:
    """Replace the status file, so that readers see the old or the new status."""
    replace_file(path, json.dumps(asdict(status)))


class AnalysisRunner:
    """Starts an analysis when there are new results, one at a time.

    Args:
        options: options of ``lockstep alerts list`` that locate the results and the thresholds.
        state: the address of the alert database. The child gets it in an environment variable, because the address may
            hold a password and other users can read a command line.
        turn: path of the lock file, which is created if necessary. Runners with the same lock file run one after
            another, even in different processes. If they also have the same options and state, they share a status
            file in the folder of the lock file.
        thresholds: the file of thresholds, whose change makes an analysis due; ``None`` if there is none.
    """

    def __init__(self, options: Sequence[str], state: str, turn: Path, thresholds: Path | None = None) -> None:
        self._turn = turn
        self._thresholds = thresholds
        digest = blake2b("\0".join((*options, state)).encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
        self._path = turn.with_name(f"analysis-{digest}.json")
        program = "from lockstep.processes.end_with_parent import end_with_parent; end_with_parent()\n"
        program += "from lockstep.commands.cli import main; main()"
        self._command = [sys.executable, "-c", program, "alerts", "list", "--no-list", *options]
        self._environment = os.environ | {STATE: state}
        self._lock = threading.Lock()
        self._running: threading.Thread | None = None
        #: The status while the status file cannot be written.
        self._unwritten: AnalysisStatus | None = None
        self._trouble = Trouble()

    @property
    def busy(self) -> bool:
        """Whether this runner analyses results, or waits until another runner has finished."""
        return self._running is not None and self._running.is_alive()

    @property
    def status(self) -> AnalysisStatus:
        """Status of the last analyses, even if another process ran them."""
        return self._unwritten or read_status(self._path)

    def request_analysis(self, results: Results, missing: bool = False) -> None:
        """Start an analysis of these results if one is due; return at once.

        ``missing``: whether the findings for the dashboard's pages are missing.
        """
        with self._lock:
            digest = self._digest(results)
            if self.busy or not _due(self.status, digest, missing):
                return
            self._running = threading.Thread(target=self._analyse, args=(digest, missing), daemon=True)
            self._running.start()

    def wait(self, seconds: float) -> None:
        """Wait until this runner is not busy, but at most ``seconds``."""
        if self._running:
            self._running.join(seconds)

    def _digest(self, results: Results) -> str:
        """Return a digest that changes whenever the points of the results or the thresholds change."""
        states = [f"{machine} {results.state(machine)}" for machine in results.machines]
        if self._thresholds and self._thresholds.exists():
            states.append(str(self._thresholds.stat().st_mtime_ns))
        return blake2b("\n".join(states).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()

    def _analyse(self, digest: str, missing: bool) -> None:
        try:
            with only_one(self._turn, wait=True):
                # Another runner may have analysed the results meanwhile.
                status = self.status
                if not _due(status, digest, missing):
                    return
                reason = self._run()
                write_status(self._path, status.fail(reason) if reason else status.succeed(digest))
                self._unwritten = None
                self._trouble.end()
        except OSError as error:
            # The status file is in the same folder as the lock file, so it probably cannot be written either.
            reason = f"{self._turn.parent} cannot be written: {refused_by_disk(error, self._turn.parent) or error}"
            self._unwritten = self.status.fail(reason)
            self._trouble.begin(f"the analysis cannot run, because {reason}")

    def _run(self) -> str:
        """Run the analysis in a child process to its end. Return why the analysis failed, or "" if it succeeded."""
        try:
            # The child does not inherit the lock and ends with this process. So a free lock means that no analysis is
            # running.
            done = run(self._command, env=self._environment, text=True, errors="replace", timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"it took longer than {_TIMEOUT_S / 60:g} minutes"
        except OSError as error:
            return f"it cannot be started: {error}"
        if done.returncode == 0:
            return ""
        if done.returncode < 0:
            name = signal.Signals(-done.returncode).name
            return f"it was killed by {name}{', perhaps for lack of memory' if name == 'SIGKILL' else ''}"
        lines = (done.stdout + done.stderr).strip().splitlines()
        return lines[-1].strip().rstrip(".") if lines else f"it ended with status {done.returncode}"


def _due(status: AnalysisStatus, digest: str, missing: bool) -> bool:
    now = time.time()
    # A clock that was set back must not delay the next analysis.
    if status.failing:
        return abs(now - status.ended) >= min(_RETRY_S * 2.0 ** (status.failures - 1), _MISSING_S)
    age = abs(now - status.succeeded)
    return status.of != digest or age >= (_MISSING_S if missing else _REPEAT_S)
