"""Find the lines at which a script times by itself, for a message about a script without a timed call."""

from __future__ import annotations

from pathlib import Path

_WORDS = ("enable_timing", "time.time(", "perf_counter", "timeit")

#: The most lines that a message names.
_MOST = 4


def timing_lines(file: Path) -> list[str]:
    """Return the first lines of a script that read a clock."""
    lines = enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
    found = (f"line {number}: {line.strip()[:80]}" for number, line in lines if any(word in line for word in _WORDS))
    return [text for _, text in zip(range(_MOST), found, strict=False)]
