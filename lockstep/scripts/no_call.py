"""Say why a script gives no call that can be timed, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from lockstep.scripts.plan import Plan

#: What reads a clock in a script, and the most lines of it that a message names.
_CLOCKS, _MOST_LINES = ("enable_timing", "time.time(", "perf_counter", "timeit"), 4


def why_no_call(plan: Plan, file: Path, calls: Sequence[tuple[str, str]], error: str, gpu: str) -> str:
    """Return why a script gives no call at all; "" if it gives some.

    Args:
        file: the script.
        calls: case and variant of its calls.
        error: why it ended early, or "".
        gpu: the machine's GPU, or "".
    """
    if calls:
        return "" if plan.selected(calls) else f"no call matches --case and --variant: {_labels(calls)}"
    if error:
        return f"the script ended before its first timed call: {error}{_remedy(error, gpu)}"
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    own = [f"line {n}: {line.strip()[:80]}" for n, line in enumerate(lines, 1) if any(map(line.__contains__, _CLOCKS))]
    return "the script calls no timer that Lockstep stands in for" + (
        f"; it times by itself at {'; '.join(own[:_MOST_LINES])}" if own else ""
    )


def _remedy(error: str, gpu: str) -> str:
    """Return what to do about an error of the environment, which says nothing about the change; "" for other errors."""
    if "ModuleNotFoundError" in error:
        return "; install what the script needs into the Python that runs Lockstep"
    if not gpu and re.search("NVIDIA|CUDA", error):
        return "; there is no GPU here: run the gate on a machine with one, or let the script take another device"
    return ""


def _labels(calls: Sequence[tuple[str, str]]) -> str:
    """Return the variants and some cases of a script's calls, for whoever must choose from them."""
    cases, variants = ([*dict.fromkeys(labels)] for labels in zip(*calls, strict=True))
    more = f" and {len(cases) - 3} more" if len(cases) > 3 else ""
    return f"its variants are {', '.join(variants)}, its cases {', '.join(cases[:3])}{more}"
