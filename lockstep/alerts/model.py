"""Define an alert and its parts, and the result of an analysis, which holds them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lockstep.alerts.cause.commit_notes import CommitNote
from lockstep.alerts.cause.commit_ranges import Unknown
from lockstep.alerts.cause.found_change import Cause
from lockstep.alerts.cause.found_change import FoundChange as FoundChange
from lockstep.alerts.cause.found_change import Waiver as Waiver

#: What an alert reports. "changed": a number changed, and nobody has stated which direction is better. Alerts with one
#: of the last five topics do not report changes of a number. They are called freshness alerts, see
#: ``lockstep.alerts.analysis.stopped_series``. "renamed" and "version" are in older databases alone.
Topic = Literal["slower", "changed", "faster", "stopped", "silent", "vanished", "renamed", "version"]


@dataclass(frozen=True)
class Alert:
    """An alert as the newest analysis reports it.

    Attributes:
        topic: "slower" if a series became worse; else "changed" if a series without a better direction changed; else
            "faster". Or the topic of a freshness alert. Of changes, only "slower" opens an alert; others are recorded.
        family: the family's name; "" if the alert concerns the whole machine.
        before: newest commit that is known to be good; "" if unknown.
        commits: possible culprits, oldest first; the range is ``before..commits[-1]``. If the range is ``unknown``, and
            in a freshness alert, only the measured commits are listed, so another commit may be the culprit.
        unknown: why the commits of the range are unknown; "" if they are known.
        cause: the cause of the largest part of the change.
        members: the series, worst first.
        since: date of ``commits[-1]``, ms since 1970.
        also_on: where else the same shows: other machines, or other families, as ``family on machine`` if both differ.
            If numbers changed, the others have alerts of their own.
        story: key that the alerts of a step share, see ``lockstep.alerts.analysis.same_step``; "" if there is only one.
        owner: the owner that ``thresholds.toml`` names; "" if nobody owns the series.
        gone: whether the series are back at their old level.
        old: whether the change is too old to be reported.
        waiver: the waiver that covers every slowdown; ``None`` if one has no waiver.
        text: the text of a freshness alert; "" for a change, which its numbers describe.
        notes: who made the commits of the range, when and why, those that change the kernel's files first. It lacks
            commits that git does not know, and those beyond a hundred.
        failing: whether a series fails, in a freshness alert.
        best_moved: log factor of the time of ``best`` at the case of the worst series of a slowdown, if it did not
            become slower, and 0 if it changed less than its ``min_effect``; ``None`` if it did, or is unknown.
        best_takes: another variant whose work for the GPU that of ``best`` equals there; "" if unknown.
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
    story: str = ""
    best_moved: float | None = None
    best_takes: str = ""

    @property
    def after(self) -> str:
        """The newest commit that may be the culprit of the alert; "" if there is none."""
        return self.commits[-1] if self.commits else ""

    @property
    def known(self) -> bool:
        """Whether one of the alert's ``commits`` is certainly the culprit."""
        return bool(self.members) and not self.unknown

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


@dataclass(frozen=True)
class AnalysisResult:
    """The alerts that an analysis found, and the changes from which they follow.

    Attributes:
        alerts: the reported changes, grouped into alerts, and the freshness alerts. Each change belongs to one alert.
        commits: the measured commits of each analysed machine, oldest first. Alerts of other machines are not touched.
        dead: machines that stopped while other machines continued. Their open alerts are archived until they report
            again.
        unreported: why a change that the analysis found is in no alert, by the key of the change.
        changes: every change of every followed series, in the order of the series.
        series: number of series that have a number, by machine, family and suite. Versions of a series count once.
    """

    alerts: Sequence[Alert]
    commits: Mapping[str, Sequence[str]]
    dead: frozenset[str] = frozenset()
    unreported: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[FoundChange, ...] = ()
    series: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
