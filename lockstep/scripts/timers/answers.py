"""Give a script the numbers that its timer would return, from one time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def summarized(milliseconds: float, quantiles: Sequence[float] | None = None, return_mode: str = "mean") -> Any:
    """Return a time as ``triton.testing.do_bench`` does: one number, a list of quantiles, or all numbers."""
    if quantiles is not None:
        return [milliseconds] * len(quantiles) if len(quantiles) > 1 else milliseconds
    return [milliseconds] if return_mode == "all" else milliseconds
