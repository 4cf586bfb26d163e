"""Compare the source of a kernel before and after a change, side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from lockstep.processes.git import Git

#: Maximum number of lines of a comparison.
MOST_LINES = 2000

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@dataclass(frozen=True)
class Side:
    """A line of a file: its number and text."""

    number: int
    text: str


@dataclass(frozen=True)
class Row:
    """Two lines beside each other. ``None`` where a side has no line; the name of a file if both are ``None``."""

    before: Side | None
    after: Side | None
    file: str = ""

    @property
    def same(self) -> bool:
        """Whether both sides have the same text."""
        return self.before is not None and self.after is not None and self.before.text == self.after.text


def source_diff(git: Git, before: str, after: str, paths: Sequence[str]) -> list[Row]:
    """Return the rows of the files that differ between two commits, with three lines around each difference.

    Args:
        paths: files or folders, relative to the repository's root.

    Raises:
        GitError: git does not know a commit, or takes too long.
    """
    options = ("--no-color", "--no-ext-diff", "--no-textconv", "--unified=3", "--find-copies=30%")
    lines = git.lines("diff", *options, before, after, "--", *(f":(top,literal){path}" for path in paths))
    rows: list[Row] = []
    for row in _rows(lines):
        rows.append(row)
        if len(rows) > MOST_LINES:
            rows[-1] = Row(None, None, f"more than {MOST_LINES} lines differ: git diff {before[:12]} {after[:12]}")
            break
    return rows


def _rows(lines: Sequence[str]) -> Iterator[Row]:
    old, new = 0, 0
    removed: list[Side] = []
    added: list[Side] = []
    inside = False
    for line in [*lines, ""]:
        hunk = _HUNK.match(line)
        if inside and line[:1] in ("-", "+") and not hunk:
            if line[0] == "-":
                removed.append(Side(old, line[1:]))
                old += 1
            else:
                added.append(Side(new, line[1:]))
                new += 1
            continue
        yield from (Row(*pair) for pair in zip_longest(removed, added))
        removed, added = [], []
        if hunk:
            old, new, inside = int(hunk[1]), int(hunk[2]), True
        elif line.startswith("diff --git "):
            inside = False
            yield Row(None, None, line.rpartition(" b/")[2])
        elif inside and line.startswith(" "):
            yield Row(Side(old, line[1:]), Side(new, line[1:]))
            old, new = old + 1, new + 1
