"""Define the states of an alert (new, acknowledged, muted, resolved, reopened) and the actions that change the state.

::

    new ──ack──▶ acknowledged          any open alert ──mute──▶ muted ──day passed, or reopen──▶ reopened
     └──resolve──▶ resolved ◀──resolve──┘                          └──resolve──▶ resolved
    resolved ──regression returns, or reopen──▶ reopened ──ack──▶ acknowledged …

Each mute has a last day; muting a muted alert replaces that day. An acknowledged alert can be reopened. The database is
not used here.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lockstep.alerts.model import Alert, Topic
from lockstep.processes.exit_status import UsageError

State = Literal["new", "acknowledged", "muted", "resolved", "reopened"]

#: States that need action.
OPEN: frozenset[State] = frozenset({"new", "acknowledged", "reopened"})

Action = Literal["ack", "mute", "resolve", "reopen"]

#: How an alert ends. "fixed": the series recovered, or a person says so. "new baseline": a person says that the new
#: level is correct. "no change": a person says that nothing changed. "intended": thresholds.toml accepts the change.
#: "withdrawn": later data, or thresholds.toml, rule the change out. "recorded": an improvement or an old change, no
#: action needed. "archived": the machine is silent, so nobody can measure the change.
Ending = Literal["fixed", "new baseline", "no change", "intended", "withdrawn", "recorded", "archived"]

#: What a person can say of a step for good. The same step never opens the alert again; a person can reopen it.
STATEMENTS: tuple[Ending, ...] = ("new baseline", "no change")

#: The endings that a person can give an alert, by the words of commands and pages.
ENDINGS: dict[str, Ending] = {"resolve": "fixed", "new-baseline": "new baseline", "no-change": "no change"}

#: Endings of changes that somebody has accepted.
ACCEPTED: tuple[Ending, ...] = (*STATEMENTS, "intended")

#: Actors in the log: the data, and the thresholds file.
DATA = "lockstep"
FILE = "thresholds.toml"

#: A slowdown that a person marked as fixed is reopened if it still exists after this many later measured commits.
LATER_COMMITS = 3

#: Topics that are recorded and need no action.
RECORDED: tuple[Topic, ...] = ("faster", "changed")

#: Endings that later data do not undo.
FINAL_ENDINGS = (*ACCEPTED, "recorded")

_FROM: dict[Action, frozenset[State]] = {
    "ack": frozenset({"new", "reopened"}),
    "mute": OPEN | {"muted"},
    "resolve": OPEN | {"muted"},
    "reopen": frozenset({"resolved", "muted", "acknowledged"}),
}
_TO: dict[Action, State] = {"ack": "acknowledged", "mute": "muted", "resolve": "resolved", "reopen": "reopened"}


class LifecycleError(UsageError):
    """The alert's state does not allow the action, or the action lacks a name, a reason or a day.

    The message says what to do.
    """


@dataclass(frozen=True)
class Act:
    """An action of a person, or of the data, on an alert.

    Attributes:
        who: name of the person; "lockstep" if the data caused the action.
        note: the reason for the action, which a mute and the endings ``ACCEPTED`` require.
        until: the last day of a mute.
        ending: how the alert ended, if the action resolves it.
    """

    action: Action
    who: str
    note: str = ""
    until: datetime.date | None = None
    ending: Ending | None = None


def possible(state: State) -> frozenset[Action]:
    """Return the actions that an alert in this state allows."""
    return frozenset(action for action, states in _FROM.items() if state in states)


def step_to(state: State, act: Act, today: datetime.date) -> State:
    """Return the state of an alert after an action.

    Raise ``LifecycleError`` if the state does not allow the action, or the action lacks a reason or a last day.
    """
    if state not in _FROM[act.action]:
        raise LifecycleError(
            f"an alert in the state {state} cannot be {_TO[act.action]}; only {_joined_by_or(_FROM[act.action])} can"
        )
    if not act.who.strip():
        raise LifecycleError("the action needs the name of the person: --by NAME")
    if act.action == "mute":
        if act.until is None or act.until < today:
            raise LifecycleError(f"a mute needs its last day, {today} or later: --until YYYY-MM-DD")
        if not act.note.strip():
            raise LifecycleError("a mute needs a reason: --because TEXT")
    if act.ending in ACCEPTED and not act.note.strip():
        raise LifecycleError(f"the ending {act.ending!r} needs a reason: --because TEXT")
    return _TO[act.action]


def _joined_by_or(states: frozenset[State]) -> str:
    names = sorted(f"{state} alerts" for state in states)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


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


def closing(alert: Alert, archived: bool, today: datetime.date) -> Act | None:
    """Return how the data, or thresholds.toml, close or mute an alert; ``None`` if it needs action.

    ``archived``: whether nobody can measure the change, because the machine is dead.
    """
    waiver = alert.waiver
    if alert.topic in RECORDED:
        return Act("resolve", DATA, "its series did not become worse", ending="recorded")
    if alert.gone:
        return Act("resolve", DATA, "its series are back at their old level", ending="fixed")
    if waiver and waiver.until is None:
        return Act("resolve", FILE, waiver.because, ending="intended")
    if waiver and waiver.until and waiver.until >= today:
        return Act("mute", FILE, waiver.because, waiver.until)
    if archived:
        return Act("resolve", DATA, "archived: its machine is not measured any more", ending="archived")
    return None
