"""Store the first 16 hexadecimal digits of a commit's hash, a GPU's UUID or a digest as a number, which is small."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"[0-9a-f]{8,16}")


def packed(text: str) -> int:
    """Return the first digits of a text as a signed 64-bit number; 0 if it does not begin with digits."""
    digits = text.lower().removeprefix("gpu-").removeprefix("mig-").replace("-", "")[:16]
    if not _DIGITS.fullmatch(digits):
        return 0
    return int.from_bytes(int(digits.ljust(16, "0"), 16).to_bytes(8, "big"), "big", signed=True)


def copied_words(commit: str) -> str:
    """Return the words for a point that copies the numbers of a commit with the same work."""
    return f"same work as {commit[:8]} (not timed again)"


def unpacked(number: int) -> str:
    """Return the 16 digits of a number from ``packed``; "" for 0."""
    return f"{number & (1 << 64) - 1:016x}" if number else ""
