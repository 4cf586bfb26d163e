"""What differs between two versions, as Markdown for a job's summary. Names come from a pull request: distrusted."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lockstep.machine_code.compare import Comparison
from lockstep.machine_code.report import diff_lines

#: Characters of all targets together; a summary holds 1 MiB, and nobody reads more.
MOST_TEXT = 60_000


def to_markdown(comparisons: Sequence[Comparison], base: str, head: str) -> str:
    """A heading that says for how many targets something differs, and the lines of the terminal as they are."""
    different = [one.target.name for one in comparisons if any(change.kind != "unknown" for change in one.changes)]
    found = f"differs on {', '.join(different)}" if different else "is the same"
    lines = [line for one in comparisons for line in diff_lines(one, base, head)]
    return f"### Machine code {found}\n\n{fenced(chr(10).join(lines))}\n"


def fenced(text: str) -> str:
    """A code block that the text cannot end: its fence is longer than any run of backticks in it."""
    shown = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\n… cut; `lockstep code diff` shows all"
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{shown}\n{fence}\n"
