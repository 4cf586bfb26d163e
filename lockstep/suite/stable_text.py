"""Write a literal value as text that is the same in every process, for the digest of a benchmark definition."""

from __future__ import annotations

from typing import Any


def is_literal(value: Any) -> bool:
    """Return whether ``stable_text`` of a value is the same in every process."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return True
    if isinstance(value, dict) and type(value) is dict:
        return all(is_literal(part) for pair in value.items() for part in pair)
    return type(value) in (list, tuple, set, frozenset) and all(map(is_literal, value))


def stable_text(value: Any) -> str:
    """Return ``repr`` with the elements of sets sorted, because the order of a set differs between processes."""
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({sorted(map(stable_text, value))})"
    if type(value) is dict:
        return "{" + ", ".join(f"{stable_text(key)}: {stable_text(part)}" for key, part in value.items()) + "}"
    if type(value) is list:
        return "[" + ", ".join(map(stable_text, value)) + "]"
    if type(value) is tuple:
        return "(" + ", ".join(map(stable_text, value)) + (",)" if len(value) == 1 else ")")
    return repr(value)
