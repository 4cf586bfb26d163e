"""Count things in messages."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number and its noun: "1 case", "2 cases". ``noun`` is the singular."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
