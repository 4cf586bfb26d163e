"""Show the parameters of benchmarks without Python's quotes, and sort texts that contain numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from lockstep.history.model import Benchmark


def natural(text: str) -> tuple[tuple[int, float, str], ...]:
    """Return a sort key that compares digits as numbers: ``M=8`` before ``M=16``."""
    parts = re.findall(r"\d+(?:\.\d+)?|\D+", text)
    return tuple((0, float(part), "") if part[0].isdecimal() else (1, 0.0, part) for part in parts)


def axes(benchmark: Benchmark, values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the name and the value of each parameter, for people.

    If the benchmark has another number of names than values, the names are asv's ``param1``, ``param2`` ….
    """
    names: Iterable[str] = benchmark.parameters
    if len(benchmark.parameters) != len(values):
        names = (f"param{place}" for place in range(1, len(values) + 1))
    return tuple(zip(names, map(plain, values), strict=True))


@lru_cache(maxsize=100_000)
def plain(value: str) -> str:
    """Return the value of a parameter for people: asv's repr without its quotes.

    The quotes stay if the text would look like another value without them, for example ``'1'`` like the number 1.
    """
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
