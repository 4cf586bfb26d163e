"""Record in a file whether the last analyses succeeded.

The file is in the store's cache, and all processes of the dashboard share it.

The runner writes the file when an analysis begins and when it ends. If the file states a begin without an end and no
process holds the lock, the analysis was killed together with its runner.
"""

from __future__ import annotations

import fcntl
import json
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from lockstep.record.file import replace_file

#: Seconds without a successful analysis after which the findings count as stale. Even unchanged results are analysed
#: every hour.
STALE_AFTER_S = 7200.0

_KILLED = "the analysis was killed, or the server that had started it"


@dataclass(frozen=True)
class AnalysisStatus:
    """Status of the last analyses. Times are in seconds since 1970, 0.0 for none.

    Attributes:
        began: start of the last analysis; its end if the clock was set back in between.
        ended: end of the last finished analysis; earlier than ``began`` while an analysis runs.
        succeeded: end of the last successful analysis.
        of: digest of the results that the last successful analysis read.
        failures: number of failed analyses since the last successful analysis.
        reason: why the last analysis failed; "" if the analysis succeeded.
    """

    began: float = 0.0
    ended: float = 0.0
    succeeded: float = 0.0
    of: str = ""
    failures: int = 0
    reason: str = ""

    @property
    def failing(self) -> bool:
        """Whether the last finished analysis failed."""
        return bool(self.failures)

    def stale(self) -> bool:
        """Return whether the last successful analysis is older than ``STALE_AFTER_S``."""
        return bool(self.succeeded) and time.time() - self.succeeded > STALE_AFTER_S

    def begin(self) -> AnalysisStatus:
        """Return the status of an analysis that begins now."""
        return replace(self, began=time.time())

    def succeed(self, digest: str) -> AnalysisStatus:
        """Return the status of an analysis that succeeds now; ``digest`` is the digest of its results."""
        now = time.time()
        return AnalysisStatus(began=min(self.began, now), ended=now, succeeded=now, of=digest)

    def fail(self, reason: str) -> AnalysisStatus:
        """Return the status of an analysis that fails now."""
        now = time.time()
        return replace(self, began=min(self.began, now), ended=now, failures=self.failures + 1, reason=reason)

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


def read_status(path: Path, turn: Path) -> AnalysisStatus:
    """Return the status from the file; a status without any analysis if the file is missing or damaged.

    An analysis that was killed counts as failed.

    Args:
        turn: the file that a runner locks while it runs an analysis.
    """
    try:
        status = AnalysisStatus(**json.loads(path.read_text(encoding="utf-8")))
        unfinished = status.began > status.ended
    except (OSError, ValueError, TypeError):
        return AnalysisStatus()
    if not unfinished or _held(turn):
        return status
    # The analysis may have ended after the file was read.
    if path.read_text(encoding="utf-8") != json.dumps(asdict(status)):
        return read_status(path, turn)
    return replace(status, ended=status.began, failures=status.failures + 1, reason=_KILLED)


def write_status(path: Path, status: AnalysisStatus) -> None:
    """Replace the status file, so that readers see the old or the new status."""
    replace_file(path, json.dumps(asdict(status)))


def _held(turn: Path) -> bool:
    try:
        with turn.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
