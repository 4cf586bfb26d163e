"""Changes of several series as marks on the chart that shows them together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape

from dashboard.alerts.words import amount
from dashboard.causes import cause_colour
from dashboard.figures import Mark, commit_line, wrapped
from dashboard.results.model import Commit
from dashboard.shown import Finding
from dashboard.theme import Scheme
from dashboard.verdicts import sign


def marks(
    told: Sequence[tuple[str, Finding]], commits: Sequence[Commit], place: Mapping[str, int], scheme: Scheme
) -> list[Mark]:
    """Changes of several variants as marks: one a commit and direction, coloured by what they are put down to.

    ``place``: of each commit's hash among ``commits``.
    """
    gathered: dict[tuple[int, str], list[tuple[str, Finding]]] = defaultdict(list)
    for variant, one in told:
        if one.commit in place:
            gathered[place[one.commit], sign(one.size)].append((variant, one))
    found = []
    for (at, glyph), some in sorted(gathered.items()):
        lines = [f"{glyph} <b>{escape(variant)}</b> {amount(one)} · {one.kind}" for variant, one in some]
        first = some[0][1]
        lines += [commit_line(commits[at]) if first.exact else f"in {first.range}", wrapped(first.sentence)]
        found.append(Mark(at, glyph, cause_colour(some[0][1].kind, scheme), "<br>".join(lines)))
    return found
