"""Define an alert and its parts, as an analysis reports them."""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import dataclass, field, replace
from typing import Literal

from lockstep.alerts.cause.attribution import Cause, attribute
from lockstep.alerts.cause.change_facts import Step
from lockstep.alerts.cause.change_size import ChangeSize
from lockstep.alerts.cause.commit_notes import CommitNote
from lockstep.alerts.cause.commit_ranges import Unknown
from lockstep.detect.findings import Measure
from lockstep.record.quantity import Better
from lockstep.record.series_name import SeriesName

#: Why a change is not reported. "small": smaller than the threshold. "unsure": the detector is not certain enough.
#: "noise": the machine code did not change, or the change is no larger than changes of unchanged code. "moved": the
#: series moved to another GPU, which explains the change. "": reported.
Suppressed = Literal["", "small", "unsure", "noise", "moved"]

#: What an alert reports. "changed": a number changed, and nobody has stated which direction is better. Alerts with one
#: of the last five topics do not report changes of a number. They are called freshness alerts, see
#: ``lockstep.alerts.analysis.freshness``.
Topic = Literal["slower", "changed", "faster", "stopped", "silent", "vanished", "renamed", "version"]

#: Topics of changes that may be bad news, so that they open an alert that someone has to close.
URGENT: tuple[Topic, ...] = ("slower", "changed")


@dataclass(frozen=True)
class FoundChange(ChangeSize):
    """A change of a series with its cause: in the analysis, on pages, in alerts and in messages.

    The alert database stores the fields up to ``measure``. In an alert that was read from it, the others are unknown.

    Attributes:
        series, size, better, measure, old, new: see ``ChangeSize``.
        reported_at: commit at which the change was first reported. Series and commit together identify the change.
        low, high: interval of ``size``.
        confidence: the detector's confidence in the change, 0 … 1.
        cause: the cause of the change.
        left: by how much the series' newest level is still worse than the level before the change.
        recent: the same of the median of the series' last three points; ``None`` if unknown.
        flips: whether the series moves between levels: an earlier level was as bad, or a later one as good as before.
        before: newest measured commit that certainly lies before the change.
        after: the newest commit that may be the culprit. Both are "" if an older version of Lockstep stored the alert
            without them.
        version: index of the benchmark version, in the order of first appearance in the series.
        first, last: positions, among the machine's commits, between which the first changed point lies (95 %).
        commit: the first commit measured with the change.
        between: commits that may be the culprit, oldest first. If ``unknown`` is set, only measured commits are listed.
        unknown: why the commits between ``before`` and ``after`` are unknown; "" if they are known.
        suppressed: why the change is not reported; "" if the change is reported.
    """

    series: SeriesName
    reported_at: str
    size: float
    low: float
    high: float
    confidence: float
    cause: Cause
    left: float
    before: str = ""
    after: str = ""
    old: float | None = None
    new: float | None = None
    better: Better = "lower"
    measure: Measure = "ratio"
    recent: float | None = None
    flips: bool = False
    version: int = field(default=0, compare=False)
    first: int = field(default=-1, compare=False)
    last: int = field(default=-1, compare=False)
    commit: str = field(default="", compare=False)
    between: tuple[str, ...] = field(default=(), compare=False)
    unknown: Unknown = field(default="", compare=False)
    suppressed: Suppressed = field(default="", compare=False)

    @classmethod
    def of(cls, step: Step, version: int = 0) -> FoundChange:
        """Return a step with its cause. ``version`` is the index of the benchmark version of its series."""
        return cls(
            series=step.series,
            reported_at=step.reported_at,
            size=step.size,
            low=step.low,
            high=step.high,
            confidence=step.confidence,
            cause=attribute(step),
            left=step.left,
            before=step.good,
            after=step.end,
            old=step.old,
            new=step.new,
            better=step.better,
            measure=step.measure,
            recent=step.recent,
            version=version,
            first=step.first,
            last=step.last,
            commit=step.after.commit,
            between=step.between,
            unknown=step.unknown,
        )

    @property
    def key(self) -> str:
        """Key of the change, built from its series and ``reported_at``. It stays the same if later data change the
        size.
        """
        s = self.series
        return "\x1f".join((s.machine, s.suite, s.variant, s.case, s.l2, s.quantity, self.reported_at))

    @property
    def exact(self) -> bool:
        """Whether the commit ``after`` is known to be the culprit of the change."""
        return len(self.between) == 1 and not self.unknown

    @property
    def range(self) -> str:
        """The culprit range for git: ``before..after``, or a single commit if it is known; "" if there is none."""
        return self.after[:8] if self.exact or not self.after else f"{self.before[:8]}..{self.after[:8]}"

    @property
    def range_text(self) -> str:
        """The culprit range for people: ``267e5d01..177708fb, one of 48 commits``, or the culprit if it is known."""
        if self.exact:
            return self.range
        among = "" if self.unknown else f", one of {len(self.between)} commits"
        return f"{self.before[:8]}..{self.after[:8]}{among}"

    def directed(self, better: Better) -> FoundChange:
        """Return the change under another better direction, which turns the sign of its sizes."""
        if self.better == better:
            return self
        if "higher" not in (self.better, better):
            return replace(self, better=better)
        return replace(
            self,
            better=better,
            size=-self.size,
            low=-self.high,
            high=-self.low,
            left=-self.left,
            recent=None if self.recent is None else -self.recent,
        )


@dataclass(frozen=True)
class Waiver:
    """The reason that ``thresholds.toml`` gives why a change needs no action.

    ``until`` is the last day of a mute; ``None`` if the change is accepted for good.
    """

    because: str
    until: datetime.date | None = None


@dataclass(frozen=True)
class Alert:
    """An alert as the newest analysis reports it.

    Attributes:
        topic: "slower" if a series became worse; else "changed" if a series without a better direction changed; else
            "faster". Or the topic of a freshness alert.
        machine: the machine's name.
        family: the family's name; "" if the alert concerns the whole machine.
        before: newest commit that is known to be good; "" if unknown.
        commits: possible culprits, oldest first; the range is ``before..commits[-1]``. If the range is ``unknown``, and
            in a freshness alert, only the measured commits are listed, so another commit may be the culprit.
        unknown: why the commits of the range are unknown; "" if they are known.
        cause: the cause of the largest part of the change.
        members: the series, worst first.
        since: date of ``commits[-1]``, ms since 1970.
        also_on: other machines on which the family changed in overlapping commits.
        owner: the owner that ``thresholds.toml`` names; "" if nobody owns the series.
        gone: whether the series are back at their old level.
        old: whether the change is too old to be reported.
        waiver: the waiver that covers every slowdown and every change without a direction; ``None`` if one has no
            waiver.
        text: the text of a freshness alert; "" for a change, which its numbers describe.
        notes: who made the commits of the range, when and why, those that change the kernel's files first. It lacks
            commits that git does not know, and those beyond a hundred.
        failing: whether a series fails, in a freshness alert.
        doubt: why the alert probably shows nothing new; "" if there is no such reason.
    """

    topic: Topic
    machine: str
    family: str
    before: str
    commits: tuple[str, ...]
    cause: Cause
    members: tuple[FoundChange, ...] = ()
    since: int = 0
    also_on: tuple[str, ...] = ()
    owner: str = ""
    gone: bool = False
    old: bool = False
    waiver: Waiver | None = None
    text: str = ""
    unknown: Unknown = ""
    notes: tuple[CommitNote, ...] = ()
    failing: bool = False
    doubt: str = ""

    @property
    def after(self) -> str:
        """The newest commit that may be the culprit of the alert; "" if there is none."""
        return self.commits[-1] if self.commits else ""

    @property
    def known(self) -> bool:
        """Whether one of the alert's ``commits`` is certainly the culprit."""
        return bool(self.members) and not self.unknown

    @property
    def narrowed(self) -> bool:
        """Whether measurements of other machines made the range of this machine's alert narrower."""
        member_ends = {member.before for member in self.members}, {member.after for member in self.members}
        return (
            bool(self.also_on)
            and "" not in member_ends[0]
            and (self.before not in member_ends[0] or self.after not in member_ends[1])
        )

    @property
    def range(self) -> str:
        """The culprit range for git: ``before..after``, or a single commit if the culprit is known."""
        after = self.after[:8]
        return f"{self.before[:8]}..{after}" if self.before and not (self.known and len(self.commits) == 1) else after

    @property
    def suspects(self) -> tuple[str, ...]:
        """The commits that a search has to consider: those of the alert's range that touch the packages under test.

        All commits of the range if it is not known which of them do; () if the range is unknown.
        """
        if not self.known:
            return ()
        named = tuple(evidence.after for evidence in self.cause.evidence if evidence.what == "commit")
        return named or self.commits

    @property
    def fingerprint(self) -> str:
        """Key that the alert gets when it is created: 32 hex digits."""
        first_change = self.members[0].key if self.members else ""
        text = "\x1e".join((self.topic, self.machine, self.family, self.before, self.after, first_change))
        return hashlib.sha256(text.encode()).hexdigest()[:32]
