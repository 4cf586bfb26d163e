"""Decide how the data, the thresholds file and the current day change an alert's state, without using the database."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace

from lockstep.alerts.database.states_and_actions import ACCEPTED, State
from lockstep.alerts.model import Alert, Topic

#: Actors in the log: the data, and the thresholds file.
DATA = "lockstep"
FILE = "thresholds.toml"

#: A slowdown that a person marked as fixed is reopened if it still exists after this many later measured commits.
LATER_COMMITS = 3

#: Topics that are recorded and need no action.
RECORDED: tuple[Topic, ...] = ("faster", "changed")

#: Endings that later data do not undo.
FINAL_ENDINGS = (*ACCEPTED, "recorded")


def merged(parts: Sequence[Alert]) -> Alert:
    """Merge alerts of one analysis into one alert, because their changes belong to the same stored alert."""
    first, *rest = sorted(parts, key=lambda part: (part.topic != "slower", -len(part.members), part.commits))
    if not rest:
        return first
    members = tuple(member for part in (first, *rest) for member in part.members)
    all_gone = all(part.gone for part in parts if part.topic == first.topic)
    return replace(first, members=members, gone=all_gone, old=all(part.old for part in parts))


def needs_no_action(alert: Alert) -> bool:
    """Return whether the changes of an alert need no action because they are undone, waived or old."""
    return alert.gone or alert.old or alert.waiver is not None


def first_state(alert: Alert, today: datetime.date) -> tuple[State, str, str, str]:
    """Return the state, ending, actor and note with which a new alert is stored."""
    if alert.topic in RECORDED:
        reason = "no action needed" if alert.topic == "faster" else "nobody has stated which direction is better"
        return "resolved", "recorded", DATA, f"recorded; {reason}"
    if alert.old:
        return "resolved", "recorded", DATA, "recorded; the change is too old to be reported"
    if alert.gone:
        return "resolved", "fixed", DATA, "its series are already back at their old level"
    if alert.waiver and alert.waiver.until is None:
        return "resolved", "intended", FILE, alert.waiver.because
    if alert.waiver and alert.waiver.until and alert.waiver.until >= today:
        return "muted", "", FILE, alert.waiver.because
    return "new", "", DATA, alert.cause.sentence
