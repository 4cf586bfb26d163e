"""Define a change of a series with its cause."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass, field, replace
from typing import Literal

from lockstep.alerts.cause.commit_ranges import Unknown
from lockstep.detect.findings import Measure
from lockstep.record.figure_meanings import meaning
from lockstep.record.quantity import Better
from lockstep.record.series_name import SeriesName

#: What a change means. "changed": nobody has stated which direction is better.
Sense = Literal["worse", "better", "changed"]

#: "noise": the machine code did not change. Such a change gives no alert. A change of the same series that may come
#: from a commit is reported only if it is larger.
#: "unknown range": only the commits differ, and git does not know the commits in between.
#: "unknown cause": the commits differ. Package versions are not recorded, so they may differ as well.
Kind = Literal[
    "own commit", "unknown range", "unknown cause", "toolchain", "machine", "protocol", "noise", "unexplained"
]

#: Causes with which a commit may be to blame.
CODE: tuple[Kind, ...] = ("own commit", "unknown range", "unknown cause", "unexplained")

#: Why a change is not reported. "small": smaller than the threshold. "unsure": the detector is not certain enough.
#: "noise": the machine code is equal on both sides, or the series changed as much where the machine code was equal.
#: "moved": the series moved to another GPU, which explains the change. "": reported.
#: "unconfirmed": only the newest two points lie at the new level.
Suppressed = Literal["", "small", "unsure", "noise", "moved", "unconfirmed"]

#: Names of the evidence that a move to another GPU explains a step.
MEASURED_ON_BOTH, MODELS_DIFFER = "a commit measured on both", "GPUs of one model differ by"


@dataclass(frozen=True)
class Evidence:
    """A fact that supports a cause: its name, and its values before and after the step.

    ``before`` is "" if the fact has only one value, for example a commit. ``kernel`` is the kernel that the fact is of.
    """

    what: str
    before: str
    after: str
    kernel: str = ""

    @property
    def changed(self) -> bool:
        """Whether the values before and after the step differ."""
        return self.before != self.after

    @property
    def text(self) -> str:
        """The name and the values of the fact for people, such as ``torch 2.11.0 → 2.13.0``."""
        name = f"{self.kernel} {self.what}".lstrip()
        return f"{name} {self.before} → {self.after}" if self.before else f"{name} {self.after}"

    @property
    def means(self) -> str:
        """What such a difference of a kernel usually means; "" if nothing is known."""
        return meaning(self.what, self.before, self.after) if self.kernel else ""


@dataclass(frozen=True)
class Cause:
    """Why a series changed: the kind of the cause, a sentence for people, and the facts that support it."""

    kind: Kind
    sentence: str
    evidence: tuple[Evidence, ...] = ()

    @property
    def gpu_moved(self) -> bool:
        """Whether a move to another GPU explains the step."""
        return any(fact.what in (MEASURED_ON_BOTH, MODELS_DIFFER) for fact in self.evidence)


@dataclass(frozen=True)
class Waiver:
    """The reason that ``thresholds.toml`` gives why a change needs no action.

    ``until`` is the last day of a mute; ``None`` if the change is accepted for good.
    """

    because: str
    until: datetime.date | None = None


#: The cause of a change that is not attributed yet.
UNEXPLAINED = Cause("unexplained", "")


def change_key(series: SeriesName, reported_at: str) -> str:
    """Return the key of the change of a series that was first reported at a commit."""
    names = (series.machine, series.suite, series.variant, series.case, series.l2, series.quantity, reported_at)
    return "\x1f".join(names)


@dataclass(frozen=True)
class FoundChange:
    """A change of a series with its cause: in the analysis, on pages, in alerts and in messages.

    The alert database stores the fields up to ``after_like``. In an alert read from it, the others are unknown.

    Attributes:
        reported_at: commit at which the change was first reported. Series and commit together identify the change.
        size: by how much the series became *worse*, in every quantity; if ``better`` is "neither", by how much its
            number grew. If ``measure`` is "ratio", the natural log of a factor: 0.05 is 5 % slower. Otherwise a
            difference in the unit of the series.
        low, high: interval of ``size``.
        confidence: the detector's confidence in the change, 0 … 1.
        left: by how much the series' newest level is still worse than the level before the change; of a loss, by how
            much the best of its later levels was.
        before: newest measured commit that certainly lies before the change.
        after: the newest commit that may be the culprit. Both are "" if an older version of Lockstep stored the alert
            without them.
        old, new: the numbers of an exact quantity, or the levels of a series whose changes are differences; otherwise
            ``None``.
        better: the better direction of the number.
        measure: how ``size`` and its interval are measured.
        recent: like ``left``, of the median of the series' last three points; ``None`` if unknown.
        flips: whether the series passes often from one level of the change to the other.
        few: whether fewer than five points follow the change, and do not lie clear of those before.
        noise: run-to-run noise of the series, a standard deviation measured like ``size``; ``None`` if unknown.
        clock: clock state of the first run with the change; "" if unknown.
        confirmed: see ``lockstep.detect.Change``.
        copied: number of points beside the change that copy the number of another commit with the same work.
        before_like, after_like: the measured commit whose work for the GPU ``before`` or ``after`` gives it, which
            proves the narrower range; "" if the end of the range was measured itself.
        version: index of the benchmark version, in the order of first appearance in the series.
        first, last: positions, among the machine's commits, between which the first changed point lies (95 %).
        commit: the first commit measured with the change.
        between: commits that may be the culprit, oldest first. There are several if some were not measured, or if the
            place of the change is uncertain. If ``unknown`` is set, only measured commits are listed.
        unknown: why the commits between ``before`` and ``after`` are unknown; "" if they are known.
        suppressed: why the change is not reported; "" if the change is reported.
        owner, waiver: the owner of the series, and why the change needs no action; of a reported change.
        since: date of the last possible culprit, ms since 1970; 0 if the change is not reported.
        min_effect: relative change within which the series counts as back at its old level.
        too_old: whether the change is too old to be reported.
        best_moved, best_takes: by how much the variant ``best`` became worse in the same case, like ``size``, and the
            other variant whose work for the GPU it takes there; ``None`` and "" if unknown.
    """

    series: SeriesName
    reported_at: str
    size: float
    low: float
    high: float
    confidence: float
    cause: Cause = UNEXPLAINED
    left: float = math.nan
    before: str = ""
    after: str = ""
    old: float | None = None
    new: float | None = None
    better: Better = "lower"
    measure: Measure = "ratio"
    recent: float | None = None
    flips: bool = False
    few: bool = False
    noise: float | None = None
    clock: str = ""
    copied: int = 0
    before_like: str = ""
    after_like: str = ""
    confirmed: bool = field(default=True, compare=False)
    version: int = field(default=0, compare=False)
    first: int = field(default=-1, compare=False)
    last: int = field(default=-1, compare=False)
    commit: str = field(default="", compare=False)
    between: tuple[str, ...] = field(default=(), compare=False)
    unknown: Unknown = field(default="", compare=False)
    suppressed: Suppressed = field(default="", compare=False)
    owner: str = field(default="", compare=False)
    waiver: Waiver | None = field(default=None, compare=False)
    since: int = field(default=0, compare=False)
    min_effect: float = field(default=0.01, compare=False)
    too_old: bool = field(default=False, compare=False)
    best_moved: float | None = field(default=None, compare=False)
    best_takes: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        """Key of the change, which stays the same if later data change the size; see ``change_key``."""
        return change_key(self.series, self.reported_at)

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

    @property
    def sense(self) -> Sense:
        """Whether the series became worse or better, or only changed because no direction is better."""
        if self.better == "neither":
            return "changed"
        return "worse" if self.size > 0 else "better"

    @property
    def gone(self) -> bool:
        """Whether the series recovered: at most a fifth of the change is left."""
        return self.left <= max(self.min_effect * self.scale, abs(self.size) / 5)

    @property
    def counted(self) -> bool:
        """Whether the quantity is exact, so that ``old`` and ``new`` are its numbers and every difference counts."""
        return self.old is not None and self.measure == "ratio"

    @property
    def scale(self) -> float:
        """The divisor that makes ``size`` relative: 1 for a ratio, the larger level for a difference."""
        if self.measure == "ratio":
            return 1.0
        return max(abs(self.old or 0.0), abs(self.new or 0.0)) or 1.0

    @property
    def weight(self) -> float:
        """The size for comparisons between series: the log of a ratio, or a difference divided by the larger level."""
        return self.size / self.scale

    @property
    def share(self) -> float:
        """The relative change of the number without its sign: 0.3 if ``GB/s`` fall by 30 %."""
        return abs(self.weight) if self.measure == "difference" else abs(math.expm1(self.of_number(self.size)))

    def of_number(self, size: float) -> float:
        """Convert a size that is positive for worse into one that is positive for a larger number.

        The speedup of a Lockstep suite stands for a time, so its sizes are those of the time.
        """
        return -size if self.better == "higher" and not self.series.ours else size
