"""Tell the story of an alert: what, how much, how sure; since when; why; who; what next.

The page of the alert, messages, feeds and ``lockstep alerts show`` print the same story.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lockstep.alerts.alert_ranking import explain
from lockstep.alerts.cause.commit_notes import CommitNote
from lockstep.alerts.cause.found_change import Evidence
from lockstep.alerts.model import Alert, FoundChange
from lockstep.alerts.reproduce import reproduce
from lockstep.alerts.text import also, amount, change, culprits, headline, interval, proof, search_command
from lockstep.record.series_name import BEST


@dataclass(frozen=True)
class NextStep:
    """Something that a reader may do, and the command that does it."""

    words: str
    command: str


@dataclass(frozen=True)
class Story:
    """The story of an alert in the order in which a reader asks.

    Attributes:
        title: the headline.
        lost: what is lost, in one line; "" if nothing measurable is.
        measured: how the worst series was measured: noise, clocks, copies; "" if unknown.
        best: that the variant ``best`` did not become slower, and which kernel it takes; "" if it did, or is unknown.
        interval: the interval of the worst series; "" without a change.
        since: the commit, or how many commits may be the culprit.
        suspects: the commits that change the kernel's files; all commits if none does, or if git does not say.
        others: the other commits of the range, as far as git knows them, at most a hundred.
        more: number of commits of the range that are not suspects.
        why: the cause in a sentence.
        facts: the facts that differ, and the equal ones of kernels whose code differs, of all series. Of several
            series with the same fact, those of the worst.
        who: the owner, and the authors of the suspects.
        next: what a reader may do.
        series: the changed series, worst first.
    """

    title: str
    lost: str
    measured: str
    best: str
    interval: str
    since: str
    suspects: tuple[CommitNote, ...]
    others: tuple[CommitNote, ...]
    more: int
    why: str
    facts: tuple[Evidence, ...]
    who: str
    next: tuple[NextStep, ...]
    series: tuple[str, ...]

    def lines(self, limit: int = 10) -> Iterator[str]:
        """Yield the story after its title as lines of plain text, with at most ``limit`` commits and series."""
        if self.lost:
            yield f"lost: {self.lost}"
        yield from _listed(self.series, limit, "series")
        yield from (f"{name}: {text}" for name, text in (("measured", self.measured), ("best", self.best)) if text)
        if self.since:
            yield f"since: {self.since}"
        yield from _listed([note_text(note) for note in self.suspects], limit, "commits")
        if self.more:
            yield f"  and {self.more} other commits of the range"
        yield f"why: {self.why}"
        yield from (f"  {_fact(fact)}" for fact in self.facts)
        yield f"who: {self.who}"
        yield from (f"next: {step.words}: {step.command}" for step in self.next)


def tell(alert: Alert, number: int = 0) -> Story:
    """Return the story of an alert. ``number`` is its number in commands; 0 if it is not stored."""
    near = tuple(note for note in alert.notes if note.touches == "kernel")
    suspects = near or alert.notes
    worst = alert.members[0] if alert.members else None
    return Story(
        title=headline(alert),
        lost=explain(alert),
        measured=_measured(worst) if worst else "",
        best=_best(alert),
        interval=interval(worst) if worst else "",
        since="; ".join(filter(None, (culprits(alert), proof(alert), also(alert)))) if alert.commits else "",
        suspects=suspects,
        others=tuple(note for note in alert.notes if note not in suspects),
        more=len(alert.commits) - len(suspects) if suspects else 0,
        why=f"{alert.cause.kind}: {alert.cause.sentence}",
        facts=tuple(_facts(alert)),
        who=_who(alert, suspects),
        next=tuple(_next(alert, number)),
        series=tuple(_series(alert)),
    )


def note_text(note: CommitNote) -> str:
    """Return a commit in one line: hash, day, author, subject, and the kernel's files that it changes."""
    files = f" ({', '.join(note.files)})" if note.files else ""
    return f"{note.commit[:8]} {note.day} {note.author}: {note.subject}{files}"


def _measured(worst: FoundChange) -> str:
    ratio = worst.measure == "ratio"
    parts = [f"noise {100 * worst.noise:.2g} % from commit to commit"] if worst.noise and ratio else []
    parts += [f"clocks {worst.clock}"] if worst.clock else []
    if worst.copied:
        words = "point beside the change is a copy" if worst.copied == 1 else "points beside the change are copies"
        parts.append(f"{worst.copied} {words} of the same work")
    return ", ".join(parts)


def _best(alert: Alert) -> str:
    if alert.best_moved is None:
        return ""
    moved = f"fell by {change(alert.best_moved).lstrip('−')}" if alert.best_moved else "did not change"
    if alert.best_takes:
        return f"`{BEST}` takes `{alert.best_takes}` at this case: its time {moved}"
    return f"the time of `{BEST}` {moved} at this case"


def _facts(alert: Alert) -> Iterator[Evidence]:
    if not alert.commits:
        yield from alert.cause.evidence
        return
    told: set[str] = set()
    for cause in (alert.cause, *(member.cause for member in alert.members)):
        facts = [fact for fact in cause.evidence if fact.what != "commit" and (fact.kernel or fact.what) not in told]
        told |= {fact.kernel or fact.what for fact in facts}
        yield from facts


def _fact(fact: Evidence) -> str:
    moved = f"{fact.before} → {fact.after}" if fact.before not in ("", fact.after) else fact.after
    return f"{fact.kernel} {fact.what} {moved}".strip() + (f": {fact.means}" if fact.means else "")


def _who(alert: Alert, suspects: tuple[CommitNote, ...]) -> str:
    owner = f"{alert.owner} owns it" if alert.owner else "nobody is named as its owner"
    authors = [*dict.fromkeys(note.author for note in suspects)]
    others = f" and {len(authors) - 3} others" if len(authors) > 4 else ""
    named = ", ".join(authors[: 3 if others else None])
    return f"{owner}; the commits above are by {named}{others}" if authors else owner


def _next(alert: Alert, number: int) -> Iterator[NextStep]:
    name = str(number or "NUMBER")
    if search := search_command(alert, number):
        yield NextStep("find the commit", search)
    if again := reproduce(alert):
        yield NextStep("measure it again", again)
    worst = alert.members[0].series if alert.members else None
    if worst and worst.ours and alert.known and alert.before:
        ends = f"{alert.before[:12]} {alert.after[:12]}"
        yield NextStep("compare the machine code", f"lockstep code diff {ends} --family {worst.suite}")
    if alert.members:
        yield NextStep("the new level is correct", f'lockstep alerts new-baseline {name} --because "…"')
        yield NextStep("nothing changed", f'lockstep alerts no-change {name} --because "…"')
    yield NextStep("be silent until a day", f'lockstep alerts mute {name} --until YYYY-MM-DD --because "…"')


def _series(alert: Alert) -> Iterator[str]:
    for member in alert.members:
        note = "" if member.cause.kind == alert.cause.kind else f" ({member.cause.kind}: {member.cause.sentence})"
        size = amount(member)
        if not member.counted:
            size = f"{size:>9} ({interval(member)})" if member.measure == "ratio" else f"{size}, {interval(member)}"
        yield f"{size}  {member.series.label}{note}"


def _listed(texts: tuple[str, ...] | list[str], limit: int, noun: str) -> Iterator[str]:
    yield from (f"  {text}" for text in texts[:limit])
    if len(texts) > limit:
        yield f"  and {len(texts) - limit} more {noun}"
