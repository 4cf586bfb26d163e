"""The life of an alert: new, acknowledged, muted, resolved, reopened, and what leads from one to the other.

::

    new ──ack──▶ acknowledged          any open one ──mute──▶ muted ──its day is over──▶ reopened
     └──resolve──▶ resolved ◀──resolve──┘                        └──resolve──▶ resolved
    resolved ──it is back, or reopen──▶ reopened ──ack──▶ acknowledged …

To mute what is muted sets another last day.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Literal

State = Literal["new", "acknowledged", "muted", "resolved", "reopened"]

#: Somebody has to do something about these.
OPEN: frozenset[State] = frozenset({"new", "acknowledged", "reopened"})

Action = Literal["ack", "mute", "resolve", "reopen"]

#: How an alert ends. "fixed": the data went back, or somebody says so. "intended": the new level is the
#: right one. "withdrawn": later data contradict the change. "recorded": an improvement asks nothing of anybody.
#: "archived": its machine is silent, and nobody can measure whether it is still there.
Ending = Literal["fixed", "intended", "withdrawn", "recorded", "archived"]

_FROM: dict[Action, frozenset[State]] = {
    "ack": frozenset({"new", "reopened"}),
    "mute": OPEN | {"muted"},
    "resolve": OPEN | {"muted"},
    "reopen": frozenset({"resolved", "muted", "acknowledged"}),
}
_TO: dict[Action, State] = {"ack": "acknowledged", "mute": "muted", "resolve": "resolved", "reopen": "reopened"}
_DONE = {"ack": "acknowledged", "mute": "muted", "resolve": "resolved", "reopen": "reopened"}


class LifecycleError(ValueError):
    """The alert cannot go there from where it is, or something it needs is missing; the message says what to do."""


@dataclass(frozen=True)
class Act:
    """Something that somebody does to an alert.

    Attributes:
        action: what.
        who: a name; "lockstep" for what the data say.
        note: why. Muting, and resolving as intended, need it.
        until: last day of a mute.
        ending: how a resolved one ends.
    """

    action: Action
    who: str
    note: str = ""
    until: datetime.date | None = None
    ending: Ending | None = None


def possible(state: State) -> frozenset[Action]:
    """What can be done to an alert in this state."""
    return frozenset(action for action, states in _FROM.items() if state in states)


def step_to(state: State, act: Act, today: datetime.date) -> State:
    """The state after the act.

    Raises:
        LifeError: not from this state, or without a reason or an end that the act needs.
    """
    if state not in _FROM[act.action]:
        raise LifecycleError(f"it is {state} and cannot be {_DONE[act.action]}; that is for {_or(_FROM[act.action])}")
    if not act.who.strip():
        raise LifecycleError("say who does it: --by NAME")
    if act.action == "mute":
        if act.until is None or act.until < today:
            raise LifecycleError(f"a mute needs its last day, {today} or later: --until YYYY-MM-DD")
        if not act.note.strip():
            raise LifecycleError("a mute needs a reason: --because TEXT")
    if act.ending == "intended" and not act.note.strip():
        raise LifecycleError("a new level that is meant needs a reason: --because TEXT")
    return _TO[act.action]


def _or(states: frozenset[State]) -> str:
    names = sorted(f"{state} ones" for state in states)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
