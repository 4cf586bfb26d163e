"""What the gate says of one case, and of all of them. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from lockstep.record.model import Estimate

#: ``na``: neither side runs the case here, so it was not compared.
Outcome = Literal["same", "faster", "slower", "unsure", "failed", "new", "removed", "na"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

#: Why a case is unsure that was never begun.
UNREACHED = "the budget did not reach it"

#: Why a case is unsure that was begun and had too few epochs.
OUT_OF_TIME = "out of time"

#: Why a case is unsure whose time ended while epochs were still thrown out; further epochs would have counted.
MOVED = "controls moved in every epoch"


@dataclass(frozen=True, order=True)
class SeriesKey:
    """One variant at one case and cache state: what a verdict is about."""

    suite: str
    variant: str
    case: str
    l2: str

    def __str__(self) -> str:
        return f"{self.suite} {self.variant} {self.case} {self.l2}"


@dataclass(frozen=True)
class Verdict:
    """What was found of one case.

    Attributes:
        key: which.
        outcome: one of ``OUTCOMES``.
        reason: why, where the numbers do not say it.
        change: head's time over base's, minus 1, with its interval: 0.01 is 1 % slower. ``None`` if not timed.
        min_effect: changes up to this count as none; what was asked, or more where the machine asks for it.
        base_s, head_s: seconds a call, geometric means over the epochs that ``change`` rests on. Their ratio is
            ``change`` but for clocks: ``change`` is at a common clock.
        epochs: sets of fresh buffers that it rests on, both rounds together.
        confirmed: a second round on other buffers found the difference again.
        moved: epochs in which a control moved, voided ones included.
        voided: epochs that were thrown out because a control moved; ``epochs`` does not count them.
        shared: both sides used the very same buffers.
        proved: machine code and launch are those of base; measured all the same if ``change`` is there, and could not
            be if the outcome is "na".
        in_base: what failed fails in base as well: the change did not break it.
        code: a sentence for each difference of the machine code.
        accepted: the reason given in thresholds.toml, if a slowdown is accepted.
        file, line: the variant's function in head, relative to the tree; 0 unknown.
        wall_s: seconds spent on it.
    """

    key: SeriesKey
    outcome: Outcome
    reason: str = ""
    change: Estimate | None = None
    min_effect: float = 0.0
    base_s: float | None = None
    head_s: float | None = None
    epochs: int = 0
    confirmed: bool = False
    moved: int = 0
    voided: int = 0
    shared: bool = True
    proved: bool = False
    in_base: bool = False
    code: tuple[str, ...] = ()
    accepted: str = ""
    file: str = ""
    line: int = 0
    wall_s: float = 0.0

    @property
    def label(self) -> str:
        """Return the outcome as reports show it."""
        return "n/a" if self.outcome == "na" else self.outcome

    @property
    def blocks(self) -> bool:
        """Whether the change must not pass because of it."""
        return (self.outcome == "slower" and not self.accepted) or (self.outcome == "failed" and not self.in_base)


def verdict_from(row: Mapping[str, Any]) -> Verdict:
    """A verdict from its JSON object; unknown fields are ignored."""
    known = {one.name: row[one.name] for one in fields(Verdict) if one.name in row}
    change = known.get("change")
    return Verdict(
        **{
            **known,
            "key": SeriesKey(**known["key"]),
            "change": Estimate(**change) if change else None,
            "code": tuple(known.get("code", ())),
        }
    )


@dataclass(frozen=True)
class Group:
    """Cases that share buffers: some variants of one suite at one shape and cache state."""

    suite: str
    case: str
    l2: str
    variants: tuple[str, ...]

    def cases(self) -> tuple[SeriesKey, ...]:
        """The cases."""
        return tuple(SeriesKey(self.suite, variant, self.case, self.l2) for variant in self.variants)


@dataclass(frozen=True)
class GroupRequest:
    """What the worker is asked about one group.

    Attributes:
        group: which cases.
        min_effect: by variant; what was asked for, or more where the machine's noise asks for it.
        same_within: by variant, how wide the interval of a "same" may be; see ``sequential.Test``.
        alpha: by variant, 1 − confidence.
        cases: how many cases share the family-wise error rate.
        deadline_s: seconds from now after which no further epoch starts.
        twins: compare base with itself: what the machine makes of no change at all.
    """

    group: Group
    min_effect: Mapping[str, float]
    same_within: Mapping[str, float]
    alpha: Mapping[str, float]
    cases: int
    deadline_s: float
    twins: bool = False


def group_request_from(row: Mapping[str, Any]) -> GroupRequest:
    """A request from its JSON object."""
    return GroupRequest(**{**row, "group": group_from(row["group"])})


def group_from(row: Mapping[str, Any]) -> Group:
    """A group from its JSON object."""
    return Group(**{**row, "variants": tuple(row["variants"])})


@dataclass(frozen=True)
class SideFacts:
    """What a worker found when it imported one side of one suite.

    Attributes:
        variants: name to where its function stands, (file relative to the tree, line).
        missing: the tree has no such package or module.
        error: why it cannot be imported, else "".
    """

    variants: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    missing: bool = False
    error: str = ""
