"""Record in a file whether the last analyses succeeded.

The file is in the store's cache, and all processes of the dashboard share it.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from lockstep.record.file import replace_file

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
