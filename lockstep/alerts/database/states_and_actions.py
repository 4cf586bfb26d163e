"""Define the states of an alert (new, acknowledged, muted, resolved, reopened) and the actions that change the state.

::

    new ──ack──▶ acknowledged          any open alert ──mute──▶ muted ──day passed, or reopen──▶ reopened
     └──resolve──▶ resolved ◀──resolve──┘                          └──resolve──▶ resolved
    resolved ──regression returns, or reopen──▶ reopened ──ack──▶ acknowledged …

Each mute has a last day; muting a muted alert replaces that day. An acknowledged alert can be reopened.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Literal

State = Literal["new", "acknowledged", "muted", "resolved", "reopened"]

#: States that need action.
OPEN: frozenset[State] = frozenset({"new", "acknowledged", "reopened"})

Action = Literal["ack", "mute", "resolve", "reopen"]

#: How an alert ends. "fixed": the series recovered, or a person says so. "new baseline": a person says that the new
#: level is correct. "no change": a person says that nothing changed. "intended": thresholds.toml accepts the change.
#: "withdrawn": later data, or thresholds.toml, rule the change out. "not confirmed": a second measurement does not show
#: the change. "recorded": an improvement or an old change, no action needed. "archived": the machine is silent, so
#: nobody can measure the change.
Ending = Literal["fixed", "new baseline", "no change", "intended", "withdrawn", "not confirmed", "recorded", "archived"]

#: What a person can say of a step for good. The same step never opens the alert again; a person can reopen it.
STATEMENTS: tuple[Ending, ...] = ("new baseline", "no change")

#: The endings that a person can give an alert, by the words of commands and pages.
ENDINGS: dict[str, Ending] = {"resolve": "fixed", "new-baseline": "new baseline", "no-change": "no change"}

#: Endings of changes that somebody has accepted.
ACCEPTED: tuple[Ending, ...] = (*STATEMENTS, "intended")

_FROM: dict[Action, frozenset[State]] = {
    "ack": frozenset({"new", "reopened"}),
    "mute": OPEN | {"muted"},
    "resolve": OPEN | {"muted"},
    "reopen": frozenset({"resolved", "muted", "acknowledged"}),
}
_TO: dict[Action, State] = {"ack": "acknowledged", "mute": "muted", "resolve": "resolved", "reopen": "reopened"}
_DONE = {"ack": "acknowledged", "mute": "muted", "resolve": "resolved", "reopen": "reopened"}


class LifecycleError(ValueError):
    """The alert's state does not allow the action, or the action lacks a name, a reason or a day.

    The message says what to do.
    """


@dataclass(frozen=True)
class Act:
    """An action of a person, or of the data, on an alert.

    Attributes:
        action: the kind of the action.
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

    Raises:
        LifecycleError: the state does not allow the action, or the action lacks a reason or a last day.
    """
    if state not in _FROM[act.action]:
        raise LifecycleError(
            f"an alert in the state {state} cannot be {_DONE[act.action]}; only {_joined_by_or(_FROM[act.action])} can"
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
