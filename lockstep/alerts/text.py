"""Format alerts as text, for the terminal, messages, feeds and pages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from lockstep.alerts.cause.commit_ranges import BY_DATE, Unknown
from lockstep.alerts.database.alert_row import Tracked
from lockstep.alerts.model import Alert, FoundChange, Topic

if TYPE_CHECKING:
    from lockstep.alerts.cause.found_change import Sense

_TOPICS: dict[Topic, str] = {
    "slower": "slower",
    "changed": "changed",
    "faster": "faster",
    "stopped": "stopped reporting",
    "silent": "silent",
    "vanished": "vanished",
    "renamed": "perhaps renamed",
    "version": "measured differently",
}


#: Maximum length of a list of names, in characters; the first name is listed whatever its length.
_LINE = 100

#: Factor from which a growth is written as a factor and not as a percentage.
_FOLD = 3


def change(log: float) -> str:
    """Format a log factor as a percentage: ``+5.1 %``, ``−5.1 %`` with a typographic minus, or ``×37`` from 3 on."""
    if log >= math.log(_FOLD):
        return f"×{math.exp(log):,.3g}"
    return f"{100 * math.expm1(log):+z.1f} %".replace("-", "−")


def span(low: float, high: float) -> str:
    """Format an interval of log factors as percentages: ``+4.7 … +5.5 %``."""
    return f"{change(low).removesuffix(' %')} … {change(high)}"


def amount(sized: FoundChange) -> str:
    """Format the size of a change: ``+5.1 %``.

    An exact quantity, and a change that is a difference, give ``numbers``.
    """
    return numbers(sized) or by(sized, sized.size)


def numbers(sized: FoundChange) -> str:
    """Format the two numbers of a change: ``128 → 255 (+99.2 %)`` for an exact quantity; "" for a ratio.

    A difference is in the unit of the series: ``0 → 5 (+5 bytes)``. The percentage of an exact quantity is left out if
    a number is zero.
    """
    if sized.old is None or sized.new is None:
        return ""
    if not sized.counted:
        return f"{_level(sized.old)} → {_level(sized.new)} ({by(sized, sized.size)})"
    text = f"{_count(sized.old)} → {_count(sized.new)}"
    return f"{text} ({change(math.log(sized.new / sized.old))})" if sized.old and sized.new else text


def by(sized: FoundChange, size: float) -> str:
    """Format a size that is measured like ``sized.size``, as a change of the number: ``−30.0 %`` or ``+5 bytes``."""
    return _moved(sized, sized.of_number(size))


def interval(sized: FoundChange) -> str:
    """Format the interval of a change, as a change of the number; "exact" for an exact quantity."""
    if sized.counted:
        return "exact"
    low, high = sorted((sized.of_number(sized.low), sized.of_number(sized.high)))
    if sized.measure == "ratio":
        return span(low, high)
    return f"{_level(low, '+')} … {_moved(sized, high)}"


def left(sized: FoundChange) -> str:
    """Format what is left of a change at the newest level; "–" where an exact count was zero."""
    return "–" if sized.counted and sized.old == 0 else by(sized, sized.left)


def _moved(sized: FoundChange, moved: float) -> str:
    if sized.measure == "ratio":
        return change(moved)
    # Brackets explain a unit, as in "req/s (higher is better)".
    unit = sized.series.quantity.partition(" (")[0]
    return _level(moved, "+") + ("" if unit in ("value", "unit") else f" {unit}")


def _level(number: float, sign: str = "") -> str:
    # Numbers of many digits are written whole, because "1.049e+06 bytes" is hard to read.
    text = f"{number:{sign},.0f}" if abs(number) >= 1000 or number == int(number) else f"{number:{sign}.4g}"
    return text.replace("-", "−")


def _count(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:.2e}"


def also(alert: Alert) -> str:
    """Return where else the same shows, ``also: h100, kda on h100 and 3 more``; "" if nowhere.

    Names are listed up to ``_LINE`` characters, because those of other projects' benchmarks and machines are long.
    """
    if not alert.also_on:
        return ""
    ends = accumulate(len(f"{name}, ") for name in alert.also_on)
    most = max(1, sum(end <= _LINE for end in ends))
    more = f" and {len(alert.also_on) - most} more" if len(alert.also_on) > most else ""
    return f"also: {', '.join(alert.also_on[:most])}{more}"


def location(alert: Alert) -> str:
    """Return the family and the machine of an alert for a sentence: ``linear on h200``."""
    return f"{alert.family} on {alert.machine}" if alert.family else alert.machine


def headline(alert: Alert) -> str:
    """Summarise an alert in one line: where, what happened, by how much, and in which commits."""
    if alert.topic == "silent":
        return alert.text
    if not alert.members:
        several = "" if alert.family else "several benchmarks on "
        return f"{several}{location(alert)} {_TOPICS[alert.topic]} since {alert.after[:8]}: {alert.text}"
    worst = alert.members[0]
    counts = Counter(member.sense for member in alert.members)
    words = sense_words(worst.series.timed)
    topic, same = words[worst.sense], counts.pop(worst.sense)
    others_note = f" and {same - 1} more" if same > 1 else ""
    if counts:
        others = " and ".join(f"{counts[sense]} {word}" for sense, word in words.items() if sense in counts)
        others_note += f"; {others} in the same range"
    if worst.old is not None:
        return f"{location(alert)} {topic} in {alert.range}: {worst.series.short_label} {amount(worst)}{others_note}"
    size = by(worst, worst.size) if worst.sense == "changed" else by(worst, worst.size).lstrip("+−")
    size = size if size.startswith("×") else f"by {size}"
    return (
        f"{location(alert)} {topic} {size}{left_note(worst)} in {alert.range}: {worst.series.short_label}{others_note}"
    )


def left_note(member: FoundChange) -> str:
    """Return ``, of which +50.0 % is left,`` if a part of a change has been undone; otherwise "".

    Parts below a fifth of the change are not stated: later points move the newest level by as much.
    """
    undone = 1 - member.left / member.size if member.size and math.isfinite(member.left) else 0.0
    return f", of which {by(member, member.left)} is left," if 0.2 <= undone < 1 else ""


def sense_words(timed: bool) -> Mapping[Sense, str]:
    """Return the words for the senses of changes: "slower" and "faster" for times, otherwise "worse" and "better"."""
    if timed:
        return {"worse": "slower", "better": "faster", "changed": "changed"}
    return {"worse": "worse", "better": "better", "changed": "changed"}


def status(tracked: Tracked) -> str:
    """Format the state of an alert: ``muted until 2027-01-31``, ``resolved (fixed)`` or ``new``."""
    if tracked.state == "muted":
        return f"muted until {tracked.muted_until}"
    return f"resolved ({tracked.ending})" if tracked.state == "resolved" else tracked.state


#: How to make an unknown range known, by ``Alert.unknown``. ``{0}`` and ``{1}`` are the two ends.
_REMEDIES: Mapping[Unknown, str] = {
    "no repository": "name the git repository with --repo FOLDER",
    "shallow": "`git fetch --unshallow` completes the clone",
    "unplaced": "`git fetch --unshallow` completes the clone",
    "missing": "get the commits with `git fetch`, or name the repository that has them with --repo FOLDER",
    "branches": "`git log --oneline --left-right {0}...{1}` lists the commits that differ",
}


def remedy(unknown: Unknown, before: str, after: str) -> str:
    """Return what a reader can do about an unknown range between two commits; "" if the range is known."""
    return _REMEDIES[unknown].format(before[:12], after[:12]) if unknown else ""


def culprits(alert: Alert) -> str:
    """Say which commit is the culprit, or how many commits may be.

    For an unknown range, the text names its ends and says what a reader can do.
    """
    before, after = alert.before[:12], alert.after[:12]
    span = f"{before}..{after}" if before else f"up to {after}"
    suspects, number = alert.suspects, len(alert.commits)
    if not number:
        return "no new commit"
    if not alert.members:
        return f"between the measured commits {before} and {after}" if before else f"since {after}"
    if alert.unknown:
        order = "in the order of their dates, " if alert.unknown in BY_DATE else ""
        return f"{span}, {order}and the commits in between are unknown: {remedy(alert.unknown, before, after)}"
    if number == 1:
        return f"commit {after}"
    if len(suspects) == 1:
        only = f"the only one of {number} in {span} that touches the packages under test"
        return f"commit {suspects[0][:12]}, {only}"
    touching_note = f", of which {len(suspects)} touch the packages under test" if len(suspects) < number else ""
    return f"one of {number} commits{touching_note}: {span}"


def proof(alert: Alert) -> str:
    """Say which commits, not timed themselves, prove the ends of an alert's range by their work; "" if none does."""
    likes = {alert.before: "", alert.after: ""}
    for member in alert.members:
        likes |= {
            end: like for end, like in ((member.before, member.before_like), (member.after, member.after_like)) if like
        }
    ends = [
        f"{end[:12]}, which gives the GPU the same work as {likes[end][:12]}"
        for end in (alert.before, alert.after)
        if likes[end]
    ]
    return f"proven by {', and by '.join(ends)}" if ends else ""


def search_command(alert: Alert, number: int) -> str:
    """Return the command that finds the culprit of an alert; "" if it is known, or the range cannot be searched."""
    if len(alert.suspects) < 2:
        return ""
    worst, ends = alert.members[0], f"{alert.before[:12]}..{alert.after[:12]}"
    if worst.series.checked or worst.series.cost:
        return f"lockstep run {ends} --bench {alert.family}"
    if worst.counted:
        return f"lockstep code history {ends}"
    return f"lockstep bisect {number or 'NUMBER'}" if worst.series.ours else asv_find_command(alert)


def asv_find_command(alert: Alert) -> str:
    """Return asv's command that searches the alert's range for the change of its worst series."""
    worst = alert.members[0]
    invert = "" if worst.of_number(worst.size) > 0 else "--invert "  # asv searches for an increase by default
    return f"asv find {invert}{alert.before[:12]}..{alert.after[:12]} {worst.series.suite}.{worst.series.variant}"
