"""Colours of changes, by their cause."""

from __future__ import annotations

from dashboard.charts.theme import Scheme
from lockstep.alerts.cause.found_change import Kind
from lockstep.alerts.model import FoundChange

#: Colours of each cause in the light and the dark scheme. Causes that a developer must act on are orange.
CAUSES: dict[Kind, tuple[str, str]] = {
    "own commit": ("#B04A00", "#FF9A5C"),
    "unknown range": ("#B04A00", "#FF9A5C"),
    "unknown cause": ("#B0508A", "#E58FC0"),
    "unexplained": ("#B0508A", "#E58FC0"),
    "toolchain": ("#0B62A8", "#6BB8F0"),
    "machine": ("#5B4FC4", "#A79CFF"),
    "protocol": ("#5F6B76", "#9AA5B1"),
    "noise": ("#5F6B76", "#9AA5B1"),
}


#: Colours of every gain. Orange means slower on every page.
_BETTER = ("#0B62A8", "#6BB8F0")


def change_colour(change: FoundChange, scheme: Scheme) -> str:
    """Return the colour in which a chart of this scheme marks a change."""
    return _colours(change)[scheme == "dark"]


def change_text(change: FoundChange) -> str:
    """Return a CSS colour for the text of a change. The browser selects the light or the dark one."""
    light, dark = _colours(change)
    return f"light-dark({light}, {dark})"


def _colours(change: FoundChange) -> tuple[str, str]:
    return _BETTER if change.sense == "better" else CAUSES[change.cause.kind]
