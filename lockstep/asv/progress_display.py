"""Report the progress of a run on standard error: one rewritten line on a terminal, a line for each case elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from asv.console import log

from lockstep.record.console import line_console
from lockstep.record.counted import counted
from lockstep.record.model import Record


class Progress:
    """Counts the cases of each commit and estimates the time left from the cases measured so far.

    Args:
        total: cases (shape × cache state) to measure in each commit.
        commits: the number of commits to measure; ``None`` if only asv knows.
    """

    def __init__(self, total: int, commits: int | None) -> None:
        self.total = total
        self.commits = commits
        self.done = 0
        self._commits_begun = 0
        self._commit = ""
        self._measured = 0
        self._spent = 0.0
        self._unmeasured: Counter[str] = Counter()
        # rich's own live displays would redirect asv's standard output meanwhile.
        self._console = line_console(stderr=True)

    def begin(self, commit: str) -> None:
        """Start to count the cases of another commit, from zero."""
        self.done = 0
        self._commits_begun += 1
        self._commit = commit[:8]
        if self.commits is not None and self.commits > 1:
            self._commit += f" ({self._commits_begun} of {max(self.commits, self._commits_begun)})"

    def say(self, line: str) -> None:
        """Print a line that is not overwritten."""
        self._clear()
        self._console.print(line)

    def case(self, records: Iterable[Record], seconds: float, *, measured: bool) -> None:
        """Count a case as done, and print its failed series and its time. A case that is all n/a is only counted."""
        self.done += 1
        if measured:
            self._measured += 1
            self._spent += seconds
        rows = list(records)
        for record in rows:
            if record.state == "failed":
                self.say(f"  failed: {record.suite} {record.variant} {record.case} {record.l2}: {record.reason}")
        if not rows:
            return
        if all(record.state == "na" for record in rows):
            self._unmeasured[rows[0].reason] += 1
            return
        ok = sum(record.state == "ok" for record in rows)
        first = rows[0]
        position = f"{self._commit} [{self.done:>4}/{self.total}]".lstrip()
        line = f"{position} {first.suite} {first.case} {first.l2}: {ok} series in {seconds:.1f} s"
        self._clear()
        self._console.print(line + self.left(), end="" if self._console.is_terminal else "\n")

    def left(self) -> str:
        """Return ``", about 3 min left"``, or "" before anything was measured."""
        commits = max((self.commits or 0) - self._commits_begun, 0)
        cases = self.total - self.done + commits * self.total
        remaining = cases * self._spent / self._measured if self._measured else 0.0
        if remaining < 1:
            return ""
        return f", about {remaining:.0f} s left" if remaining < 90 else f", about {remaining / 60:.0f} min left"

    def finish(self) -> None:
        """Remove the rewritten line, and report the cases of the commit that have no number, by reason."""
        self._clear()
        for reason, count in self._unmeasured.items():
            self._console.print(f"{counted(count, 'case')} not measured: {reason}")
        self._unmeasured.clear()

    def _clear(self) -> None:
        if self._console.is_terminal:
            self._console.file.write("\r\x1b[2K")
        else:
            log.flush()  # asv ends its line "[50.00%] ··· name" only when the benchmark is done
