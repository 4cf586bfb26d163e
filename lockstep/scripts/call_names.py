"""Name the calls of a script. A name stays when the script's calls change places, wherever something tells them apart.

A timer or the stack gives each call a case and a variant. Where several calls have the same, marks are added, such as
the function of a ``perf_report``. Only calls with equal marks are numbered in their order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

#: The first two marks of a point: the function that sets it up, and the title of its plot.
REPORT, PLOT = "report", "plot"


class Mark(NamedTuple):
    """What else is known of a call.

    Attributes:
        what: says what ``text`` is: ``REPORT``, "caller 1", or the name of a loop variable.
        place: where a name has the text: before or after the variant, or among the axes of the case.
    """

    what: str
    text: str
    place: Literal["before", "after", "axis"] = "before"


@dataclass(frozen=True)
class CallKey:
    """A timed call, equal in base and head.

    Attributes:
        case: the axes, such as "M=8,N=4096"; "" if the script states none.
        variant: the variant, such as "liger forward".
        marks: what tells the call from others of this case and variant, the most telling first.
        number: 1 for the first call of this case, variant and marks, 2 for the second.
    """

    case: str
    variant: str
    marks: tuple[Mark, ...] = ()
    number: int = 1

    @property
    def kind(self) -> str:
        """Return the calls that are named alike: all points of reports, or the calls of this variant."""
        return REPORT if self.marks and self.marks[0].what == REPORT else f"{self.variant} "


@dataclass(frozen=True)
class CallName:
    """The name of a call in a script: ``report`` is "" where the other two tell the call apart."""

    case: str
    own: str
    report: str = ""

    @property
    def labels(self) -> tuple[str, str]:
        """Return case and variant as reports write them."""
        return self.case or "-", f"{self.report} {self.own}".lstrip()


class CallNames:
    """Names all calls of a script: the marks that its calls need belong to the names of all calls of a kind."""

    def __init__(self, keys: Iterable[CallKey]) -> None:
        kinds = defaultdict(list)
        for key in keys:
            kinds[key.kind].append(key)
        self._telling = {kind: _telling(of) for kind, of in kinds.items()}

    def of(self, key: CallKey) -> CallName:
        """Return the name of a call, also of one that the script did not make before."""
        marks = [mark for mark in key.marks if mark.what in self._telling.get(key.kind, ())]
        report = " ".join(mark.text for mark in marks if mark.what in (REPORT, PLOT))
        before = [mark.text for mark in marks if mark.place == "before" and mark.what not in (REPORT, PLOT)]
        after = [mark.text for mark in marks if mark.place == "after"]
        axes = [case_label({mark.what: mark.text}) for mark in marks if mark.place == "axis"]
        number = [f"#{key.number}"] if key.number > 1 else []
        own = " ".join([*before, key.variant, *after, *number])
        return CallName(",".join(filter(None, [*axes, key.case])), own, report)

    def labels(self, key: CallKey) -> tuple[str, str]:
        """Return case and variant of a call as reports write them."""
        return self.of(key).labels


def _telling(keys: Sequence[CallKey]) -> list[str]:
    """Return the marks that tell these calls apart, as few as possible, whatever the order of the calls."""
    texts = [{mark.what: mark.text for mark in key.marks} for key in keys]
    candidates = sorted({(place, mark.what) for key in keys for place, mark in enumerate(key.marks)})
    chosen: list[str] = []

    def told(marks: Sequence[str]) -> int:
        return len({(key.case, key.variant, *map(of.get, marks)) for key, of in zip(keys, texts, strict=True)})

    for what in dict.fromkeys(what for _, what in candidates):
        if told([*chosen, what]) > told(chosen):
            chosen.append(what)
    return chosen


def case_label(axes: Mapping[str, Any]) -> str:
    """Return axes as the label of a case: ``M=8,dtype=bfloat16``."""
    return ",".join(f"{name}={_text(value)}" for name, value in axes.items())


def _text(value: Any) -> str:
    return str(value).removeprefix("torch.").replace(",", ";").replace("\n", " ")[:60]
