"""Find the alerts that show the same step, so that lists and messages tell of it once.

One commit slows several families, on each machine that measures it, and each machine measures other commits.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lockstep.alerts.alert_ranking import rank_of
from lockstep.alerts.cause.found_change import CODE, Cause
from lockstep.alerts.model import Alert
from lockstep.record.quantity import APART

#: Least number of families that move at one commit if their machine is the probable reason.
_SEVERAL = 3

#: The third oldest and the third newest commit at which a machine measured a family, by machine and family.
Levels = Mapping[tuple[str, str], tuple[str, str]]


def with_stories(alerts: Sequence[Alert], position: Mapping[str, int], levels: Levels) -> list[Alert]:
    """Return the alerts with their ``story`` and ``also_on``, and with their machine as the cause where others say so.

    An alert shows the same step as a graver one if their ranges overlap, owner and kinds of cause and quantity agree,
    and it shares one of these with an alert of that step: the family on another machine; machine, last commit and
    module; the only possible culprit; or the machine, if it is the cause or most of its modules move (``_together``).

    Args:
        position: the position of each commit in the history.
        levels: see ``Levels``.
    """
    alerts = list(alerts)
    first: dict[tuple[str, ...], dict[int, None]] = defaultdict(dict)
    stories: dict[int, list[int]] = {}
    # A dense history has tens of thousands of alerts, of which few are open.
    recent = [at for at, alert in enumerate(alerts) if alert.topic == "slower" and not alert.old]
    slower = [at for at in recent if not alerts[at].gone]
    together = _together([alerts[at] for at in recent], position, levels)
    for at in slower:
        if witness := together.get(alerts[at].fingerprint):
            machine = Cause("machine", f"most benchmarks of the machine moved, and {witness} shows nothing of it")
            members = tuple(replace(member, cause=machine) for member in alerts[at].members)
            alerts[at] = replace(alerts[at], cause=machine, members=members)
    for place in sorted(slower, key=lambda at: -rank_of(alerts[at])):
        alert = alerts[place]
        keys = list(_keys(alert, alert.fingerprint in together))
        candidates = dict.fromkeys(at for key in keys for at in first[key])
        same = (at for at in candidates if _same_step(alert, [alerts[one] for one in stories[at]], position))
        leader = next(same, place)
        stories.setdefault(leader, []).append(place)
        for key in keys:
            first[key][leader] = None
    for places in stories.values():
        for place in places if len(places) > 1 else ():
            others = (alerts[at] for at in places if at != place)
            also_on = tuple(sorted({_seen_from(alerts[place], other) for other in others}))
            alerts[place] = replace(alerts[place], story=alerts[places[0]].fingerprint, also_on=also_on)
    return alerts


def _together(alerts: Sequence[Alert], position: Mapping[str, int], levels: Levels) -> dict[str, str]:
    """Return the fingerprints of alerts in whose range most modules of the machine move, without a cause in their code.

    Most are at least three, and half of the machine's modules that have such alerts; those that recovered count too.
    Beside the fingerprint stands a machine that measured half of these families on both sides, and shows nothing of
    them; "" if there is none, or if the alert's family moves on another machine.
    """
    blind: dict[str, list[tuple[Alert, int, int]]] = defaultdict(list)
    for alert in alerts:
        if alert.cause.kind in CODE and alert.cause.kind != "own commit":
            blind[alert.machine].append((alert, *_ends(alert, position)))
    found = {}
    for machine, here in blind.items():
        most = max(_SEVERAL, len({_module(one) for one, *_ in here}) / 2)
        for alert, begin, end in here:
            if len({_module(one) for one in _moving(here, begin, end)}) < most:
                continue
            families = {name: {one.family for one in _moving(there, begin, end)} for name, there in blind.items()}
            moved, still = families.pop(machine), Counter[str]()
            for (name, family), (oldest, newest) in levels.items():
                if name != machine and family in moved - families.get(name, set()):
                    still[name] += position[oldest] < begin and end <= position[newest]
            quiet = [] if any(alert.family in of for of in families.values()) else still.most_common(1)
            found[alert.fingerprint] = quiet[0][0] if quiet and 2 * quiet[0][1] >= len(moved) else ""
    return found


def _moving(places: Sequence[tuple[Alert, int, int]], begin: int, end: int) -> list[Alert]:
    """Return the alerts whose range, which stands beside them, overlaps a range."""
    return [alert for alert, first, last in places if first <= end and begin <= last]


def _keys(alert: Alert, together: bool) -> Iterator[tuple[str, ...]]:
    """Yield what an alert shares with the alerts that may show the same step."""
    kind = "code" if alert.cause.kind in CODE else alert.cause.kind
    shared = (kind, APART.get(alert.members[0].series.quantity, ""), alert.owner)
    yield "family", alert.family, *shared
    yield "module", _module(alert), alert.machine, alert.after, *shared
    if kind != "code" or together:
        yield "machine", alert.machine, *shared
    elif len(alert.suspects) == 1:
        yield "commit", alert.suspects[0], *shared


def _module(alert: Alert) -> str:
    """Return the family, or the module of a family that is a class of another project's benchmarks."""
    module, _, name = alert.family.rpartition(".")
    return module if alert.members[0].series.foreign and name[:1].isupper() else alert.family


def _seen_from(alert: Alert, other: Alert) -> str:
    """Return where another alert is, for a reader of this one."""
    if other.family == alert.family:
        return other.machine
    return other.family if other.machine == alert.machine else f"{other.family} on {other.machine}"


def _same_step(alert: Alert, story: Sequence[Alert], position: Mapping[str, int]) -> bool:
    """Return whether an alert's range overlaps that of a story's first alert, and the story lacks its place."""
    if any((alert.machine, alert.family) == (other.machine, other.family) for other in story):
        return False
    (first, last), (begin, end) = _ends(alert, position), _ends(story[0], position)
    return first <= end and begin <= last


def _ends(alert: Alert, position: Mapping[str, int]) -> tuple[int, int]:
    last = position.get(alert.after, -1)
    return min(position.get(alert.before, last - 1) + 1, last), last
