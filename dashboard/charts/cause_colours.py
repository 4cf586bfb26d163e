"""Colours of the causes of changes."""

from __future__ import annotations

from dashboard.charts.theme import Scheme
from lockstep.alerts.cause.found_change import Kind

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


def cause_colour(kind: Kind, scheme: Scheme) -> str:
    """Return the colour in which a chart of this scheme marks a change with this cause."""
    return CAUSES[kind][scheme == "dark"]


def cause_text(kind: Kind) -> str:
    """Return a CSS colour for a cause's text. The browser selects the light or the dark one."""
    light, dark = CAUSES[kind]
    return f"light-dark({light}, {dark})"
