"""Names as people read them: values of parameters, and the order of texts with numbers in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from lockstep.history.model import Benchmark


def natural(text: str) -> tuple[tuple[int, float, str], ...]:
    """Sort key that reads digits as numbers: ``M=8`` before ``M=16``."""
    parts = re.findall(r"\d+(?:\.\d+)?|\D+", text)
    return tuple((0, float(part), "") if part[0].isdecimal() else (1, 0.0, part) for part in parts)


def axes(benchmark: Benchmark, values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Parameters' names and values; asv's own names (``param1`` …) where the benchmark's table has none that fit."""
    names: Iterable[str] = benchmark.parameters
    if len(benchmark.parameters) != len(values):
        names = (f"param{place}" for place in range(1, len(values) + 1))
    return tuple(zip(names, map(plain, values), strict=True))


@lru_cache(maxsize=100_000)
def plain(value: str) -> str:
    """asv's repr of a parameter: a string without its quotes, unless it would then look like another value."""
    if value[:1] not in ("'", '"'):
        return value
    literal = _literal(value)
    if not isinstance(literal, str) or not literal or not literal.isprintable() or _literal(literal) is not None:
        return value
    return value if literal in ("None", "nan", "inf") else literal


def _literal(text: str) -> object:
    try:
        value: object = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value
